/* relu_grad.c - dy where relu's result (or its input) is above 0, else 0. */
#include "graph/graph.h"

static void cpu(const sk_args *a)
{
    const real *y = a->in[0].data, *dy = a->in[1].data;
    real *dx = a->out[0].data;
    int64_t from, to;
    sk_share(a, sk_count(&a->out[0]), &from, &to);
#pragma omp simd
    for (int64_t i = from; i < to; i++) dx[i] = y[i] > 0 ? dy[i] : 0;
}

static const sk_sample samples[] = {
    {.in = {"b2t3c5", "b2t3c5"}},
    {.in = {"n67", "n67"}},
    {.in = {0}},
};

const sk_op sk_op_relu_grad = {
    .name = "relu_grad",
    .doc = "gradient of relu, from its result or its input",
    .dims = "*,*->*",
    .n_in = 2,
    .signs = 1,
    .reuse = 1 | 2,
    .cpu = cpu,
    .samples = samples,
};
