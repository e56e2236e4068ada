/* copy.c - a second copy of gathered weights, sharded over few ranks, serves the later gathers of a
 * step (ZeRO++, hpZ: Wang et al. 2023). */
#include "layout/word.h"

#include <stdio.h>

static void print_brief(const sk_layout *l, sk_out *o)
{
    if (l->copy > 1) sk_out_add(o, "copy over %d", l->copy);
}

static sk_status check(const sk_layout *l)
{
    int n = sk_axis_size(l, l->shard_axis);
    if (n % l->copy == 0) return SK_OK;
    return sk_fail(SK_ECONF,
                   "layout: copy=%d: the %d ranks along '%s' are not groups of %d; a number that "
                   "divides %d is needed, best that of the ranks of a host",
                   l->copy, n, l->mesh.name[l->shard_axis], l->copy, n);
}

static sk_status fits(const sk_word_ask *ask)
{
    if (ask->layout->copy < 2 || !ask->async) return SK_OK;
    return sk_fail(SK_ECONF,
                   "layout: schedule %s changes weights within a step, and copy=%d keeps those of "
                   "its first forward pass; leave one of them out",
                   ask->layout->schedule, ask->layout->copy);
}

static bool draw(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    snprintf(phrase, SK_WORD_TEXT, "copy=2");
    return sk_words_gathered(l) && l->mesh.size[l->shard_axis] % 2 == 0 && sk_dice_one_in(d, 2);
}

static bool claims(const sk_word_ask *ask)
{
    const sk_layout *l = ask->layout;
    return l->copy > 1 && l->copy < sk_axis_size(l, l->shard_axis) && !l->keep;
}

const sk_word sk_word_copy = {
    .name = "copy",
    .doc = "N ranks keep a second copy of gathered weights for the rest of a step (hpZ)",
    .value = "N",
    .sentence = {"second copy of weights over N ranks"},
    .example = "dp=4 zero=3 copy=2",
    .kind = SK_WORD_INT,
    .least = 1,
    .at = offsetof(sk_layout, copy),
    .place = 160,
    .print_brief = print_brief,
    .works = sk_words_gathered,
    .about = "weights that are gathered, and every rank has them whole",
    .cure = "zero=3 (shard params over AXIS)",
    .check = check,
    .fits = fits,
    .lowers = SK_LOWERS_WIRE,
    .claims = claims,
    .draw = draw,
    .tries = "8",
};
