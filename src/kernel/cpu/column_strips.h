/* column_strips.h - sums over the rows of one or more operands, column by column.
 *
 * Threads own columns and take them in strips, so that a strip's sums stay in L1.  Rows are summed
 * in blocks and the blocks' sums added, so that the rounding error grows with the square root of
 * the number of rows.  In canonical order the blocks begin anew in every reduction block of the
 * first dim, and the sums of the reduction blocks are added in pairs.
 *
 *     static void sum_rows(const sk_strip *s, int64_t r, int64_t end, real *sum) {...}
 *     sk_sum_strips(a, sum_rows, SK_SUM_COLUMNS);
 *
 * The dims that the first result lacks are the first ones of the first operand. */
#ifndef SK_KERNEL_CPU_COLUMN_STRIPS_H
#define SK_KERNEL_CPU_COLUMN_STRIPS_H

#include "kernel/cpu/vecmath.h"

enum { SK_STRIP_ROWS = 64 }; /* rows per block */

typedef struct sk_strip sk_strip;

/* Writes the sums over rows [r, end): those of n columns for each result, one result behind the
 * other. */
typedef void sk_strip_sum(const sk_strip *s, int64_t r, int64_t end, real *sum);

struct sk_strip {
    const sk_args *a;
    sk_strip_sum *sum_rows;
    int64_t at, n; /* the first column; columns */
    int64_t cols;  /* between two rows of an operand */
    int64_t inner; /* rows of one place along the first dim */
};

static inline sk_strip sk_strip_of(const sk_args *a, sk_strip_sum *sum_rows)
{
    const sk_view *x = &a->in[0];
    int64_t cols = sk_count(&a->out[0]);
    return (sk_strip){a, sum_rows, .cols = cols, .inner = sk_span(x, 1, x->n - a->out[0].n)};
}

/* y[k] += rows [r, rows) of result k. */
static inline void sk_strip_add(const sk_strip *s, int64_t r, int64_t rows, real *const *y)
{
    real sum[SK_SUM_COLUMNS];
    for (; r < rows; r += SK_STRIP_ROWS) {
        s->sum_rows(s, r, r + SK_STRIP_ROWS < rows ? r + SK_STRIP_ROWS : rows, sum);
        for (int k = 0; k < s->a->n_out; k++)
            for (int64_t c = 0; c < s->n; c++) y[k][c] += sum[k * s->n + c];
    }
}

/* An sk_sum_block: places [from, to) of the first dim. */
static inline void sk_strip_block(const void *strip, int64_t from, int64_t to, real *y)
{
    const sk_strip *s = strip;
    real *of[SK_MAX_OUT];
    int64_t first = from * s->inner, rows = to * s->inner, next = first + SK_STRIP_ROWS;
    for (int k = 0; k < s->a->n_out; k++) of[k] = y + k * s->n;
    s->sum_rows(s, first, next < rows ? next : rows, y);
    if (next < rows) sk_strip_add(s, next, rows, of);
}

static inline void sk_sum_strip(const sk_strip *s)
{
    const sk_args *a = s->a;
    const sk_view *x = &a->in[0];
    int goes = x->n - a->out[0].n, n_out = a->n_out;
    real *y[SK_MAX_OUT], sum[SK_SUM_COLUMNS];
    int64_t border[SK_REDUCTION_BLOCKS_MAX + 1];
    for (int k = 0; k < n_out; k++) y[k] = (real *)a->out[k].data + s->at;
    if (goes && x->cells[0]) {
        int blocks = sk_view_reduction_blocks(x, 0, border);
        sk_sum_blocks(sk_strip_block, s, border, blocks, sum, n_out * s->n);
        for (int k = 0; k < n_out; k++) sk_sum_put(y[k], sum + k * s->n, s->n, a->add >> k & 1);
        return;
    }
    for (int k = 0; k < n_out; k++)
        if (!(a->add >> k & 1)) memset(y[k], 0, (size_t)s->n * sizeof(real));
    sk_strip_add(s, 0, sk_span(x, 0, goes), y);
}

/* The results of an op.  width: columns of a strip; times the results at most SK_SUM_COLUMNS. */
static inline void sk_sum_strips(const sk_args *a, sk_strip_sum *sum_rows, int64_t width)
{
    sk_strip s = sk_strip_of(a, sum_rows);
    int64_t to;
    for (sk_share(a, s.cols, &s.at, &to); s.at < to; s.at += width) {
        s.n = to - s.at < width ? to - s.at : width;
        sk_sum_strip(&s);
    }
}

#endif
