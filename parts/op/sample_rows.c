/* sample_rows.c - rows of some samples, put to their places among those of the whole batch.
 *
 * The call names a letter of its own for all samples, as in "bc->Bc", which has the size of the
 * batch and is not split.  Other rows are 0: the sum over micro-batches and over ranks that split
 * the batch has the rows of all samples.  A zero is added to each element, since -0 + 0 is 0
 * wherever the sum is taken. */
#include "graph/graph.h"

static void infer(sk_graph *g, const sk_node *n)
{
    const char *x = n->letters_in[0], *y = n->letters_out[0];
    if (!*x || !*y || strchr(x, *y) || strcmp(x + 1, y + 1)) {
        sk_graph_fail(g, SK_ECONF, "sample_rows: \"%s\" is not like \"bc->Bc\" (%s)", n->dims,
                      n->where);
        return;
    }
    sk_graph_size(g, *y, g->size[(int)*x & 127]);
}

static void cpu(const sk_args *a)
{
    const sk_view *in = &a->in[0], *out = &a->out[0];
    int64_t n = sk_span(out, 1, out->n), from, to;
    sk_share(a, out->size[0], &from, &to);
    for (int64_t r = from; r < to; r++) {
        int64_t at = r + out->at[0] - in->at[0];
        bool mine = at >= 0 && at < in->size[0];
        const real *x = (const real *)in->data + at * n;
        real *y = (real *)out->data + r * n;
        if (!mine && !(a->add & 1)) memset(y, 0, (size_t)n * sizeof(real));
        for (int64_t i = 0; mine && i < n; i++) y[i] = (a->add & 1 ? y[i] : 0) + x[i];
    }
}

static const sk_sample samples[] = {
    {.in = {"b5c7"}, .dims = "bc->nc"},
    {.in = {"b67"}, .dims = "b->n"},
    {.in = {"b3c2f5"}, .dims = "bcf->ncf"},
    {.in = {0}},
};

const sk_op sk_op_sample_rows = {
    .name = "sample_rows",
    .doc = "rows of samples at their places among those of the whole batch, the others 0",
    .n_in = 1,
    .types = "x>f",
    .flags = SK_OP_ADDS,
    .infer = infer,
    .cpu = cpu,
    .samples = samples,
};
