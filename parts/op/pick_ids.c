/* pick_ids.c - of every row the elements that the ids of the sample name: "btv,bs->bts" has the
 * element ids[b,s] of row t.  It is the product of rows with the unit vectors of ids.
 *
 * The last dim of rows may be a shard: ids of others give 0, so that the sum over the shards is the
 * result.  A zero is added to each element, because a sum of shards is never -0. */
#include "graph/graph.h"

static void cpu(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    int64_t words = v->size[v->n - 1], first = v->at[v->n - 1], rows = sk_span(v, 1, v->n - 1);
    int64_t cols = sk_span(&a->in[1], 1, a->in[1].n), from, to;
    sk_share(a, v->size[0] * rows, &from, &to);
    for (int64_t r = from; r < to; r++) {
        const int32_t *id = (const int32_t *)a->in[1].data + r / rows * cols;
        const real *x = (const real *)v->data + r * words;
        real *z = (real *)a->out[0].data + r * cols;
        for (int64_t s = 0; s < cols; s++) {
            int64_t at = id[s] - first;
            z[s] = (at >= 0 && at < words ? x[at] : 0) + (real)0;
        }
    }
}

static const sk_sample samples[] = {
    {.in = {"b2t5v9", "b2s7%9"}, .dims = "btv,bs->bts"},
    {.in = {"b3t2k2v4", "b3s3%4"}, .dims = "btkv,bs->btks"},
    {.in = {"b4v3", "b4%3"}, .dims = "bv,b->b"},
    {.in = {0}},
};

const sk_op sk_op_pick_ids = {
    .name = "pick_ids",
    .doc = "of every row the elements that the ids of the sample name",
    .n_in = 2,
    .types = "xi>f",
    .stats = 1,
    .cpu = cpu,
    .samples = samples,
};
