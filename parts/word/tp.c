/* tp.c - tensor parallelism (Shoeybi et al. 2019): each rank has a part of every block's weights.
 */
#include "layout/word.h"

static bool claims(const sk_word_ask *ask) { return sk_axis_claims(ask, "tp"); }

const sk_word sk_word_tp = {
    .name = "tp",
    .doc = "tensor parallel: heads, hidden units and vocabulary are split over N ranks (split h f "
           "v over tp)",
    .value = "N",
    .example = "tp=2",
    .alias = {{"tensor tensor_parallel tensor_parallelism tensor_model_parallel model_parallel mp "
               "megatron",
               "tp=N, as in \"tp=4\"; with the time dim split in norms too, \"tp=4 sp\""}},
    .kind = SK_WORD_AXIS,
    .letters = "hfv",
    .place = 58,
    .lowers = SK_LOWERS_FLOPS,
    .claims = claims,
    .tries = "2 4 8",
};
