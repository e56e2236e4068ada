/* sum_squares.c - the sum over the first letters of squares: "bcf->cf".  One pass over the operand,
 * where a product and a sum take three: it is for operands as large as gradients of samples.
 *
 * Threads own columns; rows are summed in blocks, and the blocks' sums are added.  In canonical
 * order the blocks begin anew in every reduction block of the first letter, as in sum.c. */
#include "graph/graph.h"
#include "kernel/cpu/vecmath.h"

#include <math.h>

#define FMA _Generic((real)0, float : fmaf, double : fma)

enum { STRIP = SK_SUM_COLUMNS, BLOCK = 64 }; /* columns at a time; rows per block */

typedef struct strip {
    const real *x;   /* its first column */
    int64_t cols, n; /* between two rows of x; columns of mine */
    int64_t inner;   /* rows of one place along the first dim */
} strip;

static void one_block(const strip *s, int64_t r, int64_t end, real *sum)
{
    int64_t n = s->n;
    memset(sum, 0, (size_t)n * sizeof(real));
    for (; r < end; r++) {
        const real *restrict x = s->x + r * s->cols;
#pragma omp simd
        for (int64_t c = 0; c < n; c++) sum[c] = FMA(x[c], x[c], sum[c]);
    }
}

/* Places [from, to) of the first dim. */
static void one_cell(const void *how, int64_t from, int64_t to, real *y)
{
    const strip *s = how;
    real sum[STRIP];
    int64_t r = from * s->inner, rows = to * s->inner;
    one_block(s, r, r + BLOCK < rows ? r + BLOCK : rows, y);
    for (r += BLOCK; r < rows; r += BLOCK) {
        one_block(s, r, r + BLOCK < rows ? r + BLOCK : rows, sum);
        for (int64_t c = 0; c < s->n; c++) y[c] += sum[c];
    }
}

static void cpu(const sk_args *a)
{
    const sk_view *x = &a->in[0];
    int goes = x->n - a->out[0].n;
    int64_t cols = sk_count(&a->out[0]), from, to, border[SK_REDUCTION_BLOCKS_MAX + 1] = {0, 1};
    int cells = goes ? sk_view_reduction_blocks(x, 0, border) : 1;
    real sum[STRIP];
    sk_share(a, cols, &from, &to);
    for (; from < to; from += STRIP) {
        strip s = {.x = (const real *)x->data + from, .cols = cols, .inner = sk_span(x, 1, goes)};
        s.n = to - from < STRIP ? to - from : STRIP;
        sk_sum_blocks(one_cell, &s, border, cells, sum, s.n);
        sk_sum_put((real *)a->out[0].data + from, sum, s.n, a->add & 1);
    }
}

static void infer(sk_graph *g, const sk_node *n)
{
    const char *x = n->letters_in[0], *y = n->letters_out[0];
    if (strlen(y) > strlen(x) || strcmp(x + strlen(x) - strlen(y), y))
        sk_graph_fail(g, SK_ECONF, "sum_squares: \"%s\" is not like \"bcf->cf\" (%s)", n->dims,
                      n->where);
}

static double flops(const sk_args *a) { return 2 * (double)sk_count(&a->in[0]); }

static const sk_sample samples[] = {
    {.in = {"b5c37"}, .dims = "bc->c"},
    {.in = {"b3c2f5"}, .dims = "bcf->cf"},
    {.in = {"b37t5c41"}, .dims = "btc->c"},
    {.in = {"b2c1100"}, .dims = "bc->c"},
    {.in = {"b3t5"}, .dims = "bt->"},
    {.in = {"c7"}, .dims = "c->c"},
    {.in = {0}},
};

const sk_op sk_op_sum_squares = {
    .name = "sum_squares",
    .doc = "the sum of squares over the first letters, which the result lacks",
    .n_in = 1,
    .types = "x>f",
    .flags = SK_OP_ADDS,
    .infer = infer,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
