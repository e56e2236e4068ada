/* xent_terms.c - cross-entropy over a vocabulary that may be split: the two sums it needs.
 *
 * With m any shift per row (row_max makes exp safe), the loss of a row is
 * m + log(s) - t, where s = sum of exp(logit - m) and t = the target's logit.
 * Both are sums over the vocabulary, so each rank brings those of its piece.
 * m has no gradient: the loss does not depend on it. */
#include "graph/graph.h"
#include "tensor/vecmath.h"

static void cpu(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    const real *m = a->in[1].data;
    const int32_t *target = a->in[2].data;
    real *s = a->out[0].data, *t = a->out[1].data;
    int64_t n = v->size[v->n - 1], first = v->at[v->n - 1], from, to;
    sk_share(a, sk_count(&a->in[1]), &from, &to);
    for (int64_t r = from; r < to; r++) {
        const real *x = (const real *)v->data + r * n;
        real sum = 0, shift = m[r];
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) sum += sk_exp(x[i] - shift);
        int64_t at = target[r] - first;
        s[r] = sum;
        t[r] = at >= 0 && at < n ? x[at] : 0;
    }
}

static double flops(const sk_args *a) { return 4 * (double)sk_count(&a->in[0]); }

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    if (!dy[0] || !dy[1]) {
        sk_graph_fail(g, SK_ECONF, "xent_terms: only one of its results is used by the loss (%s)",
                      y->where);
        return;
    }
    dx[0] =
        sk_apply(g, "xent_terms_grad", .in = {y->in[0], y->in[1], y->in[2], dy[0], dy[1]})->out[0];
}

static const sk_sample samples[] = {
    {.in = {"b2t3v8", "b2t3", "b2t3%8"}},
    {.in = {"b3v37", "b3", "b3%37"}},
    {.in = {"v5", "", "%5"}},
    {.in = {0}},
};

const sk_op sk_op_xent_terms = {
    .name = "xent_terms",
    .doc = "sum of exp(logit - m) and the target's logit, per row",
    .dims = "*v,*,*->*,*",
    .n_in = 3,
    .n_out = 2,
    .stats = 3,
    .grad = grad,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
