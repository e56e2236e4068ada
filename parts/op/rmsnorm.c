/* rmsnorm.c - each row divided by its root mean square, then scaled (Zhang and Sennrich 2019).
 *
 * 1/rms is kept for the gradient.  attr: eps. */
#include "graph/extra.h"

#include <math.h>

static void cpu(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    const real *restrict w = a->in[1].data;
    real *rstd = a->out[1].data;
    int64_t n = v->size[v->n - 1], from, to;
    sk_share(a, sk_span(v, 0, v->n - 1), &from, &to);
    for (int64_t r = from; r < to; r++) {
        const real *restrict x = (const real *)v->data + r * n;
        real *restrict y = (real *)a->out[0].data + r * n;
        real square = 0;
#pragma omp simd reduction(+ : square)
        for (int64_t i = 0; i < n; i++) square += x[i] * x[i];
        real s = (real)(1 / sqrt((double)square / (double)n + a->attr[0]));
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = x[i] * s * w[i];
        rstd[r] = s;
    }
}

static double flops(const sk_args *a) { return 4 * (double)sk_count(&a->in[0]); }

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    sk_tensor *x = y->in[0], *w = y->in[1], *rstd = y->out[1];
    if (!dy[0]) return;
    dx[0] = sk_apply(g, "rmsnorm_grad_x", .in = {x, w, rstd, dy[0]})->out[0];
    dx[1] = sk_apply(g, "rmsnorm_grad_w", .in = {x, rstd, dy[0]})->out[0];
}

static sk_tensor *sample(SK_EXTRA_ARGS)
{
    (void)dx;
    const char *x = sk_rows_marked(g, y->letters_in[0], y->letters_in[i]);
    const char *row = sk_rows_marked(g, y->letters_out[1], "");
    char *dims =
        sk_print(g->arena, "%s,%s,%s,%s->%c%s", x, row, row, x, g->batch, y->letters_in[i]);
    return sk_apply(g, "norm_samples", .in = {y->in[0], y->out[1], y->out[1], dy[0]}, .dims = dims,
                    .attr = {1})
        ->out[0];
}

static const sk_extra_rules extra = {.sample = sample};

static const sk_sample samples[] = {
    {.in = {"b2t3c8", "c8"}, .attr = {1e-5}},
    {.in = {"b3t2k2c37", "c37"}, .attr = {1e-5}},
    {.in = {"c5", "c5"}, .attr = {1e-3}},
    {.in = {0}},
};

const sk_op sk_op_rmsnorm = {
    .name = "rmsnorm",
    .doc = "root-mean-square normalisation with weight; also gives 1/rms",
    .dims = "*c!,c!->*c,*",
    .n_in = 2,
    .n_out = 2,
    .types = "xx>xf",
    .flags = SK_OP_CHEAP,
    .stats = 2,
    .grad = grad,
    .extra = &extra,
    .no_grad = 2,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
