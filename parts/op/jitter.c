/* jitter.c - x plus small random numbers: x + scale u, where u from [-1, 1) depends on seed and
 * logical index alone, so no layout changes it.
 *
 * attr: scale, and a number that tells this place from others.  A matrix that is to span a space
 * (program/grad_low_rank.c) never lacks a direction for ever, and zeros become a random matrix. */
#include "graph/graph.h"
#include "base/rng.h"

static void infer(sk_graph *g, const sk_node *n)
{
    if (!(n->attr[0] >= 0) || !(n->attr[1] >= 0 && n->attr[1] <= INT32_MAX))
        sk_graph_fail(g, SK_ECONF,
                      "jitter: scale %g and number %g; not below 0, and 0 to %d are needed (%s)",
                      n->attr[0], n->attr[1], INT32_MAX, n->where);
}

static void cpu(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    uint64_t stream = (uint64_t)(int64_t)a->attr[1];
    int64_t n = v->n ? v->size[v->n - 1] : 1, from, to;
    sk_share(a, n ? sk_count(v) / n : 0, &from, &to);
    for (int64_t r = from; r < to; r++) {
        const real *x = (const real *)v->data + r * n;
        real *y = (real *)a->out[0].data + r * n;
        uint64_t at = (uint64_t)sk_logical(v, r * n);
        for (int64_t i = 0; i < n; i++) {
            double u = 2 * sk_rng_uniform(a->seed, stream, at + (uint64_t)i) - 1;
            y[i] = x[i] + (real)(a->attr[0] * u);
        }
    }
}

static double flops(const sk_args *a) { return 20 * (double)sk_count(&a->out[0]); }

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    (void)g;
    (void)y;
    dx[0] = dy[0];
}

static const sk_sample samples[] = {
    {.in = {"b2t3c8"}, .attr = {0.1, 1}},
    {.in = {"b3t2k2c37"}, .attr = {0.5, 7}},
    {.in = {""}, .attr = {0.25, 2}},
    {.in = {"c5"}, .attr = {0, 3}},
    {.in = {0}},
};

const sk_op sk_op_jitter = {
    .name = "jitter",
    .doc = "x plus small random numbers that depend on the place alone",
    .dims = "*->*",
    .n_in = 1,
    .reuse = 1,
    .infer = infer,
    .grad = grad,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
