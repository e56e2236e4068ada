/* xent_loss.c - the sum of w * (m + log s - t) over all rows, and the sum of w.
 *
 * attr: z.  With it a row's loss has z * (m + log s)^2 more, the z-loss of PaLM (Chowdhery et al.
 * 2022), which keeps the logarithm of the softmax's divisor near 0.  In validation z is 0.
 *
 * The division by the sum of weights is done at the end of the global step.  One thread sums, in
 * double: a logarithm per token costs microseconds.  In canonical order the sum of each reduction
 * block is rounded, and these sums are added in pairs. */
#include "graph/extra.h"
#include "kernel/cpu/vecmath.h"

typedef struct sums {
    double loss, weight;
} sums;

static sums add_up(const sk_args *a, int64_t from, int64_t to)
{
    const real *m = a->in[0].data, *s = a->in[1].data, *t = a->in[2].data, *w = a->in[3].data;
    double z = a->validation ? 0 : a->attr[0];
    sums y = {0};
    for (int64_t i = from; i < to; i++) {
        y.weight += (double)w[i];
        if (w[i] == 0) continue;
        y.loss += (double)w[i] * ((double)m[i] - (double)t[i] + log((double)s[i]));
        if (z == 0) continue;
        double lse = (double)m[i] + log((double)s[i]);
        y.loss += (double)w[i] * z * lse * lse;
    }
    return y;
}

static void by_cells(const sk_args *a, real *loss, real *weight)
{
    const sk_view *v = &a->in[0];
    int64_t border[SK_REDUCTION_BLOCKS_MAX + 1], inner = sk_span(v, 1, v->n);
    real sum[SK_REDUCTION_BLOCKS_MAX], weights[SK_REDUCTION_BLOCKS_MAX];
    int cells = sk_view_reduction_blocks(v, 0, border);
    for (int k = 0; k < cells; k++) {
        sums y = add_up(a, border[k] * inner, border[k + 1] * inner);
        sum[k] = (real)y.loss;
        weights[k] = (real)y.weight;
    }
    sk_sum_pairs(sum, cells);
    sk_sum_pairs(weights, cells);
    sk_sum_put(loss, sum, 1, a->add & 1);
    sk_sum_put(weight, weights, 1, a->add & 2);
}

static void cpu(const sk_args *a)
{
    real *loss = a->out[0].data, *weight = a->out[1].data;
    if (a->part) return;
    if (a->in[0].n && a->in[0].cells[0]) {
        by_cells(a, loss, weight);
        return;
    }
    sums y = add_up(a, 0, sk_count(&a->in[0]));
    *loss = (real)(y.loss + (a->add & 1 ? (double)*loss : 0));
    *weight = (real)(y.weight + (a->add & 2 ? (double)*weight : 0));
}

static double flops(const sk_args *a) { return 10 * (double)sk_count(&a->in[0]); }

/* The derivatives by m of this and of xent_terms cancel, also with z: m + log s does not depend on
 * m.  Weights are data. */
static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    if (!dy[0]) return;
    sk_node *d;
    if (y->attr[0] == 0) d = sk_apply(g, "xent_loss_grad", .in = {y->in[1], y->in[3], dy[0]});
    else
        d = sk_apply(g, "xent_z_grad", .in = {y->in[1], y->in[3], dy[0], y->in[0]},
                     .attr = {y->attr[0]});
    dx[1] = d->out[0];
    dx[2] = d->out[1];
}

static sk_tensor *curvature(sk_graph *g, const sk_node *y, sk_tensor *logits, int k, int draw)
{
    sk_tensor *scale = sk_graph_find(g, SK_LOSS_SCALE);
    if (y->attr[0] != 0)
        sk_graph_fail(
            g, SK_ECONF,
            "train.backward: diag_ggn has no rule for train.z_loss (%g); leave one of the "
            "two out",
            y->attr[0]);
    return sk_apply(g, "xent_curvature", .in = {logits, y->in[3], scale}, .attr = {k, draw})
        ->out[0];
}

static const sk_extra_rules extra = {.curvature = curvature};

static const sk_sample samples[] = {
    {.in = {"b2t3", "b2t3", "b2t3", "b2t3"}, .positive = true},
    {.in = {"b67", "b67", "b67", "b67"}, .positive = true},
    {.in = {"b21t7", "b21t7", "b21t7", "b21t7"}, .positive = true},
    {.in = {"", "", "", ""}, .positive = true},
    {.in = {"b2t3", "b2t3", "b2t3", "b2t3"}, .positive = true, .attr = {0.25}},
    {.in = {"b67", "b67", "b67", "b67"}, .positive = true, .attr = {1e-4}},
    {.in = {0}},
};

const sk_op sk_op_xent_loss = {
    .name = "xent_loss",
    .doc = "weighted sum of cross-entropies, and the sum of weights",
    .dims = "*,*,*,*->,",
    .n_in = 4,
    .n_out = 2,
    .types = "ffff>ff",
    .flags = SK_OP_ADDS,
    .stats = 3,
    .grad = grad,
    .extra = &extra,
    .no_grad = 2,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
