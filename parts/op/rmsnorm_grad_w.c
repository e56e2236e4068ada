/* rmsnorm_grad_w.c - dw = sum of dy * x * rstd over all rows.
 *
 * Threads own columns.  Rows are summed in blocks and the blocks' sums added, so
 * that the rounding error grows with the square root of the number of rows. */
#include "graph/graph.h"

enum { STRIP = 512, BLOCK = 64 }; /* columns whose sums lie in L1 together; rows per block */

static void strip(const sk_args *a, int64_t from, int64_t n)
{
    const sk_view *v = &a->in[0];
    const real *rstd = a->in[1].data;
    int64_t rows = sk_span(v, 0, v->n - 1), cols = v->size[v->n - 1];
    real *dw = (real *)a->out[0].data + from, sum[STRIP];
    if (!(a->add & 1)) memset(dw, 0, (size_t)n * sizeof(real));
    for (int64_t r = 0; r < rows;) {
        int64_t end = r + BLOCK < rows ? r + BLOCK : rows;
        memset(sum, 0, (size_t)n * sizeof(real));
        for (; r < end; r++) {
            const real *restrict x = (const real *)v->data + r * cols + from;
            const real *restrict dy = (const real *)a->in[2].data + r * cols + from;
            real s = rstd[r];
#pragma omp simd
            for (int64_t c = 0; c < n; c++) sum[c] += dy[c] * (x[c] * s);
        }
        for (int64_t c = 0; c < n; c++) dw[c] += sum[c];
    }
}

static void cpu(const sk_args *a)
{
    int64_t from, to;
    sk_share(a, a->out[0].size[0], &from, &to);
    for (; from < to; from += STRIP) strip(a, from, to - from < STRIP ? to - from : STRIP);
}

static double flops(const sk_args *a) { return 3 * (double)sk_count(&a->in[0]); }

static const sk_sample samples[] = {
    {.in = {"b2t3c8", "b2t3", "b2t3c8"}},
    {.in = {"b7t3k5c37", "b7t3k5", "b7t3k5c37"}},
    {.in = {"c5", "", "c5"}},
    {.in = {"b1c700", "b1", "b1c700"}},
    {.in = {0}},
};

const sk_op sk_op_rmsnorm_grad_w = {
    .name = "rmsnorm_grad_w",
    .doc = "gradient of rmsnorm with respect to its weight",
    .dims = "*c,*,*c->c",
    .n_in = 3,
    .flags = SK_OP_ADDS,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
