/* scale_queries.c - queries of packed heads times a number; keys and values are copied.
 *
 * Attention divides its scores by sqrt(d).  Scores of any other scale are those of scaled queries,
 * whichever kernel computes them and wherever the keys come from: GPT-2's scale_attn_weights and
 * scale_attn_by_inverse_layer_idx.  Of the s slots of a head group all but the last two hold
 * queries (attention.c).  attr[0]: the number. */
#include "graph/graph.h"

static void cpu(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    int64_t row = v->size[3] * v->size[4], queries = row - 2 * v->size[4], from, to;
    real by = (real)a->attr[0];
    sk_share(a, sk_span(v, 0, 3), &from, &to);
    for (int64_t r = from; r < to; r++) {
        const real *x = (const real *)v->data + r * row;
        real *y = (real *)a->out[0].data + r * row;
#pragma omp simd
        for (int64_t i = 0; i < queries; i++) y[i] = by * x[i];
        if (x != y) memcpy(y + queries, x + queries, (size_t)(row - queries) * sizeof(real));
    }
}

static void infer(sk_graph *g, const sk_node *n)
{
    int64_t slots = g->size[(int)n->letters_in[0][3] & 127];
    if (slots < 3)
        sk_graph_fail(g, SK_ECONF,
                      "scale_queries: a head group of %d slots has no query beside a key and a "
                      "value (%s)",
                      (int)slots, n->where);
}

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    dx[0] = sk_apply(g, "scale_queries", .in = {dy[0]}, .attr = {y->attr[0]})->out[0];
}

static const sk_sample samples[] = {
    {.in = {"b2t3h2s3d4"}, .attr = {0.5}},
    {.in = {"b1t5h3s5d7"}, .attr = {2.6457513110645906}},
    {.in = {0}},
};

const sk_op sk_op_scale_queries = {
    .name = "scale_queries",
    .doc = "queries of packed heads times a number: scores of another scale",
    .dims = "bths!d!->bthsd",
    .n_in = 1,
    .flags = SK_OP_LINEAR,
    .reuse = 1,
    .infer = infer,
    .grad = grad,
    .cpu = cpu,
    .samples = samples,
};
