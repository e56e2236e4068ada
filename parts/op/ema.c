/* ema.c - running averages: of the old average and a new value, element by element.
 *
 * attr: beta, mode (0 plain, 1 unbiased, 2 decreasing, 3 sum), first: the update that is the first
 * to count, from 0 on; interval: it runs in every so many updates, 0 is 1.  kernel/average.h has
 * the weights. */
#include "graph/graph.h"
#include "kernel/average.h"

enum { BETA, MODE, FIRST, INTERVAL };

static void cpu(const sk_args *a)
{
    const real *old = a->in[0].data, *fresh = a->in[1].data;
    real *y = a->out[0].data;
    double t = sk_average_count(a->updates, a->attr[FIRST], a->attr[INTERVAL]);
    sk_average w = sk_average_of(a->attr[BETA], (int)a->attr[MODE], t);
    int64_t from, to;
    sk_share(a, sk_count(&a->out[0]), &from, &to);
#pragma omp simd
    for (int64_t i = from; i < to; i++) y[i] = sk_average_one(w, old[i], fresh[i]);
}

static void infer(sk_graph *g, const sk_node *n)
{
    double mode = n->attr[MODE], beta = n->attr[BETA];
    bool known = mode == 0 || mode == 1 || mode == 2 || mode == 3;
    if (!known || !(beta >= 0 && beta <= 1))
        sk_graph_fail(g, SK_ECONF,
                      "ema: mode is %g, beta %g; 0, 1, 2 or 3, and 0 to 1 are needed (%s)", mode,
                      beta, n->where);
}

static const sk_sample samples[] = {
    {.in = {"m5n7", "m5n7"}, .attr = {0.9}},
    {.in = {"m5n7", "m5n7"}, .attr = {0.9, 1}},
    {.in = {"n67", "n67"}, .attr = {0.99, 1, -4}},
    {.in = {"n67", "n67"}, .attr = {1, 1, -2}},
    {.in = {"n67", "n67"}, .attr = {0.8, 2, -9}},
    {.in = {"n67", "n67"}, .attr = {0.8, 2}},
    {.in = {"n67", "n67"}, .attr = {0, 3}},
    {.in = {"n67", "n67"}, .attr = {0.5, 0, 1}}, /* not yet */
    {.in = {"n67", "n67"}, .attr = {0.9, 1, -20, 7}},
    {.in = {"", ""}, .attr = {0.5}},
    {.in = {0}},
};

const sk_op sk_op_ema = {
    .name = "ema",
    .doc = "running averages, element by element",
    .dims = "*,*->*",
    .n_in = 2,
    .types = "ff>f",
    .reuse = 1 | 2,
    .infer = infer,
    .cpu = cpu,
    .samples = samples,
};
