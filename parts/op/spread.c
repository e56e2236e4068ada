/* spread.c - the elements repeated along letters that the operand lacks; the gradient of sum.
 *
 * The call names the letters, as in "b->bc"; new letters have a size in the graph already.  Every
 * element of the result is a copy, so the bits do not depend on how the result is split. */
#include "graph/graph.h"

static void infer(sk_graph *g, const sk_node *n)
{
    for (const char *p = n->letters_in[0]; *p; p++)
        if (!strchr(n->letters_out[0], *p))
            sk_graph_fail(g, SK_ECONF, "spread: '%c' in \"%s\" is not a letter of the result (%s)",
                          *p, n->dims, n->where);
}

/* Elements of the operand between neighbours along each dim of the result; 0 for a new letter. */
static void steps_of(const sk_args *a, int64_t step[SK_MAX_DIM])
{
    const char *in = a->dims, *out = strstr(a->dims, "->") + 2;
    for (int k = 0; *out; out++) {
        int d = 0;
        if (*out == '!') continue;
        step[k] = 0;
        for (const char *p = in; *p != '-'; p++) {
            if (*p == *out) step[k] = a->in[0].step[d];
            d += *p != '!';
        }
        k++;
    }
}

/* Where row r of the result begins in the operand. */
static int64_t row_at(const sk_view *y, const int64_t *step, int64_t r)
{
    int64_t at = 0;
    for (int k = y->n - 2; k >= 0; k--) {
        at += r % y->size[k] * step[k];
        r /= y->size[k];
    }
    return at;
}

static void cpu(const sk_args *a)
{
    const sk_view *v = &a->out[0];
    int64_t step[SK_MAX_DIM] = {0}, n = v->n ? v->size[v->n - 1] : 1, from, to;
    steps_of(a, step);
    int64_t last = v->n ? step[v->n - 1] : 0;
    sk_share(a, n ? sk_count(v) / n : 0, &from, &to);
    for (int64_t r = from; r < to; r++) {
        const real *x = (const real *)a->in[0].data + row_at(v, step, r);
        real *y = (real *)v->data + r * n;
        if (a->add & 1)
            for (int64_t i = 0; i < n; i++) y[i] += x[i * last];
        else
            for (int64_t i = 0; i < n; i++) y[i] = x[i * last];
    }
}

/* "b->bc" read backwards. */
static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    const char *arrow = strstr(y->dims, "->");
    char *dims = sk_print(g->arena, "%s->%.*s", arrow + 2, (int)(arrow - y->dims), y->dims);
    dx[0] = sk_apply(g, "sum", .in = {dy[0]}, .dims = dims)->out[0];
}

static const sk_sample samples[] = {
    {.in = {"b3"}, .dims = "b->bc", .fresh = "c5"},
    {.in = {"b2c37"}, .dims = "bc->btc", .fresh = "t3"},
    {.in = {"c4b3"}, .dims = "cb->btc", .fresh = "t5"},
    {.in = {""}, .dims = "->b", .fresh = "b3"},
    {.in = {"b2t3"}, .dims = "bt->bt"},
    {.in = {0}},
};

const sk_op sk_op_spread = {
    .name = "spread",
    .doc = "the elements repeated along new letters",
    .n_in = 1,
    .types = "x>f",
    .flags = SK_OP_LINEAR | SK_OP_ADDS,
    .infer = infer,
    .grad = grad,
    .cpu = cpu,
    .samples = samples,
};
