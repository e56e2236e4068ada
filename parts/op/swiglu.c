/* swiglu.c - y = silu(a) * b, the gate of Shazeer 2020. */
#include "graph/graph.h"
#include "kernel/cpu/vecmath.h"

static void cpu(const sk_args *a)
{
    const real *gate = a->in[0].data, *up = a->in[1].data;
    real *y = a->out[0].data;
    int64_t from, to;
    sk_share(a, sk_count(&a->out[0]), &from, &to);
#pragma omp simd
    for (int64_t i = from; i < to; i++) y[i] = gate[i] / (1 + sk_exp(-gate[i])) * up[i];
}

static double flops(const sk_args *a) { return 5 * (double)sk_count(&a->out[0]); }

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    sk_node *d = sk_apply(g, "swiglu_grad", .in = {y->in[0], y->in[1], dy[0]});
    dx[0] = d->out[0];
    dx[1] = d->out[1];
}

static const sk_sample samples[] = {
    {.in = {"b2t3f8", "b2t3f8"}},
    {.in = {"f67", "f67"}},
    {.in = {0}},
};

const sk_op sk_op_swiglu = {
    .name = "swiglu",
    .doc = "silu(a) * b, element by element",
    .dims = "*,*->*",
    .n_in = 2,
    .reuse = 1 | 2,
    .flags = SK_OP_CHEAP,
    .grad = grad,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
