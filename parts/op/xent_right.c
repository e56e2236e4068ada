/* xent_right.c - how many rows have the target's logit t at the largest logit m: the samples that a
 * classifier gets right.
 *
 * Beside xent_loss, and from what that has: both come from the same numbers, so a target that is
 * the largest is equal to it.  Classes with the same largest logit are all right.  A row of weight
 * 0 is padding and does not count; a NaN is never right.  The result is a whole number: the same
 * in any order, exact up to 2^24. */
#include "graph/graph.h"

static void cpu(const sk_args *a)
{
    const real *m = a->in[0].data, *t = a->in[1].data, *w = a->in[2].data;
    real *y = a->out[0].data;
    int64_t n = sk_count(&a->in[0]), found = 0;
    if (a->part) return;
    for (int64_t i = 0; i < n; i++) found += w[i] != 0 && t[i] >= m[i];
    *y = (real)found + (a->add & 1 ? *y : 0);
}

static double flops(const sk_args *a) { return (double)sk_count(&a->in[0]); }

static const sk_sample samples[] = {{.in = {"b2t3", "b2t3", "b2t3"}},
                                    {.in = {"b67", "b67", "b67"}},
                                    {.in = {"", "", ""}},
                                    {.in = {0}}};

const sk_op sk_op_xent_right = {
    .name = "xent_right",
    .doc = "number of rows whose target has the largest logit",
    .dims = "*,*,*->",
    .n_in = 3,
    .types = "fff>f",
    .flags = SK_OP_ADDS,
    .stats = 1,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
