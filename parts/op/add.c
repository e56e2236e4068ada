/* add.c - the sum of two tensors; autodiff joins gradients with it. */
#include "graph/graph.h"

static void cpu(const sk_args *a)
{
    const real *x = a->in[0].data, *h = a->in[1].data;
    real *y = a->out[0].data;
    int64_t from, to;
    sk_share(a, sk_count(&a->out[0]), &from, &to);
    if (a->add & 1) {
#pragma omp simd
        for (int64_t i = from; i < to; i++) y[i] += x[i] + h[i];
        return;
    }
#pragma omp simd
    for (int64_t i = from; i < to; i++) y[i] = x[i] + h[i];
}

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    (void)g, (void)y;
    dx[0] = dx[1] = dy[0];
}

static const sk_sample samples[] = {
    {.in = {"b2t3c5", "b2t3c5"}},
    {.in = {"n67", "n67"}},
    {.in = {"", ""}},
    {.in = {0}},
};

const sk_op sk_op_add = {
    .name = "add",
    .doc = "a + b, element by element",
    .dims = "*,*->*",
    .n_in = 2,
    .flags = SK_OP_LINEAR | SK_OP_SUM | SK_OP_ADDS,
    .reuse = 1 | 2,
    .grad = grad,
    .cpu = cpu,
    .samples = samples,
};
