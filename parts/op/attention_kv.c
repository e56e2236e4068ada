/* attention_kv.c - causal attention of this rank's queries over keys and values of other ranks.
 *
 * This is what attention becomes where time is split: keys are a gathered operand ('^') while
 * queries, result and lse stay split.  In ring attention the same kernel gets one shard of the keys
 * after the other: with both bits of `add` set, y and lse hold the result over the keys seen so
 * far, and these keys are merged in, weighted by their sums of exponentials.  That is no sum of
 * results, so the op has no SK_OP_ADDS. Keys of the future change nothing. attr[0]: time is stored
 * as base/zigzag.h deals it to so many ranks; up to 1: in order. */
#include "graph/graph.h"
#include "kernel/causal_attention.h"

enum { BOTH = 3 };

static sk_times times(const sk_args *a)
{
    const sk_view *q = &a->in[0], *kv = &a->in[1];
    return (sk_times){q->at[1], q->size[1], kv->at[1], kv->size[1], q->full[1], (int)a->attr[0]};
}

static sk_attend head_at(const sk_args *a, int64_t i)
{
    const sk_view *q = &a->in[0], *kv = &a->in[1];
    int64_t time = q->size[1], heads = q->size[2], r = q->size[3], d = q->size[4];
    int64_t j = i % r, h = i / r % heads, b = i / r / heads;
    int64_t at = ((b * time * heads + h) * r + j) * d;
    const real *k = (const real *)kv->data + (b * kv->size[1] * heads + h) * 2 * d;
    return (sk_attend){
        .q = (const real *)q->data + at,
        .k = k,
        .v = k + d,
        .y = (real *)a->out[0].data + at,
        .lse = (real *)a->out[1].data + i * time,
        .step_q = heads * r * d,
        .step_kv = heads * 2 * d,
        .step_y = heads * r * d,
        .d = d,
        .time = times(a),
        .merge = (a->add & BOTH) == BOTH,
    };
}

static void cpu(const sk_args *a)
{
    const sk_view *q = &a->in[0];
    sk_times t = times(a);
    int64_t heads = q->size[0] * q->size[2] * q->size[3];
    int64_t units = sk_attend_blocks(&t) * heads;
    for (int64_t u = a->part; u < units; u += a->of) {
        sk_attend h = head_at(a, u % heads);
        sk_attend_block(&h, u / heads, a->scratch);
    }
}

static void infer(sk_graph *g, const sk_node *n)
{
    int64_t kinds = g->size[(int)n->letters_in[1][3] & 127];
    if (kinds != 2)
        sk_graph_fail(g, SK_ECONF,
                      "attention_kv: '%s' holds %d things per head; a key and a value are needed "
                      "(%s)",
                      n->in[1]->name, (int)kinds, n->where);
    if (!(n->attr[0] >= 0 && n->attr[0] <= 1 << 20))
        sk_graph_fail(g, SK_ECONF,
                      "attention_kv: time cannot be dealt to %g ranks; 0 to 2^20 can (%s)",
                      n->attr[0], n->where);
    if (g->dealt == n->letters_in[0][1] && n->attr[0] != g->zigzag)
        sk_graph_fail(g, SK_ECONF,
                      "attention_kv: the layout deals '%c' in zigzag to %d ranks, and the op is "
                      "told %g; use the op attention instead (%s)",
                      g->dealt, g->zigzag, n->attr[0], n->where);
}

static size_t scratch(const sk_args *a)
{
    sk_times t = times(a);
    return sk_attend_scratch(&t, a->in[0].size[4]);
}

/* Two products over the pairs that see each other here. */
static double flops(const sk_args *a)
{
    const sk_view *q = &a->in[0];
    sk_times t = times(a);
    return 4 * sk_attend_pairs(&t) * (double)(q->size[0] * sk_span(q, 2, 5));
}

static void shape(const sk_args *a, sk_kernel_shape *s)
{
    const sk_view *q = &a->in[0];
    s->kind = SK_KERNEL_ATTENTION;
    sk_attention_shape(s, q, q->size[2] * q->size[3], a->in[1].size[1]);
}

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    if (!dy[0]) return;
    sk_node *n =
        sk_apply(g, "attention_kv_grad", .in = {y->in[0], y->in[1], y->out[0], y->out[1], dy[0]},
                 .attr = {y->attr[0]});
    dx[0] = n->out[0];
    dx[1] = n->out[1];
}

static const sk_sample samples[] = {
    {.in = {"b2t5h2r1d4", "b2t5h2z2d4"}},   {.in = {"b1t7h3r3d5", "b1t7h3z2d5"}, .attr = {2}},
    {.in = {"b2t67h1r2d3", "b2t67h1z2d3"}}, {.in = {"b1t150h1r1d4", "b1t150h1z2d4"}, .attr = {3}},
    {.in = {"b1t1h1r1d1", "b1t1h1z2d1"}},   {.in = {0}},
};

const sk_op sk_op_attention_kv = {
    .name = "attention_kv",
    .doc = "causal attention of a shard of the queries over all keys; also gives log-sum-exp",
    .flags = SK_OP_RECOMPUTE,
    .dims = "bthr!d!,bt^hz!d!->bthrd,bhrt",
    .n_in = 2,
    .n_out = 2,
    .types = "xx>xf",
    .stats = 2,
    .infer = infer,
    .grad = grad,
    .no_grad = 2,
    .flops = flops,
    .shape = shape,
    .scratch = scratch,
    .cpu = cpu,
    .samples = samples,
};
