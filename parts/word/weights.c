/* weights.c - gathered weights travel in fewer bits (parts/codec, doc/codec.md). */
#include "layout/word.h"

#include <stdio.h>

static sk_status set(sk_reading *r, const char *value)
{
    return sk_word_codec(value, r->l->weights_as);
}

static bool on(const sk_layout *l) { return *l->weights_as; }

static void clear(sk_layout *l) { *l->weights_as = 0; }

static void print(const sk_layout *l, sk_out *o)
{
    if (on(l)) sk_out_add(o, "encode weights as %s", l->weights_as);
}

static void print_brief(const sk_layout *l, sk_out *o)
{
    if (on(l)) sk_out_add(o, "weights %s", l->weights_as);
}

static bool draw(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    static const char *const names[] = {"f16", "bf16", "fp8", "int8"};
    snprintf(phrase, SK_WORD_TEXT, "weights=%s", names[sk_dice_pick(d, 0, 3)]);
    return sk_words_gathered(l) && sk_dice_one_in(d, 5);
}

static bool claims(const sk_word_ask *ask)
{
    return sk_axis_size(ask->layout, ask->layout->shard_axis) > 1 && ask->dtype == SK_F32;
}

const sk_word sk_word_weights = {
    .name = "weights",
    .doc = "gathered weights are encoded: skein list codec",
    .value = "CODEC",
    .sentence = {"encode weights as CODEC"},
    .example = "dp=2 zero=3 weights=int8",
    .kind = SK_WORD_OTHER,
    .place = 130,
    .set = set,
    .on = on,
    .clear = clear,
    .print = print,
    .print_brief = print_brief,
    .works = sk_words_gathered,
    .about = "weights that are gathered, and every rank has them whole",
    .cure = "zero=3 (shard params over AXIS)",
    .lowers = SK_LOWERS_WIRE,
    .claims = claims,
    .draw = draw,
    .tries = "bf16 int8",
    .lossy = true,
};
