/* attention.c - causal attention over packed queries, keys and values.
 *
 * Each of the h head groups has s = r + 2 slots of d elements: r query heads,
 * the key and the value that they share (r = 1 is plain attention, r > 1 is
 * grouped-query attention).  The result keeps the r slots, and lse, the
 * logarithm of each row's sum of exponentials, for the gradient.
 *
 * The work is in kernel/causal_attention.h; threads take (block, head) in turn.  A layout that
 * splits time gets attention_kv instead, which takes keys from elsewhere (doc/context.md). attr[0]:
 * time is stored as base/zigzag.h deals it to so many ranks; up to 1: in order. */
#include "graph/graph.h"
#include "kernel/causal_attention.h"

static sk_times times(const sk_args *a)
{
    const sk_view *x = &a->in[0];
    return (sk_times){x->at[1], x->size[1], x->at[1], x->size[1], x->full[1], (int)a->attr[0]};
}

static sk_attend head_at(const sk_args *a, int64_t i)
{
    const sk_view *x = &a->in[0];
    int64_t time = x->size[1], heads = x->size[2], slots = x->size[3], d = x->size[4];
    int64_t r = slots - 2, j = i % r, h = i / r % heads, b = i / r / heads;
    const real *group = (const real *)x->data + (b * time * heads + h) * slots * d;
    return (sk_attend){
        .q = group + j * d,
        .k = group + r * d,
        .v = group + (r + 1) * d,
        .y = (real *)a->out[0].data + ((b * time * heads + h) * r + j) * d,
        .lse = (real *)a->out[1].data + i * time,
        .step_q = heads * slots * d,
        .step_kv = heads * slots * d,
        .step_y = heads * r * d,
        .d = d,
        .time = times(a),
    };
}

static void cpu(const sk_args *a)
{
    const sk_view *x = &a->in[0];
    sk_times t = times(a);
    int64_t heads = x->size[0] * x->size[2] * (x->size[3] - 2);
    int64_t units = sk_attend_blocks(&t) * heads;
    for (int64_t u = a->part; u < units; u += a->of) {
        sk_attend h = head_at(a, u % heads);
        sk_attend_block(&h, u / heads, a->scratch);
    }
}

static void infer(sk_graph *g, const sk_node *n)
{
    int64_t slots = g->size[(int)n->letters_in[0][3] & 127];
    if (!(n->attr[0] >= 0 && n->attr[0] <= 1 << 20))
        sk_graph_fail(g, SK_ECONF,
                      "attention: time cannot be dealt to %g ranks; 0 to 2^20 can (%s)", n->attr[0],
                      n->where);
    sk_graph_size(g, n->letters_out[0][3], slots - 2);
}

/* Queries stay with their shard of time, keys and values go where they are needed. */
static void split(sk_graph *g, char letter, sk_tensor *const *in, const double *attr,
                  sk_tensor **out)
{
    (void)letter; /* time; of slots or elements of a head both ops need all */
    sk_node *x = sk_apply(g, "unpack", .in = {in[0]});
    sk_node *y = sk_apply(g, "attention_kv", .in = {x->out[0], x->out[1]}, .attr = {attr[0]});
    out[0] = y->out[0];
    out[1] = y->out[1];
}

static size_t scratch(const sk_args *a)
{
    sk_times t = times(a);
    return sk_attend_scratch(&t, a->in[0].size[4]);
}

/* Two products over the pairs that see each other. */
static double flops(const sk_args *a)
{
    const sk_view *y = &a->out[0];
    sk_times t = times(a);
    return 4 * sk_attend_pairs(&t) * (double)(y->size[0] * sk_span(y, 2, 5));
}

static void shape(const sk_args *a, sk_kernel_shape *s)
{
    const sk_view *q = &a->in[0];
    s->kind = SK_KERNEL_ATTENTION;
    sk_attention_shape(s, q, q->size[2] * (q->size[3] - 2), q->size[1]);
}

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    if (!dy[0]) return;
    dx[0] = sk_apply(g, "attention_grad", .in = {y->in[0], y->out[0], y->out[1], dy[0]},
                     .attr = {y->attr[0]})
                ->out[0];
}

static const sk_sample samples[] = {
    {.in = {"b2t5h2s3d4"}},
    {.in = {"b1t3h3s5d7"}},
    {.in = {"b2t67h1s4d3"}},
    {.in = {"b1t1h1s3d1"}},
    {.in = {0}},
};

const sk_op sk_op_attention = {
    .name = "attention",
    .doc = "causal attention over packed queries, keys and values; also gives log-sum-exp",
    .flags = SK_OP_RECOMPUTE,
    .dims = "bt!hs!d!->bthr!d,bhr!t",
    .n_in = 1,
    .n_out = 2,
    .types = "x>xf",
    .stats = 2,
    .infer = infer,
    .split = split,
    .grad = grad,
    .no_grad = 2,
    .flops = flops,
    .shape = shape,
    .scratch = scratch,
    .cpu = cpu,
    .samples = samples,
};
