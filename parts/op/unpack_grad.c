/* unpack_grad.c - the gradient of unpack: queries and keys with values, packed again. */
#include "graph/graph.h"

static void cpu(const sk_args *a)
{
    const sk_view *x = &a->in[0];
    size_t queries = (size_t)(x->size[3] * x->size[4]), rest = 2 * (size_t)x->size[4];
    const real *q = x->data, *kv = a->in[1].data;
    real *to = a->out[0].data;
    int64_t first, end;
    sk_share(a, sk_span(x, 0, 3), &first, &end);
    for (size_t i = (size_t)first; i < (size_t)end; i++) {
        memcpy(to + i * (queries + rest), q + i * queries, queries * sizeof(real));
        memcpy(to + i * (queries + rest) + queries, kv + i * rest, rest * sizeof(real));
    }
}

static void infer(sk_graph *g, const sk_node *n)
{
    int64_t queries = g->size[(int)n->letters_in[0][3] & 127];
    int64_t kinds = g->size[(int)n->letters_in[1][3] & 127];
    if (kinds != 2)
        sk_graph_fail(g, SK_ECONF,
                      "unpack_grad: '%s' holds %d things per head; a key and a value are needed "
                      "(%s)",
                      n->in[1]->name, (int)kinds, n->where);
    sk_graph_size(g, n->letters_out[0][3], queries + 2);
}

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    sk_node *n = sk_apply(g, "unpack", .in = {dy[0]});
    (void)y;
    dx[0] = n->out[0];
    dx[1] = n->out[1];
}

static const sk_sample samples[] = {
    {.in = {"b2t5h2r1d4", "b2t5h2z2d4"}},
    {.in = {"b1t3h3r3d7", "b1t3h3z2d7"}},
    {.in = {0}},
};

const sk_op sk_op_unpack_grad = {
    .name = "unpack_grad",
    .doc = "queries, and keys with values, packed into heads: the gradient of unpack",
    .dims = "bthr!d,bthz!d->bths!d",
    .n_in = 2,
    .flags = SK_OP_LINEAR,
    .infer = infer,
    .grad = grad,
    .cpu = cpu,
    .samples = samples,
};
