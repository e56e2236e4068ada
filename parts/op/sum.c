/* sum.c - the sum over the letters that the result leaves out.
 *
 * The call names the letters.  Keeping the last ones, "bthsd->hsd", is the
 * gradient of a bias and runs at memory speed: threads own columns, rows are
 * summed in blocks and the blocks' sums added, so that the rounding error grows
 * with the square root of the number of rows.  Every other pattern is walked
 * like an odometer. */
#include "graph/graph.h"

enum { STRIP = 1024, BLOCK = 64 }; /* columns whose sums lie in L1 together; rows per block */

static void strip(const sk_args *a, int64_t rows, int64_t cols, int64_t from, int64_t n)
{
    real *y = (real *)a->out[0].data + from, sum[STRIP];
    if (!(a->add & 1)) memset(y, 0, (size_t)n * sizeof(real));
    for (int64_t r = 0; r < rows;) {
        int64_t end = r + BLOCK < rows ? r + BLOCK : rows;
        memset(sum, 0, (size_t)n * sizeof(real));
        for (; r < end; r++) {
            const real *restrict x = (const real *)a->in[0].data + r * cols + from;
#pragma omp simd
            for (int64_t c = 0; c < n; c++) sum[c] += x[c];
        }
        for (int64_t c = 0; c < n; c++) y[c] += sum[c];
    }
}

static void infer(sk_graph *g, const sk_node *n)
{
    for (const char *p = n->letters_out[0]; *p; p++)
        if (!strchr(n->letters_in[0], *p))
            sk_graph_fail(g, SK_ECONF, "sum: '%c' in \"%s\" is not a letter of the operand (%s)",
                          *p, n->dims, n->where);
}

/* Letters of one side of "bthsd->hsd", without marks. */
static void side(const char *p, char letters[SK_MAX_DIM + 1])
{
    int n = 0;
    for (; *p && *p != '-'; p++)
        if (*p != '!') letters[n++] = *p;
    letters[n] = 0;
}

static void by_odometer(const sk_args *a, const char *in, const char *out)
{
    const sk_view *x = &a->in[0], *y = &a->out[0];
    int64_t n_sum = 1, from, to;
    for (int k = 0; k < x->n; k++)
        if (!strchr(out, in[k])) n_sum *= x->size[k];
    sk_share(a, sk_count(y), &from, &to);
    for (int64_t o = from; o < to; o++) {
        int64_t base = 0, rest = o;
        for (int k = y->n - 1; k >= 0; k--) {
            base += rest % y->size[k] * x->step[strchr(in, out[k]) - in];
            rest /= y->size[k];
        }
        double sum = a->add & 1 ? (double)((real *)y->data)[o] : 0;
        for (int64_t i = 0; i < n_sum; i++) {
            int64_t at = base;
            rest = i;
            for (int k = x->n - 1; k >= 0; k--) {
                if (strchr(out, in[k])) continue;
                at += rest % x->size[k] * x->step[k];
                rest /= x->size[k];
            }
            sum += (double)((const real *)x->data)[at];
        }
        ((real *)y->data)[o] = (real)sum;
    }
}

static void cpu(const sk_args *a)
{
    const sk_view *x = &a->in[0], *y = &a->out[0];
    char in[SK_MAX_DIM + 1], out[SK_MAX_DIM + 1];
    int64_t cols = sk_count(y), from, to;
    side(a->dims, in);
    side(strstr(a->dims, "->") + 2, out);
    if (strcmp(in + x->n - y->n, out)) {
        by_odometer(a, in, out);
        return;
    }
    sk_share(a, cols, &from, &to);
    for (; from < to; from += STRIP)
        strip(a, sk_span(x, 0, x->n - y->n), cols, from, to - from < STRIP ? to - from : STRIP);
}

static double flops(const sk_args *a) { return (double)sk_count(&a->in[0]); }

static const sk_sample samples[] = {
    {.in = {"b2t3h2s3d4"}, .dims = "bthsd->hsd"},
    {.in = {"b5t31c37"}, .dims = "btc->c"},
    {.in = {"c1100"}, .dims = "c->c"},
    {.in = {"b3t5"}, .dims = "bt->"},
    {.in = {"b3t5c7"}, .dims = "btc->cb"},
    {.in = {"b3t5c7"}, .dims = "btc->t"},
    {.in = {0}},
};

const sk_op sk_op_sum = {
    .name = "sum",
    .doc = "the sum over the letters missing in the result",
    .n_in = 1,
    .flags = SK_OP_LINEAR | SK_OP_ADDS,
    .infer = infer,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
