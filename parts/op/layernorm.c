/* layernorm.c - each row made mean 0 and variance 1, then scaled and shifted (Ba et al. 2016).
 *
 * Mean and 1/deviation are kept for the gradient.  attr: eps. */
#include "graph/extra.h"

#include <math.h>

static void norm(const real *restrict x, const real *restrict w, const real *restrict b, int64_t n,
                 real eps, real *restrict y, real *mean, real *rstd)
{
    real sum = 0, square = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += x[i];
    real m = sum / (real)n;
#pragma omp simd reduction(+ : square)
    for (int64_t i = 0; i < n; i++) square += (x[i] - m) * (x[i] - m);
    real s = (real)(1 / sqrt((double)(square / (real)n + eps)));
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * s * w[i] + b[i];
    *mean = m;
    *rstd = s;
}

static void cpu(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    const real *x = v->data, *w = a->in[1].data, *b = a->in[2].data;
    real *y = a->out[0].data, *mean = a->out[1].data, *rstd = a->out[2].data;
    int64_t n = v->size[v->n - 1], from, to;
    sk_share(a, sk_span(v, 0, v->n - 1), &from, &to);
    for (int64_t r = from; r < to; r++)
        norm(x + r * n, w, b, n, (real)a->attr[0], y + r * n, mean + r, rstd + r);
}

static double flops(const sk_args *a) { return 8 * (double)sk_count(&a->in[0]); }

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    sk_tensor *x = y->in[0], *w = y->in[1], *mean = y->out[1], *rstd = y->out[2];
    if (!dy[0]) return;
    dx[0] = sk_apply(g, "layernorm_grad_x", .in = {x, w, mean, rstd, dy[0]})->out[0];
    sk_node *p = sk_apply(g, "layernorm_grad_w", .in = {x, mean, rstd, dy[0]});
    dx[1] = p->out[0];
    dx[2] = p->out[1];
}

static sk_tensor *sample(SK_EXTRA_ARGS)
{
    (void)dx;
    if (i == 2) return sk_sum_samples(g, dy[0], y->letters_in[i]);
    const char *x = sk_rows_marked(g, y->letters_in[0], y->letters_in[i]);
    const char *row = sk_rows_marked(g, y->letters_out[1], "");
    char *dims =
        sk_print(g->arena, "%s,%s,%s,%s->%c%s", x, row, row, x, g->batch, y->letters_in[i]);
    return sk_apply(g, "norm_samples", .in = {y->in[0], y->out[1], y->out[2], dy[0]}, .dims = dims)
        ->out[0];
}

static const sk_extra_rules extra = {.sample = sample};

static const sk_sample samples[] = {
    {.in = {"b2t3c8", "c8", "c8"}, .attr = {1e-5}},
    {.in = {"b3t2k2c37", "c37", "c37"}, .attr = {1e-5}},
    {.in = {"c5", "c5", "c5"}, .attr = {1e-3}},
    {.in = {0}},
};

const sk_op sk_op_layernorm = {
    .name = "layernorm",
    .doc = "layer normalisation with weight and bias; also gives mean and 1/deviation",
    .dims = "*c!,c!,c!->*c,*,*",
    .n_in = 3,
    .n_out = 3,
    .types = "xxx>xff",
    .flags = SK_OP_CHEAP,
    .stats = 6,
    .grad = grad,
    .extra = &extra,
    .no_grad = 6,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
