/* diloco.c - DiLoCo (Douillard et al. 2023): the mean change of the replicas since the last
 * synchronisation is the gradient of an outer step, SGD with Nesterov's momentum. */
#include "program/sync.h"

enum { LR, MOMENTUM };

/* m' = mu m + g; anchor' = anchor - lr (g + mu m'); weights begin anew from there. */
static void outer(const double *knob, int replicas, sk_outer_step *to)
{
    double lr = knob[LR], mu = knob[MOMENTUM];
    (void)replicas;
    to->momentum[SK_OUTER_MEAN] = 1;
    to->momentum[SK_OUTER_MOMENTUM] = (float)mu;
    to->anchor[SK_OUTER_ANCHOR] = 1;
    to->anchor[SK_OUTER_MEAN] = (float)(-lr * (1 + mu));
    to->anchor[SK_OUTER_MOMENTUM] = (float)(-lr * mu * mu);
    for (int k = 0; k < SK_COMBINE_IN; k++) to->weight[k] = to->anchor[k];
}

const sk_sync sk_sync_diloco = {
    .name = "diloco",
    .doc = "DiLoCo: every H steps an outer step with Nesterov momentum by the mean change",
    .usual = 50,
    .knobs = {{"lr", 0.7, .least = 0, .most = 10, .doc = "rate of the outer step"},
              {"momentum", 0.9, .least = 0, .most = SK_BELOW_ONE, .doc = "of the outer step"}},
    .outer = outer,
    .momentum = true,
};
