/* mul.c - the product of two tensors, element by element. */
#include "graph/graph.h"

static void cpu(const sk_args *a)
{
    const real *x = a->in[0].data, *h = a->in[1].data;
    real *y = a->out[0].data;
    int64_t from, to;
    sk_share(a, sk_count(&a->out[0]), &from, &to);
#pragma omp simd
    for (int64_t i = from; i < to; i++) y[i] = x[i] * h[i];
}

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    dx[0] = sk_apply(g, "mul", .in = {dy[0], y->in[1]})->out[0];
    dx[1] = sk_apply(g, "mul", .in = {dy[0], y->in[0]})->out[0];
}

static const sk_sample samples[] = {
    {.in = {"b2t3f8", "b2t3f8"}},
    {.in = {"n67", "n67"}},
    {.in = {"", ""}},
    {.in = {0}},
};

const sk_op sk_op_mul = {
    .name = "mul",
    .doc = "a * b, element by element",
    .dims = "*,*->*",
    .n_in = 2,
    .reuse = 1 | 2,
    .grad = grad,
    .cpu = cpu,
    .samples = samples,
};
