/* sum.c - the sum over the letters that the result lacks.
 *
 * The call names the letters.  Keeping the last ones, "bthsd->hsd", is the gradient of a bias and
 * runs at memory speed, in strips of columns (kernel/cpu/column_strips.h).  Every other pattern is
 * walked like an odometer; in canonical order the sums of the reduction blocks of the first letter
 * that is summed are added in pairs. */
#include "graph/graph.h"
#include "kernel/cpu/column_strips.h"

static void sum_rows(const sk_strip *s, int64_t r, int64_t end, real *sum)
{
    const real *first = (const real *)s->a->in[0].data + s->at;
    int64_t n = s->n;
    memset(sum, 0, (size_t)n * sizeof(real));
    for (; r < end; r++) {
        const real *restrict x = first + r * s->cols;
#pragma omp simd
        for (int64_t c = 0; c < n; c++) sum[c] += x[c];
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

typedef struct odometer {
    const sk_view *x;
    const char *in, *out;
    const real *base; /* of the result's element at hand */
} odometer;

/* `sum` and the elements [from, to) of those that make one element of the result. */
static double turn(const odometer *w, int64_t from, int64_t to, double sum)
{
    const sk_view *x = w->x;
    for (int64_t i = from; i < to; i++) {
        int64_t at = 0, rest = i;
        for (int k = x->n - 1; k >= 0; k--) {
            if (strchr(w->out, w->in[k])) continue;
            at += rest % x->size[k] * x->step[k];
            rest /= x->size[k];
        }
        sum += (double)w->base[at];
    }
    return sum;
}

/* In canonical order: dim d goes by reduction blocks, each place of it has `inner` elements. */
static real turn_cells(const odometer *w, int d, int64_t inner)
{
    int64_t border[SK_REDUCTION_BLOCKS_MAX + 1];
    int cells = sk_view_reduction_blocks(w->x, d, border);
    real sum[SK_REDUCTION_BLOCKS_MAX];
    for (int k = 0; k < cells; k++)
        sum[k] = (real)turn(w, border[k] * inner, border[k + 1] * inner, 0);
    sk_sum_pairs(sum, cells);
    return sum[0];
}

static const real *base_of(const odometer *w, const sk_view *y, int64_t o)
{
    int64_t base = 0;
    for (int k = y->n - 1; k >= 0; k--) {
        base += o % y->size[k] * w->x->step[strchr(w->in, w->out[k]) - w->in];
        o /= y->size[k];
    }
    return (const real *)w->x->data + base;
}

static void by_odometer(const sk_args *a, const char *in, const char *out)
{
    const sk_view *x = &a->in[0], *y = &a->out[0];
    odometer w = {.x = x, .in = in, .out = out};
    int64_t n_sum = 1, inner = 1, from, to;
    int first = -1; /* dim that goes */
    for (int k = x->n - 1; k >= 0; k--)
        if (!strchr(out, in[k])) first = k, inner = n_sum, n_sum *= x->size[k];
    sk_share(a, sk_count(y), &from, &to);
    for (int64_t o = from; o < to; o++) {
        real *put = (real *)y->data + o;
        w.base = base_of(&w, y, o);
        if (first >= 0 && x->cells[first]) {
            real sum = turn_cells(&w, first, inner);
            sk_sum_put(put, &sum, 1, a->add & 1);
        } else *put = (real)turn(&w, 0, n_sum, a->add & 1 ? (double)*put : 0);
    }
}

/* The view of one place along the first dim, without that dim. */
static void drop_first(sk_view *v, int64_t place)
{
    v->data = (real *)v->data + place * v->step[0];
    v->n--;
    for (int d = 0; d < v->n; d++) {
        v->size[d] = v->size[d + 1];
        v->step[d] = v->step[d + 1];
        v->at[d] = v->at[d + 1];
        v->full[d] = v->full[d + 1];
        v->cells[d] = v->cells[d + 1];
        v->zigzag[d] = v->zigzag[d + 1];
    }
}

/* "btc->bc", sums of single samples: strips, once for each of them. */
static void by_samples(const sk_args *a)
{
    for (int64_t i = 0; i < a->in[0].size[0]; i++) {
        sk_args one = *a;
        drop_first(&one.in[0], i);
        drop_first(&one.out[0], i);
        sk_sum_strips(&one, sum_rows, SK_SUM_COLUMNS);
    }
}

static void cpu(const sk_args *a)
{
    const sk_view *x = &a->in[0], *y = &a->out[0];
    char in[SK_MAX_DIM + 1], out[SK_MAX_DIM + 1];
    side(a->dims, in);
    side(strstr(a->dims, "->") + 2, out);
    bool samples = *out && *in == *out && !strcmp(in + x->n - (y->n - 1), out + 1);
    if (!strcmp(in + x->n - y->n, out)) sk_sum_strips(a, sum_rows, SK_SUM_COLUMNS);
    else if (samples) by_samples(a);
    else by_odometer(a, in, out);
}

/* "bthsd->hsd" read backwards. */
static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    const char *arrow = strstr(y->dims, "->");
    char *dims = sk_print(g->arena, "%s->%.*s", arrow + 2, (int)(arrow - y->dims), y->dims);
    dx[0] = sk_apply(g, "spread", .in = {dy[0]}, .dims = dims)->out[0];
}

static double flops(const sk_args *a) { return (double)sk_count(&a->in[0]); }

static const sk_sample samples[] = {
    {.in = {"b2t3h2s3d4"}, .dims = "bthsd->hsd"},
    {.in = {"b5t31c37"}, .dims = "btc->c"},
    {.in = {"b37t5c41"}, .dims = "btc->c"},
    {.in = {"b2c1100"}, .dims = "bc->c"},
    {.in = {"c1100"}, .dims = "c->c"},
    {.in = {"b3t5"}, .dims = "bt->"},
    {.in = {"b3t5c7"}, .dims = "btc->cb"},
    {.in = {"b3t5c7"}, .dims = "btc->bc"},
    {.in = {"b2t37k3c41"}, .dims = "btkc->bc"},
    {.in = {"b3t5"}, .dims = "bt->b"},
    {.in = {"b3t5c7"}, .dims = "btc->t"},
    {.in = {"b37t5c7"}, .dims = "btc->t"},
    {.in = {"t3c4b5"}, .dims = "tcb->bt"},
    {.in = {0}},
};

const sk_op sk_op_sum = {
    .name = "sum",
    .doc = "the sum over the letters missing in the result",
    .n_in = 1,
    .types = "x>f",
    .flags = SK_OP_LINEAR | SK_OP_ADDS,
    .infer = infer,
    .grad = grad,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
