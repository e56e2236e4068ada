/* layernorm_grad_w.c - dw = sum of dy * xhat, db = sum of dy, over all rows.
 *
 * Threads own columns.  Rows are summed in blocks and the blocks' sums added, so
 * that the rounding error grows with the square root of the number of rows.  In canonical order
 * the blocks begin anew in every reduction block of the first dim, and the sums of the reduction
 * blocks are added in pairs. */
#include "graph/graph.h"
#include "kernel/cpu/vecmath.h"

enum { STRIP = SK_SUM_COLUMNS / 2, BLOCK = 64 }; /* columns at a time; rows per block */

typedef struct strip {
    const real *x, *mean, *rstd, *dy; /* x and dy at its first column */
    int64_t cols;                     /* between two rows */
    int64_t n;                        /* columns of mine */
    int64_t inner;                    /* rows of one place along the first dim */
} strip;

/* dw, db = rows [r, end) */
static void one_block(const strip *s, int64_t r, int64_t end, real *restrict dw, real *restrict db)
{
    int64_t n = s->n;
    memset(dw, 0, (size_t)n * sizeof(real));
    memset(db, 0, (size_t)n * sizeof(real));
    for (; r < end; r++) {
        const real *restrict x = s->x + r * s->cols, *restrict dy = s->dy + r * s->cols;
        real m = s->mean[r], k = s->rstd[r];
#pragma omp simd
        for (int64_t c = 0; c < n; c++) {
            dw[c] += dy[c] * ((x[c] - m) * k);
            db[c] += dy[c];
        }
    }
}

/* dw, db += rows [r, rows) */
static void add_rows(const strip *s, int64_t r, int64_t rows, real *dw, real *db)
{
    real sw[STRIP], sb[STRIP];
    for (; r < rows; r += BLOCK) {
        one_block(s, r, r + BLOCK < rows ? r + BLOCK : rows, sw, sb);
        for (int64_t c = 0; c < s->n; c++) dw[c] += sw[c];
        for (int64_t c = 0; c < s->n; c++) db[c] += sb[c];
    }
}

/* y: dw and, behind it, db */
static void one_cell(const void *how, int64_t from, int64_t to, real *y)
{
    const strip *s = how;
    int64_t first = from * s->inner, rows = to * s->inner, next = first + BLOCK;
    one_block(s, first, next < rows ? next : rows, y, y + s->n);
    if (next < rows) add_rows(s, next, rows, y, y + s->n);
}

static void one_strip(const sk_args *a, const strip *s, real *dw, real *db)
{
    const sk_view *v = &a->in[0];
    real sum[2 * STRIP];
    int64_t border[SK_REDUCTION_BLOCKS_MAX + 1], n = s->n;
    if (v->n > 1 && v->cells[0]) {
        sk_sum_blocks(one_cell, s, border, sk_view_reduction_blocks(v, 0, border), sum, 2 * n);
        sk_sum_put(dw, sum, n, a->add & 1);
        sk_sum_put(db, sum + n, n, a->add & 2);
        return;
    }
    if (!(a->add & 1)) memset(dw, 0, (size_t)n * sizeof(real));
    if (!(a->add & 2)) memset(db, 0, (size_t)n * sizeof(real));
    add_rows(s, 0, sk_span(v, 0, v->n - 1), dw, db);
}

static void cpu(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    const real *x = v->data, *mean = a->in[1].data, *rstd = a->in[2].data, *dy = a->in[3].data;
    real *dw = a->out[0].data, *db = a->out[1].data;
    int64_t cols = v->size[v->n - 1], inner = sk_span(v, 1, v->n - 1), from, to;
    sk_share(a, cols, &from, &to);
    for (; from < to; from += STRIP) {
        int64_t n = to - from < STRIP ? to - from : STRIP;
        strip s = {x + from, mean, rstd, dy + from, cols, n, inner};
        one_strip(a, &s, dw + from, db + from);
    }
}

static double flops(const sk_args *a) { return 5 * (double)sk_count(&a->in[0]); }

static const sk_sample samples[] = {
    {.in = {"b2t3c8", "b2t3", "b2t3", "b2t3c8"}},
    {.in = {"b7t3k5c37", "b7t3k5", "b7t3k5", "b7t3k5c37"}},
    {.in = {"b37t5c21", "b37t5", "b37t5", "b37t5c21"}},
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
    .types = "xffx>ff",
    .flags = SK_OP_ADDS,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
