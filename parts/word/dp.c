/* dp.c - data parallelism: each rank has a part of the batch. */
#include "layout/word.h"

/* A layout that names no axis is one rank. */
static sk_status complete(sk_reading *r)
{
    return r->l->mesh.n ? SK_OK : sk_axis_add(&r->l->mesh, "dp", 1);
}

static bool claims(const sk_word_ask *ask) { return sk_axis_claims(ask, "dp"); }

const sk_word sk_word_dp = {
    .name = "dp",
    .doc = "data parallel: the batch is split over N ranks (split b over dp)",
    .value = "N",
    .example = "dp=2",
    .alias = {{"ddp data data_parallel data_parallelism distributed_data_parallel no_shard "
               "replicate dp_replicate",
               "dp=N, as in \"dp=4\""},
              {"dp_shard data_parallel_shard", "dp=N with zero=3, as in \"dp=4 zero=3\""}},
    .kind = SK_WORD_AXIS,
    .letters = "b",
    .place = 52,
    .complete = complete,
    .lowers = SK_LOWERS_FLOPS,
    .claims = claims,
    .tries = "2 4 8",
};
