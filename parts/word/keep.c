/* keep.c - weights that were gathered for the forward pass stay for the backward pass. */
#include "layout/word.h"

static bool claims(const sk_word_ask *ask)
{
    return sk_axis_size(ask->layout, ask->layout->shard_axis) > 1 && !ask->async;
}

const sk_word sk_word_keep = {
    .name = "keep",
    .doc = "weights gathered for the forward pass serve the backward pass, too",
    .sentence = {"keep gathered weights"},
    .example = "dp=2 zero=3 keep",
    .kind = SK_WORD_FLAG,
    .at = offsetof(sk_layout, keep),
    .place = 110,
    .works = sk_words_gathered,
    .about = "weights that are gathered, and every rank has them whole",
    .cure = "zero=3 (shard params over AXIS)",
    .lowers = SK_LOWERS_WIRE,
    .claims = claims,
};
