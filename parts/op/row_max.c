/* row_max.c - the largest element of each row; -infinity for a shard without columns.
 *
 * The zero that is added turns -0 into 0, so that it does not matter which of the two a shard saw
 * first. */
#include "graph/graph.h"
#include "kernel/cpu/vecmath.h"

static void cpu(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    real *y = a->out[0].data;
    int64_t n = v->size[v->n - 1], from, to;
    sk_share(a, sk_count(&a->out[0]), &from, &to);
    for (int64_t r = from; r < to; r++) y[r] = sk_largest((const real *)v->data + r * n, n) + 0;
}

static double flops(const sk_args *a) { return (double)sk_count(&a->in[0]); }

static void shape(const sk_args *a, sk_kernel_shape *s)
{
    (void)a;
    s->kind = SK_KERNEL_LOSS;
}

static const sk_sample samples[] = {
    {.in = {"b2t3v8"}}, {.in = {"b3v37"}}, {.in = {"v5"}}, {.in = {0}}};

const sk_op sk_op_row_max = {
    .name = "row_max",
    .doc = "largest element of each row",
    .dims = "*v->*",
    .n_in = 1,
    .types = "x>f",
    .flags = SK_OP_MAX,
    .stats = 1,
    .flops = flops,
    .shape = shape,
    .cpu = cpu,
    .samples = samples,
};
