/* tp2.c - the second dim of tensor parallelism (Xu et al. 2021): the width of the model is split,
 * so that with tp every weight is cut in rows and columns. */
#include "layout/word.h"

static bool claims(const sk_word_ask *ask) { return sk_axis_claims(ask, "tp2"); }

const sk_word sk_word_tp2 = {
    .name = "tp2",
    .doc = "tensor parallel in two dims, beside tp: the width is split over N ranks (split c over "
           "tp2)",
    .value = "N",
    .example = "tp2=2 tp=2",
    .alias = {{"tensor_2d tensor2d tp_2d", "tp2=N beside tp, as in \"tp2=2 tp=2\""}},
    .kind = SK_WORD_AXIS,
    .letters = "c",
    .place = 57,
    .lowers = SK_LOWERS_FLOPS,
    .claims = claims,
    .tries = "2 4",
};
