/* softmax_grad.c - dx = scale y (dy - sum of y dy along the row), of y = softmax(scale x). */
#include "graph/graph.h"

static void cpu(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    int64_t n = v->size[v->n - 1], from, to;
    real scale = (real)a->attr[0];
    sk_share(a, sk_span(v, 0, v->n - 1), &from, &to);
    for (int64_t r = from; r < to; r++) {
        const real *y = (const real *)v->data + r * n, *dy = (const real *)a->in[1].data + r * n;
        real *dx = (real *)a->out[0].data + r * n, sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) sum += y[i] * dy[i];
#pragma omp simd
        for (int64_t i = 0; i < n; i++) dx[i] = scale * y[i] * (dy[i] - sum);
    }
}

static double flops(const sk_args *a) { return 5 * (double)sk_count(&a->in[0]); }

static const sk_sample samples[] = {
    {.in = {"b2h2t5s5", "b2h2t5s5"}, .attr = {0.5}},
    {.in = {"b3t4s37", "b3t4s37"}, .attr = {2}},
    {.in = {"s7", "s7"}, .attr = {1}},
    {.in = {0}},
};

const sk_op sk_op_softmax_grad = {
    .name = "softmax_grad",
    .doc = "gradient of softmax, from its result",
    .dims = "*s!,*s!->*s",
    .n_in = 2,
    .reuse = 2,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
