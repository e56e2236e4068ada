/* embedding_samples.c - the gradient of an embedding's table for each sample: rows of dy added to
 * the rows of the table that they came from.
 *
 * Every sample has a table of its own.  Ids of a sample are not split, and are added one after the
 * other: threads own columns. */
#include "graph/graph.h"

enum { GRAIN = 16 }; /* columns: one cache line */

static void one_sample(const sk_args *a, int64_t b, int64_t from, int64_t to)
{
    const sk_view *table = &a->out[0];
    int64_t words = table->size[1], cols = table->size[2], n = sk_span(&a->in[1], 1, a->in[1].n);
    const int32_t *id = (const int32_t *)a->in[1].data + b * n;
    real *dw = (real *)table->data + b * words * cols;
    for (int64_t r = 0; r < words; r++)
        memset(dw + r * cols + from, 0, (size_t)(to - from) * sizeof(real));
    for (int64_t i = 0; i < n; i++) {
        int64_t row = id[i] - table->at[1];
        if (row < 0 || row >= words) continue;
        const real *restrict g = (const real *)a->in[0].data + (b * n + i) * cols;
        real *restrict w = dw + row * cols;
#pragma omp simd
        for (int64_t c = from; c < to; c++) w[c] += g[c];
    }
}

static void cpu(const sk_args *a)
{
    int64_t cols = a->out[0].size[2], from, to;
    sk_share(a, (cols + GRAIN - 1) / GRAIN, &from, &to);
    from *= GRAIN;
    to = to * GRAIN < cols ? to * GRAIN : cols;
    for (int64_t b = 0; b < a->out[0].size[0] && from < to; b++) one_sample(a, b, from, to);
}

static double flops(const sk_args *a)
{
    return (double)sk_count(&a->in[0]) + (double)sk_count(&a->out[0]);
}

static const sk_sample samples[] = {
    {.in = {"b2t3c8", "b2t3%10"}, .dims = "bt!c,bt!->bvc", .fresh = "v10"},
    {.in = {"b3t2k2c37", "b3t2k2%5"}, .dims = "bt!k!c,bt!k!->bvc", .fresh = "v5"},
    {.in = {"b4c3", "b4%4"}, .dims = "bc,b->bvc", .fresh = "v4"},
    {.in = {0}},
};

const sk_op sk_op_embedding_samples = {
    .name = "embedding_samples",
    .doc = "gradient of embedding with respect to its table, for each sample",
    .n_in = 2,
    .types = "xi>f",
    .stats = 1,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
