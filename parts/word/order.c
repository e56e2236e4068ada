/* order.c - the axes of short words in another order than pp dp cp ep tp2 tp. */
#include "layout/word.h"

const sk_word sk_word_order = {
    .name = "order:",
    .doc =
        "the axes of the short words, slowest first, at the end of their line (pp dp cp ep tp2 tp)",
    .value = "AXIS ...",
    .example = "dp=2 tp=2 order: tp dp",
    .kind = SK_WORD_ORDER,
    .place = 250,
};
