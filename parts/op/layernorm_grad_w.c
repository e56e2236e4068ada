/* layernorm_grad_w.c - dw = sum of dy * xhat, db = sum of dy, over all rows.
 *
 * Threads own columns.  Rows are summed in blocks and the blocks' sums added, so
 * that the rounding error grows with the square root of the number of rows. */
#include "graph/graph.h"

enum { STRIP = 512, BLOCK = 64 }; /* columns whose sums lie in L1 together; rows per block */

static void strip(const sk_args *a, int64_t from, int64_t n)
{
    const sk_view *v = &a->in[0];
    const real *mean = a->in[1].data, *rstd = a->in[2].data;
    int64_t rows = sk_span(v, 0, v->n - 1), cols = v->size[v->n - 1];
    real *dw = (real *)a->out[0].data + from, *db = (real *)a->out[1].data + from;
    real sw[STRIP], sb[STRIP];
    if (!(a->add & 1)) memset(dw, 0, (size_t)n * sizeof(real));
    if (!(a->add & 2)) memset(db, 0, (size_t)n * sizeof(real));
    for (int64_t r = 0; r < rows;) {
        int64_t end = r + BLOCK < rows ? r + BLOCK : rows;
        memset(sw, 0, (size_t)n * sizeof(real));
        memset(sb, 0, (size_t)n * sizeof(real));
        for (; r < end; r++) {
            const real *restrict x = (const real *)v->data + r * cols + from;
            const real *restrict dy = (const real *)a->in[3].data + r * cols + from;
            real m = mean[r], s = rstd[r];
#pragma omp simd
            for (int64_t c = 0; c < n; c++) {
                sw[c] += dy[c] * ((x[c] - m) * s);
                sb[c] += dy[c];
            }
        }
        for (int64_t c = 0; c < n; c++) dw[c] += sw[c];
        for (int64_t c = 0; c < n; c++) db[c] += sb[c];
    }
}

static void cpu(const sk_args *a)
{
    int64_t from, to;
    sk_share(a, a->out[0].size[0], &from, &to);
    for (; from < to; from += STRIP) strip(a, from, to - from < STRIP ? to - from : STRIP);
}

static double flops(const sk_args *a) { return 5 * (double)sk_count(&a->in[0]); }

static const sk_sample samples[] = {
    {.in = {"b2t3c8", "b2t3", "b2t3", "b2t3c8"}},
    {.in = {"b7t3k5c37", "b7t3k5", "b7t3k5", "b7t3k5c37"}},
    {.in = {"c5", "", "", "c5"}},
    {.in = {"b1c700", "b1", "b1", "b1c700"}},
    {.in = {0}},
};

const sk_op sk_op_layernorm_grad_w = {
    .name = "layernorm_grad_w",
    .doc = "gradient of layernorm with respect to its weight and bias",
    .dims = "*c,*,*,*c->c,c",
    .n_in = 4,
    .n_out = 2,
    .flags = SK_OP_ADDS,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
