/* relu.c - the larger of x and 0. */
#include "graph/graph.h"

static void cpu(const sk_args *a)
{
    const real *x = a->in[0].data;
    real *y = a->out[0].data;
    int64_t from, to;
    sk_share(a, sk_count(&a->out[0]), &from, &to);
#pragma omp simd
    for (int64_t i = from; i < to; i++) y[i] = x[i] < 0 ? 0 : x[i]; /* NaN stays NaN */
}

/* By the result and not by x, so that y may take over x's memory. */
static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    dx[0] = sk_apply(g, "relu_grad", .in = {y->out[0], dy[0]})->out[0];
}

static const sk_sample samples[] = {{.in = {"b2t3c5"}}, {.in = {"n67"}}, {.in = {0}}};

const sk_op sk_op_relu = {
    .name = "relu",
    .doc = "max(x, 0), element by element",
    .dims = "*->*",
    .n_in = 1,
    .flags = SK_OP_ZEROS,
    .reuse = 1,
    .grad = grad,
    .cpu = cpu,
    .samples = samples,
};
