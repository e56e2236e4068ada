/* powersgd.c - PowerSGD (Vogels et al. 2019): a gradient is sent as two factors of rank RANK.
 *
 * It encodes no rows: the factors are products of whole matrices and are summed by all-reduces, as
 * instructions of the program (program/grad_low_rank.c). */
#include "coll/codec.h"

const sk_codec sk_codec_powersgd = {
    .name = "powersgd",
    .also = "power_sgd low_rank",
    .doc = "powersgd:RANK, two factors of a whole matrix: 4 RANK (rows + columns) bytes",
    .value_name = "RANK",
    .value_most = 1024,
    .value_usual = 4,
    .sums_only = true,
    .needs_feedback = true,
    .low_rank = true};
