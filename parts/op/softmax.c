/* softmax.c - exp(scale x) of each row, divided by its sum.
 *
 * attr: scale, and 1 if row t of the last two dims sees columns 0 to t alone (causal attention over
 * scores of queries and keys); the others become 0.  The gradient reads the result only, so scores
 * need not be kept.  The op attention does the same without ever having the scores in memory; this
 * one is for models that compute scores themselves. */
#include "graph/graph.h"
#include "kernel/cpu/vecmath.h"

static void row(const real *x, int64_t n, int64_t sees, real scale, real *y)
{
    real sum = 0;
#pragma omp simd
    for (int64_t i = 0; i < sees; i++) y[i] = x[i] * scale;
    real top = sk_largest(y, sees);
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < sees; i++) {
        y[i] = sk_exp(y[i] - top);
        sum += y[i];
    }
    real part = 1 / sum;
#pragma omp simd
    for (int64_t i = 0; i < sees; i++) y[i] *= part;
    for (int64_t i = sees; i < n; i++) y[i] = 0;
}

static void cpu(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    int64_t n = v->size[v->n - 1], rows = v->size[v->n - 2], first = v->at[v->n - 2], from, to;
    bool causal = a->attr[1] != 0;
    sk_share(a, sk_span(v, 0, v->n - 1), &from, &to);
    for (int64_t r = from; r < to; r++) {
        int64_t sees = causal ? first + r % rows + 1 : n;
        row((const real *)v->data + r * n, n, sees < n ? sees : n, (real)a->attr[0],
            (real *)a->out[0].data + r * n);
    }
}

/* Which row is which is known by its place. */
static void infer(sk_graph *g, const sk_node *n)
{
    const char *letters = n->letters_in[0];
    if (n->attr[1] != 0 && g->dealt && strchr(letters, g->dealt))
        sk_graph_fail(g, SK_ECONF,
                      "softmax: rows of '%c' see what is before them, and the layout deals '%c' in "
                      "zigzag; use the op attention, or split another letter (%s)",
                      letters[strlen(letters) - 2], g->dealt, n->where);
}

static double flops(const sk_args *a) { return 6 * (double)sk_count(&a->in[0]); }

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    dx[0] = sk_apply(g, "softmax_grad", .in = {y->out[0], dy[0]}, .attr = {y->attr[0]})->out[0];
}

static const sk_sample samples[] = {
    {.in = {"b2h2t5s5"}, .attr = {0.5, 1}},
    {.in = {"b2h2t5s5"}, .attr = {1}},
    {.in = {"b3t4s37"}, .attr = {2}},
    {.in = {"t9s9"}, .attr = {1, 1}},
    {.in = {0}},
};

const sk_op sk_op_softmax = {
    .name = "softmax",
    .doc = "rows of exp(scale x) with the sum 1; causal or not",
    .dims = "*ts!->*ts",
    .n_in = 1,
    .flags = SK_OP_RECOMPUTE,
    .reuse = 1,
    .infer = infer,
    .grad = grad,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
