/* rmsnorm_grad_x.c - dx = rstd * (g - xhat * mean(g * xhat)), where g = w * dy, xhat = x * rstd. */
#include "graph/graph.h"

static void cpu(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    const real *w = a->in[1].data, *rstd = a->in[2].data;
    int64_t n = v->size[v->n - 1], from, to;
    sk_share(a, sk_span(v, 0, v->n - 1), &from, &to);
    for (int64_t r = from; r < to; r++) {
        const real *x = (const real *)v->data + r * n, *dy = (const real *)a->in[3].data + r * n;
        real *dx = (real *)a->out[0].data + r * n, dot = 0, s = rstd[r];
#pragma omp simd reduction(+ : dot)
        for (int64_t i = 0; i < n; i++) dot += w[i] * dy[i] * x[i];
        real slope = dot / (real)n * s * s;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) dx[i] = s * (w[i] * dy[i] - x[i] * slope);
    }
}

static double flops(const sk_args *a) { return 7 * (double)sk_count(&a->in[0]); }

static const sk_sample samples[] = {
    {.in = {"b2t3c8", "c8", "b2t3", "b2t3c8"}},
    {.in = {"b3t2k2c37", "c37", "b3t2k2", "b3t2k2c37"}},
    {.in = {"c5", "c5", "", "c5"}},
    {.in = {0}},
};

const sk_op sk_op_rmsnorm_grad_x = {
    .name = "rmsnorm_grad_x",
    .doc = "gradient of rmsnorm with respect to its input",
    .dims = "*c!,c!,*,*c!->*c",
    .n_in = 4,
    .types = "xxfx>x",
    .reuse = 1 | 8,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
