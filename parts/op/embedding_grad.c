/* embedding_grad.c - each row of dy added to the row of the table that it came from.
 *
 * Threads own columns, so that rows which occur twice are summed in the order
 * of the ids whatever the number of threads. */
#include "graph/graph.h"

enum { GRAIN = 16 }; /* columns: one cache line, so that threads do not share lines */

static void cpu(const sk_args *a)
{
    const sk_view *table = &a->out[0];
    const real *dy = a->in[0].data;
    const int32_t *id = a->in[1].data;
    real *dw = table->data;
    int64_t rows = table->size[0], cols = table->size[1], n = sk_count(&a->in[1]), from, to;
    sk_share(a, (cols + GRAIN - 1) / GRAIN, &from, &to);
    from *= GRAIN;
    to = to * GRAIN < cols ? to * GRAIN : cols;
    if (from >= to) return;
    for (int64_t r = 0; r < rows && !(a->add & 1); r++)
        memset(dw + r * cols + from, 0, (size_t)(to - from) * sizeof(real));
    for (int64_t i = 0; i < n; i++) {
        int64_t row = id[i] - table->at[0];
        if (row < 0 || row >= rows) continue;
        const real *restrict g = dy + i * cols;
        real *restrict w = dw + row * cols;
#pragma omp simd
        for (int64_t c = from; c < to; c++) w[c] += g[c];
    }
}

static double flops(const sk_args *a) { return (double)sk_count(&a->in[0]); }

static const sk_sample samples[] = {
    {.in = {"b2t3c8", "b2t3%10"}, .dims = "btc,bt->vc", .fresh = "v10"},
    {.in = {"b3t4c37", "b3t4%5"}, .dims = "btc,bt->vc", .fresh = "v5"},
    {.in = {"n1c3", "n1%4"}, .dims = "nc,n->vc", .fresh = "v4"},
    {.in = {0}},
};

const sk_op sk_op_embedding_grad = {
    .name = "embedding_grad",
    .doc = "gradient of embedding with respect to its table",
    .n_in = 2,
    .flags = SK_OP_ADDS,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
