/* embedding.c - rows of a table, chosen by ids.
 *
 * The table may be a shard of the vocabulary: an id of another shard gives a row of zeros, so that
 * the sum over the shards is the result.  In canonical order a table that is not split adds a zero
 * too, because a sum of shards is never -0. */
#include "graph/extra.h"

static void put_row(real *restrict y, const real *restrict w, int64_t n, bool add, bool canonical)
{
    if (!add && !canonical) {
        memcpy(y, w, (size_t)n * sizeof(real));
        return;
    }
#pragma omp simd
    for (int64_t c = 0; c < n; c++) y[c] = (add ? y[c] : 0) + w[c];
}

static void cpu(const sk_args *a)
{
    const sk_view *table = &a->in[0];
    const int32_t *id = a->in[1].data;
    const real *w = table->data;
    real *y = a->out[0].data;
    int64_t cols = table->size[1], from, to;
    sk_share(a, sk_count(&a->in[1]), &from, &to);
    for (int64_t r = from; r < to; r++) {
        int64_t row = id[r] - table->at[0];
        bool mine = row >= 0 && row < table->size[0];
        real *out = y + r * cols;
        if (mine) put_row(out, w + row * cols, cols, a->add & 1, table->cells[0]);
        else if (!(a->add & 1)) memset(out, 0, (size_t)cols * sizeof(real));
    }
}

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    char *dims =
        sk_print(g->arena, "%s,%s->%s", y->letters_out[0], y->letters_in[1], y->letters_in[0]);
    dx[0] = sk_apply(g, "embedding_grad", .in = {dy[0], y->in[1]}, .dims = dims)->out[0];
}

static sk_tensor *sample(SK_EXTRA_ARGS)
{
    (void)dx;
    const char *width = y->letters_in[i] + 1;
    const char *d = sk_rows_marked(g, y->letters_out[0], width);
    const char *ids = sk_rows_marked(g, y->letters_in[1], "");
    char *dims = sk_print(g->arena, "%s,%s->%c%s", d, ids, g->batch, y->letters_in[i]);
    return sk_apply(g, "embedding_samples", .in = {dy[0], y->in[1]}, .dims = dims)->out[0];
}

static void outer(const sk_node *y, int i, sk_outer *o)
{
    o->side[0] = y->in[1];
    o->ids = y->letters_in[i][0];
}

static const sk_extra_rules extra = {.sample = sample, .outer = outer};

static const sk_sample samples[] = {
    {.in = {"v10c8", "b2t3%10"}},
    {.in = {"v7c5", "b3t2k2%7"}},
    {.in = {"v4c3", "n1%4"}},
    {.in = {0}},
};

const sk_op sk_op_embedding = {
    .name = "embedding",
    .doc = "rows of a table, chosen by ids",
    .dims = "vc,*->*c",
    .n_in = 2,
    .types = "xi>x",
    .flags = SK_OP_ADDS,
    .grad = grad,
    .extra = &extra,
    .cpu = cpu,
    .samples = samples,
};
