/* unpack.c - packed heads split into two tensors: queries, and keys with values.
 *
 * Of the s slots of a head group the first r = s - 2 are queries, the last two the key and the
 * value (z = 2).  One tensor is faster as long as it is not communicated; where time is split only
 * keys and values are sent. */
#include "graph/graph.h"

static void cpu(const sk_args *a)
{
    const sk_view *x = &a->in[0];
    size_t slots = (size_t)x->size[3], d = (size_t)x->size[4], queries = (slots - 2) * d;
    const real *from = x->data;
    real *q = a->out[0].data, *kv = a->out[1].data;
    int64_t first, end;
    sk_share(a, sk_span(x, 0, 3), &first, &end);
    for (size_t i = (size_t)first; i < (size_t)end; i++) {
        memcpy(q + i * queries, from + i * slots * d, queries * sizeof(real));
        memcpy(kv + i * 2 * d, from + i * slots * d + queries, 2 * d * sizeof(real));
    }
}

static void infer(sk_graph *g, const sk_node *n)
{
    int64_t slots = g->size[(int)n->letters_in[0][3] & 127];
    sk_graph_size(g, n->letters_out[0][3], slots - 2);
    sk_graph_size(g, n->letters_out[1][3], 2);
}

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    if (!dy[0] || !dy[1])
        sk_graph_fail(g, SK_ECONF,
                      "unpack: a gradient comes back for %s only; attention gives both (%s)",
                      dy[0] ? "queries" : "keys", y->where);
    else dx[0] = sk_apply(g, "unpack_grad", .in = {dy[0], dy[1]})->out[0];
}

static const sk_sample samples[] = {
    {.in = {"b2t5h2s3d4"}},
    {.in = {"b1t3h3s5d7"}},
    {.in = {"b1t1h1s3d1"}},
    {.in = {0}},
};

const sk_op sk_op_unpack = {
    .name = "unpack",
    .doc = "packed heads taken apart: queries, and keys with values",
    .dims = "bths!d->bthr!d,bthz!d",
    .n_in = 1,
    .n_out = 2,
    .flags = SK_OP_LINEAR,
    .infer = infer,
    .grad = grad,
    .cpu = cpu,
    .samples = samples,
};
