/* overlap.c - products run in chunks, beside the collectives that they wait for
 * (src/program/turns.c, doc/parallelism.md). */
#include "layout/word.h"

#include <stdio.h>

static bool draw(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    snprintf(phrase, SK_WORD_TEXT, "overlap=%d", sk_dice_pick(d, 1, 5));
    return sk_words_repeated(l) && sk_dice_one_in(d, 2);
}

const sk_word sk_word_overlap = {
    .name = "overlap",
    .doc = "products run in N chunks along the batch, beside the collectives that they wait for",
    .value = "N",
    .sentence = {"overlap in N turns"},
    .example = "tp=2 overlap=4",
    .kind = SK_WORD_INT,
    .least = 1,
    .most = 4096,
    .off = 1,
    .at = offsetof(sk_layout, overlap),
    .place = 120,
    .works = sk_words_repeated,
    .about = "products that wait for other ranks, and no letter is split that makes them wait",
    .cure = "tp=2 (split h f v over AXIS)",
    .lowers = SK_LOWERS_WAITING,
    .draw = draw,
    .tries = "2 4 8",
};
