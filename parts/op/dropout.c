/* dropout.c - zeros with probability p, the rest scaled by 1/(1-p) (Srivastava et al. 2014).
 *
 * Which elements are dropped depends on seed, step and logical index alone, so no layout changes
 * it, and the gradient is dropout again. attr: p, and a number that tells this dropout of the model
 * from others.  In validation nothing is dropped. */
#include "graph/graph.h"
#include "base/rng.h"

static void infer(sk_graph *g, const sk_node *n)
{
    if (!(n->attr[0] >= 0 && n->attr[0] < 1))
        sk_graph_fail(g, SK_ECONF, "dropout: p is %g; a number from 0 to below 1 is needed (%s)",
                      n->attr[0], n->where);
    if (!(n->attr[1] >= 0 && n->attr[1] <= INT32_MAX))
        sk_graph_fail(g, SK_ECONF, "dropout: its number is %g; 0 to %d is needed (%s)", n->attr[1],
                      INT32_MAX, n->where);
}

static void cpu(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    uint64_t stream = a->stream * 1000003u + (uint64_t)(int64_t)a->attr[1];
    double p = a->validation ? 0 : a->attr[0];
    real scale = (real)(1 / (1 - p));
    int64_t n = v->n ? v->size[v->n - 1] : 1, from, to;
    sk_share(a, n ? sk_count(v) / n : 0, &from, &to);
    for (int64_t r = from; r < to; r++) {
        const real *x = (const real *)v->data + r * n;
        real *y = (real *)a->out[0].data + r * n;
        uint64_t at = (uint64_t)sk_logical(v, r * n);
        for (int64_t i = 0; i < n; i++) {
            bool keep = sk_rng_uniform(a->seed, stream, at + (uint64_t)i) >= p;
            y[i] = keep ? x[i] * scale : 0;
        }
    }
}

static double flops(const sk_args *a) { return 20 * (double)sk_count(&a->out[0]); }

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    dx[0] = sk_apply(g, "dropout", .in = {dy[0]}, .attr = {y->attr[0], y->attr[1]})->out[0];
}

static const sk_sample samples[] = {
    {.in = {"b2t3c8"}, .attr = {0.1, 1}},
    {.in = {"b3t2k2c37"}, .attr = {0.5, 7}},
    {.in = {""}, .attr = {0.25, 2}},
    {.in = {"c5"}, .attr = {0, 3}},
    {.in = {0}},
};

const sk_op sk_op_dropout = {
    .name = "dropout",
    .doc = "zeros with probability p, the rest scaled to keep the mean",
    .dims = "*->*",
    .n_in = 1,
    .flags = SK_OP_RECOMPUTE,
    .reuse = 1,
    .infer = infer,
    .grad = grad,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
