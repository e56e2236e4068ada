/* cp.c - context parallelism: each rank has a part of the sequence (doc/context.md). */
#include "layout/word.h"

static bool claims(const sk_word_ask *ask) { return sk_axis_claims(ask, "cp"); }

const sk_word sk_word_cp = {
    .name = "cp",
    .doc = "context parallel: time is split over N ranks (split t over cp)",
    .value = "N",
    .example = "cp=2",
    .alias = {{"context context_parallel context_parallelism ring_attention ring",
               "cp=N, as in \"cp=4 by=ring\""},
              {"ulysses", "cp=N by=exchange, as in \"cp=4 by=exchange\""}},
    .kind = SK_WORD_AXIS,
    .letters = "t",
    .place = 54,
    .lowers = SK_LOWERS_FLOPS,
    .claims = claims,
    .tries = "2 4 8",
};
