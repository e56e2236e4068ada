/* layernorm_grad_x.c - dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), where g = w * dy. */
#include "graph/graph.h"

static void one_row(const real *x, const real *w, const real *dy, int64_t n, real mean, real rstd,
                    real *dx)
{
    real sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
    for (int64_t i = 0; i < n; i++) {
        real g = w[i] * dy[i];
        sum += g;
        dot += g * (x[i] - mean);
    }
    real shift = sum / (real)n, slope = dot / (real)n * rstd * rstd;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) dx[i] = rstd * (w[i] * dy[i] - shift - (x[i] - mean) * slope);
}

static void cpu(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    const real *x = v->data, *w = a->in[1].data, *mean = a->in[2].data, *rstd = a->in[3].data;
    const real *dy = a->in[4].data;
    real *dx = a->out[0].data;
    int64_t n = v->size[v->n - 1], from, to;
    sk_share(a, sk_span(v, 0, v->n - 1), &from, &to);
    for (int64_t r = from; r < to; r++)
        one_row(x + r * n, w, dy + r * n, n, mean[r], rstd[r], dx + r * n);
}

static double flops(const sk_args *a) { return 11 * (double)sk_count(&a->in[0]); }

static const sk_sample samples[] = {
    {.in = {"b2t3c8", "c8", "b2t3", "b2t3", "b2t3c8"}},
    {.in = {"b3t2k2c37", "c37", "b3t2k2", "b3t2k2", "b3t2k2c37"}},
    {.in = {"c5", "c5", "", "", "c5"}},
    {.in = {0}},
};

const sk_op sk_op_layernorm_grad_x = {
    .name = "layernorm_grad_x",
    .doc = "gradient of layernorm with respect to its input",
    .dims = "*c!,c!,*,*,*c!->*c",
    .n_in = 5,
    .types = "xxffx>x",
    .reuse = 1 | 16,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
