/* xent_terms.c - cross-entropy over a vocabulary that may be split: the two sums it needs.
 *
 * With m any shift per row (row_max makes exp safe), the loss of a row is
 * m + log(s) - t, where s = sum of exp(logit - m) and t = the target's logit.
 * Both are sums over the vocabulary, so each rank makes those of its shard.
 * m has no gradient: the loss does not depend on it.
 *
 * attr: e.  With label smoothing (Szegedy et al. 2016) the target is not one word but a
 * distribution, 1 - e for the target and e / V more for each of the V words, and t is the mean of
 * the logits under it: a sum over the vocabulary too.  In validation e is 0.
 *
 * In canonical order the vocabulary is summed by reduction blocks, and a block in lanes that are
 * counted from its first element: as fast as the compiler's own vectors, and the same bits wherever
 * the block lies.  Of a small vocabulary all exponentials are made first, because its reduction
 * blocks are no longer than what is left over behind vectors. */
#include "graph/graph.h"
#include "kernel/cpu/vecmath.h"

enum { LANES = 16, SMALL = 1024 };

/* The sum of e, its order fixed by n alone: four chains. */
static real one_short(const real *e, int64_t n)
{
    real p = 0, q = 0, r = 0, s = 0;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) p += e[i], q += e[i + 1], r += e[i + 2], s += e[i + 3];
    for (; i < n; i++) p += e[i];
    return (p + q) + (r + s);
}

/* The sum of exp(x - shift), its order fixed by n alone. */
static real one_long(const real *x, int64_t n, real shift)
{
    real lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
#pragma omp simd
        for (int k = 0; k < LANES; k++) lane[k] += sk_exp(x[i + k] - shift);
    for (int k = 0; i + k < n; k++) lane[k] += sk_exp(x[i + k] - shift);
    for (int half = LANES / 2; half; half /= 2)
        for (int k = 0; k < half; k++) lane[k] += lane[k + half];
    return lane[0];
}

/* `small`: e has room for the row. */
static real one_row(const real *x, real shift, const int64_t *border, int cells, bool small,
                    real *e)
{
    real sum[SK_REDUCTION_BLOCKS_MAX];
    int64_t n = small ? border[cells] : 0;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) e[i] = sk_exp(x[i] - shift);
    for (int k = 0; k < cells; k++) {
        int64_t at = border[k], len = border[k + 1] - at;
        sum[k] = small ? one_short(e + at, len) : one_long(x + at, len, shift);
    }
    sk_sum_pairs(sum, cells);
    return sum[0];
}

static void by_cells(const sk_args *a, int64_t from, int64_t to)
{
    const sk_view *v = &a->in[0];
    const real *m = a->in[1].data;
    real *s = a->out[0].data, e[SMALL];
    int64_t n = v->size[v->n - 1], border[SK_REDUCTION_BLOCKS_MAX + 1];
    int cells = sk_view_reduction_blocks(v, v->n - 1, border);
    bool small = v->full[v->n - 1] <= SMALL;
    for (int64_t r = from; r < to; r++)
        s[r] = one_row((const real *)v->data + r * n, m[r], border, cells, small, e);
}

static void in_one(const sk_args *a, int64_t from, int64_t to)
{
    const sk_view *v = &a->in[0];
    const real *m = a->in[1].data;
    real *s = a->out[0].data;
    int64_t n = v->size[v->n - 1];
    for (int64_t r = from; r < to; r++) {
        const real *x = (const real *)v->data + r * n;
        real sum = 0, shift = m[r];
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) sum += sk_exp(x[i] - shift);
        s[r] = sum;
    }
}

static real lane_sum(const real *x, int64_t n)
{
    real lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
#pragma omp simd
        for (int k = 0; k < LANES; k++) lane[k] += x[i + k];
    for (int k = 0; i + k < n; k++) lane[k] += x[i + k];
    for (int half = LANES / 2; half; half /= 2)
        for (int k = 0; k < half; k++) lane[k] += lane[k + half];
    return lane[0];
}

/* t of rows [from, to), with label smoothing: by reduction blocks, each with its share of t. */
static void smooth(const sk_args *a, double e, int64_t from, int64_t to)
{
    const sk_view *v = &a->in[0];
    int64_t n = v->size[v->n - 1], border[SK_REDUCTION_BLOCKS_MAX + 1];
    int cells = sk_view_reduction_blocks(v, v->n - 1, border);
    real *t = a->out[1].data, even = (real)(e / (double)v->full[v->n - 1]), own = (real)(1 - e);
    for (int64_t r = from; r < to; r++) {
        const real *x = (const real *)v->data + r * n;
        int64_t at = ((const int32_t *)a->in[2].data)[r] - v->at[v->n - 1];
        real sum[SK_REDUCTION_BLOCKS_MAX];
        for (int k = 0; k < cells; k++) {
            sum[k] = even * lane_sum(x + border[k], border[k + 1] - border[k]);
            if (at >= border[k] && at < border[k + 1]) sum[k] += own * x[at];
        }
        sk_sum_pairs(sum, cells);
        t[r] = sum[0] + 0; /* no -0, as below */
    }
}

static void cpu(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    const int32_t *target = a->in[2].data;
    real *t = a->out[1].data;
    int64_t n = v->size[v->n - 1], first = v->at[v->n - 1], from, to;
    bool canonical = v->cells[v->n - 1];
    sk_share(a, sk_count(&a->in[1]), &from, &to);
    if (canonical) by_cells(a, from, to);
    else in_one(a, from, to);
    if (a->attr[0] != 0 && !a->validation) {
        smooth(a, a->attr[0], from, to);
        return;
    }
    for (int64_t r = from; r < to; r++) {
        int64_t at = target[r] - first;
        t[r] = at >= 0 && at < n ? ((const real *)v->data)[r * n + at] : 0;
        if (canonical) t[r] += 0; /* no -0: other shards' zeros may join it, or may not */
    }
}

static double flops(const sk_args *a) { return 4 * (double)sk_count(&a->in[0]); }

static void infer(sk_graph *g, const sk_node *n)
{
    if (!(n->attr[0] >= 0 && n->attr[0] < 1))
        sk_graph_fail(g, SK_ECONF, "xent_terms: label smoothing is %g; 0 to below 1 is needed (%s)",
                      n->attr[0], n->where);
}

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    if (!dy[0] || !dy[1]) {
        sk_graph_fail(g, SK_ECONF, "xent_terms: only one of its results is used by the loss (%s)",
                      y->where);
        return;
    }
    dx[0] = sk_apply(g, "xent_terms_grad", .in = {y->in[0], y->in[1], y->in[2], dy[0], dy[1]},
                     .attr = {y->attr[0]})
                ->out[0];
}

static void shape(const sk_args *a, sk_kernel_shape *s)
{
    (void)a;
    s->kind = SK_KERNEL_LOSS;
}

static const sk_sample samples[] = {
    {.in = {"b2t3v8", "b2t3", "b2t3%8"}},
    {.in = {"b3v37", "b3", "b3%37"}},
    {.in = {"b3v1500", "b3", "b3%1500"}},
    {.in = {"v5000", "", "%5000"}},
    {.in = {"v5", "", "%5"}},
    {.in = {"b2t3v8", "b2t3", "b2t3%8"}, .attr = {0.1}},
    {.in = {"b3v1500", "b3", "b3%1500"}, .attr = {0.3}},
    {.in = {0}},
};

const sk_op sk_op_xent_terms = {
    .name = "xent_terms",
    .doc = "sum of exp(logit - m) and the target's logit, per row",
    .dims = "*v,*,*->*,*",
    .n_in = 3,
    .n_out = 2,
    .types = "xfi>ff",
    .stats = 3,
    .infer = infer,
    .grad = grad,
    .flops = flops,
    .shape = shape,
    .cpu = cpu,
    .samples = samples,
};
