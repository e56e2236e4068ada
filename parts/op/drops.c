/* drops.c - how many elements are negative: of route's slots, the choices whose expert was full. */
#include "graph/graph.h"

static void cpu(const sk_args *a)
{
    const real *x = a->in[0].data;
    real *y = a->out[0].data;
    int64_t n = sk_count(&a->in[0]), found = 0;
    if (a->part) return;
    for (int64_t i = 0; i < n; i++) found += x[i] < 0;
    *y = (real)found + (a->add & 1 ? *y : 0);
}

static double flops(const sk_args *a) { return (double)sk_count(&a->in[0]); }

static const sk_sample samples[] = {{.in = {"b2t3k2"}}, {.in = {"b67"}}, {.in = {""}}, {.in = {0}}};

const sk_op sk_op_drops = {
    .name = "drops",
    .doc = "number of negative elements: choices of experts without room",
    .dims = "*->",
    .n_in = 1,
    .types = "f>f",
    .flags = SK_OP_ADDS,
    .stats = 1,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
