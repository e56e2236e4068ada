/* ep.c - expert parallelism: ranks have parts of the batch, and experts of their own. */
#include "layout/word.h"

static bool claims(const sk_word_ask *ask) { return sk_axis_claims(ask, "ep"); }

const sk_word sk_word_ep = {
    .name = "ep",
    .doc = "expert parallel: batch and experts are split over N ranks (split b e over ep)",
    .value = "N",
    .example = "ep=2",
    .alias = {{"expert expert_parallel expert_parallelism expert_model_parallel",
               "ep=N, as in \"ep=4\""}},
    .kind = SK_WORD_AXIS,
    .letters = "be",
    .place = 56,
    .lowers = SK_LOWERS_FLOPS,
    .claims = claims,
    .tries = "2 4 8",
};
