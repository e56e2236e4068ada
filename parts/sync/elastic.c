/* elastic.c - elastic averaging SGD (Zhang, Choromanska, LeCun 2015): a spring between each replica
 * and a centre, which moves towards the mean of the replicas. */
#include "program/sync.h"

enum { ALPHA };

/* x' = x - alpha (x - c); c' = c + n alpha (mean of x - c), of n replicas; the paper's beta is n
 * alpha, 0.9 by default. */
static void outer(const double *knob, int replicas, sk_outer_step *to)
{
    double beta = knob[ALPHA], alpha = beta / replicas;
    to->weight[SK_OUTER_WEIGHT] = (float)(1 - alpha);
    to->weight[SK_OUTER_ANCHOR] = (float)alpha;
    to->anchor[SK_OUTER_ANCHOR] = 1;
    to->anchor[SK_OUTER_MEAN] = (float)-beta;
}

const sk_sync sk_sync_elastic = {
    .name = "elastic",
    .doc = "elastic averaging: every H steps replicas and a common centre move towards each other",
    .usual = 10,
    .knobs = {{"beta", 0.9, .least = 0, .most = 1, .doc = "part of the way that the centre goes"}},
    .outer = outer,
    .alias = {{"easgd elastic_averaging elastic_averaging_sgd", "elastic:10"}},
};
