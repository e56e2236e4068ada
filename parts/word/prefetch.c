/* prefetch.c - sharded weights are gathered, and offloaded ones copied, layers ahead of their use.
 */
#include "layout/word.h"

#include <stdio.h>

static bool works(const sk_layout *l) { return sk_words_gathered(l) || sk_layout_offloads(l); }

static bool draw(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    int n = sk_dice_pick(d, 0, 3);
    snprintf(phrase, SK_WORD_TEXT, "prefetch=%d", n);
    return sk_words_gathered(l) && n > 0;
}

static bool claims(const sk_word_ask *ask)
{
    const sk_layout *l = ask->layout;
    return sk_words_gathered(l) && sk_axis_size(l, l->shard_axis) > 1 &&
           sk_axis_size(l, l->stage_axis) == 1 && !sk_layout_offloads(l);
}

const sk_word sk_word_prefetch = {
    .name = "prefetch",
    .doc = "sharded weights are gathered, and offloaded ones fetched, N layers ahead",
    .value = "N",
    .sentence = {"gather weights N ahead"},
    .example = "dp=2 zero=3 prefetch=2",
    .kind = SK_WORD_INT,
    .at = offsetof(sk_layout, prefetch),
    .place = 100,
    .works = works,
    .about = "weights that are gathered, and every rank has them whole",
    .cure = "zero=3 (shard params over AXIS)",
    .lowers = SK_LOWERS_WAITING,
    .claims = claims,
    .draw = draw,
    .tries = "1 2",
};
