/* gist.c - saved activations in fewer bits (Jain et al. 2018): signs; below 100 per cent also what
 * has many zeros (src/program/saved_packed.c). */
#include "layout/word.h"

#include <stdio.h>
#include <string.h>

static sk_status set(sk_reading *r, const char *value)
{
    if (value && !strcmp(value, "none")) return SK_OK;
    return sk_word_int("gist", value ? value : "100", 1, 100, &r->l->gist);
}

static void print(const sk_layout *l, sk_out *o)
{
    if (l->gist) sk_out_add(o, "encode kept results");
    if (l->gist && l->gist < 100) sk_out_add(o, " in %d percent", l->gist);
}

static void print_brief(const sk_layout *l, sk_out *o)
{
    if (l->gist) sk_out_add(o, "gist");
    if (l->gist && l->gist < 100) sk_out_add(o, " %d %%", l->gist);
}

static bool draw(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    (void)l;
    snprintf(phrase, SK_WORD_TEXT, "gist"); /* of a number may be too full, and run a step again */
    return sk_dice_one_in(d, 5);
}

const sk_word sk_word_gist = {
    .name = "gist",
    .doc = "saved activations in fewer bits; N: per cent of capacity for those with zeros",
    .value = "[=N]",
    .sentence = {"encode kept results", "encode kept results in N percent"},
    .example = "dp=2 gist=60",
    .kind = SK_WORD_INT,
    .least = 1,
    .most = 100,
    .at = offsetof(sk_layout, gist),
    .place = 230,
    .set = set,
    .print = print,
    .print_brief = print_brief,
    .lowers = SK_LOWERS_SAVED,
    .draw = draw,
};
