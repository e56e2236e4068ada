/* xent_loss.c - the sum of w * (m + log s - t) over all rows, and the sum of w.
 *
 * The division by the sum of weights waits for the end of the global step.
 * One thread adds up, in double: a logarithm per token costs microseconds. */
#include "graph/graph.h"

#include <math.h>

static void cpu(const sk_args *a)
{
    const real *m = a->in[0].data, *s = a->in[1].data, *t = a->in[2].data, *w = a->in[3].data;
    real *loss = a->out[0].data, *weight = a->out[1].data;
    int64_t n = sk_count(&a->in[0]);
    double sum = 0, weights = 0;
    if (a->part) return;
    for (int64_t i = 0; i < n; i++) {
        weights += (double)w[i];
        if (w[i] != 0) sum += (double)w[i] * ((double)m[i] - (double)t[i] + log((double)s[i]));
    }
    *loss = (real)(sum + (a->add & 1 ? (double)*loss : 0));
    *weight = (real)(weights + (a->add & 2 ? (double)*weight : 0));
}

static double flops(const sk_args *a) { return 10 * (double)sk_count(&a->in[0]); }

/* The derivatives by m of this and of xent_terms cancel; weights are data. */
static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    if (!dy[0]) return;
    sk_node *d = sk_apply(g, "xent_loss_grad", .in = {y->in[1], y->in[3], dy[0]});
    dx[1] = d->out[0];
    dx[2] = d->out[1];
}

static const sk_sample samples[] = {
    {.in = {"b2t3", "b2t3", "b2t3", "b2t3"}, .positive = true},
    {.in = {"b67", "b67", "b67", "b67"}, .positive = true},
    {.in = {"", "", "", ""}, .positive = true},
    {.in = {0}},
};

const sk_op sk_op_xent_loss = {
    .name = "xent_loss",
    .doc = "weighted sum of cross-entropies, and the sum of weights",
    .dims = "*,*,*,*->,",
    .n_in = 4,
    .n_out = 2,
    .flags = SK_OP_ADDS,
    .stats = 3,
    .grad = grad,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
