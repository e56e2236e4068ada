/* norm_samples.c - the gradient of the weight of a norm for each sample: the sum of
 * dy * (x - mean) * rstd over the rows of the sample.
 *
 * attr[0] 1: without the mean (rmsnorm); then the second operand is not read.  Rows of a sample are
 * not split, and are added one after the other: threads own columns. */
#include "graph/graph.h"

static void one_row(const sk_args *a, int64_t r, int64_t cols, int64_t from, int64_t to, real *y)
{
    const real *restrict x = (const real *)a->in[0].data + r * cols;
    const real *restrict dy = (const real *)a->in[3].data + r * cols;
    real m = a->attr[0] != 0 ? 0 : ((const real *)a->in[1].data)[r];
    real k = ((const real *)a->in[2].data)[r];
#pragma omp simd
    for (int64_t c = from; c < to; c++) y[c] += dy[c] * ((x[c] - m) * k);
}

static void cpu(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    int64_t cols = v->size[v->n - 1], rows = sk_span(v, 1, v->n - 1), from, to;
    sk_share(a, cols, &from, &to);
    for (int64_t b = 0; b < v->size[0]; b++) {
        real *y = (real *)a->out[0].data + b * cols;
        memset(y + from, 0, (size_t)(to - from) * sizeof(real));
        for (int64_t r = 0; r < rows; r++) one_row(a, b * rows + r, cols, from, to, y);
    }
}

static double flops(const sk_args *a) { return 4 * (double)sk_count(&a->in[0]); }

static const sk_sample samples[] = {
    {.in = {"b3t5c7", "b3t5", "b3t5", "b3t5c7"}, .dims = "bt!c,bt!,bt!,bt!c->bc"},
    {.in = {"b3t5c40", "b3t5", "b3t5", "b3t5c40"}, .dims = "bt!c,bt!,bt!,bt!c->bc", .attr = {1}},
    {.in = {"b2t3k2c5", "b2t3k2", "b2t3k2", "b2t3k2c5"}, .dims = "bt!k!c,bt!k!,bt!k!,bt!k!c->bc"},
    {.in = {"b4c3", "b4", "b4", "b4c3"}, .dims = "bc,b,b,bc->bc"},
    {.in = {0}},
};

const sk_op sk_op_norm_samples = {
    .name = "norm_samples",
    .doc = "gradient of a norm with respect to its weight, for each sample",
    .n_in = 4,
    .types = "xffx>f",
    .stats = 1,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
