/* sum_squares.c - the sum over the first letters of squares: "bcf->cf".  One pass over the operand,
 * where a product and a sum take three: it is for operands as large as gradients of samples.
 * The order of adding is that of kernel/cpu/column_strips.h. */
#include "graph/graph.h"
#include "kernel/cpu/column_strips.h"

#include <math.h>

#define FMA _Generic((real)0, float : fmaf, double : fma)

static void sum_rows(const sk_strip *s, int64_t r, int64_t end, real *sum)
{
    const real *first = (const real *)s->a->in[0].data + s->at;
    int64_t n = s->n;
    memset(sum, 0, (size_t)n * sizeof(real));
    for (; r < end; r++) {
        const real *restrict x = first + r * s->cols;
#pragma omp simd
        for (int64_t c = 0; c < n; c++) sum[c] = FMA(x[c], x[c], sum[c]);
    }
}

/* A strip's sum is complete before it is added to the result, in fast order too: sums over some
 * samples first and others later differ by one rounding a call. */
static void cpu(const sk_args *a)
{
    enum { WIDTH = SK_SUM_COLUMNS };
    const sk_view *x = &a->in[0];
    int64_t to, border[SK_REDUCTION_BLOCKS_MAX + 1] = {0, 1};
    int blocks = x->n > a->out[0].n ? sk_view_reduction_blocks(x, 0, border) : 1;
    real sum[WIDTH];
    sk_strip s = sk_strip_of(a, sum_rows);
    for (sk_share(a, s.cols, &s.at, &to); s.at < to; s.at += WIDTH) {
        s.n = to - s.at < WIDTH ? to - s.at : WIDTH;
        sk_sum_blocks(sk_strip_block, &s, border, blocks, sum, s.n);
        sk_sum_put((real *)a->out[0].data + s.at, sum, s.n, a->add & 1);
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
