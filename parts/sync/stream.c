/* stream.c - streaming DiLoCo (Douillard et al. 2025): fragments of the model are synchronised one
 * after the other, each travels during a step, and is mixed into weights that have moved on. */
#include "program/sync.h"

enum { LR, MOMENTUM, FRAGMENTS, MIX };

static void outer(const double *knob, int replicas, sk_outer_step *to)
{
    double lr = knob[LR], mu = knob[MOMENTUM], mix = knob[MIX];
    (void)replicas;
    to->momentum[SK_OUTER_MEAN] = 1;
    to->momentum[SK_OUTER_MOMENTUM] = (float)mu;
    to->anchor[SK_OUTER_ANCHOR] = 1;
    to->anchor[SK_OUTER_MEAN] = (float)(-lr * (1 + mu));
    to->anchor[SK_OUTER_MOMENTUM] = (float)(-lr * mu * mu);
    for (int k = 0; k < SK_COMBINE_IN; k++) to->weight[k] = (float)(1 - mix) * to->anchor[k];
    to->weight[SK_OUTER_WEIGHT] = (float)mix;
}

static int fragments(const double *knob) { return (int)knob[FRAGMENTS]; }

const sk_sync sk_sync_stream = {
    .name = "stream",
    .doc = "streaming DiLoCo: fragments of the model take turns, and travel beside a step",
    .usual = 50,
    .knobs = {{"lr", 0.7, .least = 0, .most = 10, .doc = "rate of the outer step"},
              {"momentum", 0.9, .least = 0, .most = SK_BELOW_ONE, .doc = "of the outer step"},
              {"fragments", 4, .least = 1, .most = 1024, .whole = true,
               .doc = "parts of the model, by layers"},
              {"mix", 0.5, .least = 0, .most = 1,
               .doc = "part of the replica's own weights that stays"}},
    .outer = outer,
    .momentum = true,
    .fragments = fragments,
    .alias = {{"streaming_diloco", "stream:50"}},
};
