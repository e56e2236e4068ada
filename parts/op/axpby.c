/* axpby.c - a x + b y, element by element, with two constants; BLAS calls it so.  attr: a, b. */
#include "graph/graph.h"

enum { A, B };

static void cpu(const sk_args *args)
{
    const real *x = args->in[0].data, *y = args->in[1].data;
    real *z = args->out[0].data, a = (real)args->attr[A], b = (real)args->attr[B];
    int64_t from, to;
    sk_share(args, sk_count(&args->out[0]), &from, &to);
#pragma omp simd
    for (int64_t i = from; i < to; i++) z[i] = a * x[i] + b * y[i];
}

static void grad(sk_graph *g, sk_node *z, sk_tensor **dz, sk_tensor **dx)
{
    for (int i = 0; i < 2; i++)
        dx[i] = sk_apply(g, "axpby", .in = {dz[0], dz[0]}, .attr = {z->attr[i], 0})->out[0];
}

static const sk_sample samples[] = {
    {.in = {"b2t3f8", "b2t3f8"}, .attr = {2, -0.5}},
    {.in = {"n67", "n67"}, .attr = {0.25, 3}},
    {.in = {"", ""}, .attr = {1, 1}},
    {.in = {0}},
};

const sk_op sk_op_axpby = {
    .name = "axpby",
    .doc = "a x + b y with two constants, element by element",
    .dims = "*,*->*",
    .n_in = 2,
    .flags = SK_OP_LINEAR,
    .types = "xx>f",
    .reuse = 1 | 2,
    .grad = grad,
    .cpu = cpu,
    .samples = samples,
};
