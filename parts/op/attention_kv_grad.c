/* attention_kv_grad.c - the gradient of attention_kv.
 *
 * dq is that of this rank's queries; dkv is what these queries alone give to the keys and values: a
 * partial sum, which the layout reduces and scatters.  As y and lse are over all keys, the op may
 * be called with one shard of the keys after the other, adding to dq each time.  A thread owns
 * whole head groups, since the gradient of a key is a sum over all queries of its group.  attr[0]:
 * as attention_kv's. */
#include "graph/graph.h"
#include "kernel/kernel_launch.h"
#include "kernel/causal_attention.h"

enum { ADD_Q = 1, ADD_KV = 2 };

static sk_times times(const sk_args *a)
{
    const sk_view *q = &a->in[0], *kv = &a->in[1];
    return (sk_times){q->at[1], q->size[1], kv->at[1], kv->size[1], q->full[1], (int)a->attr[0]};
}

static sk_attend_grad head_at(const sk_args *a, int64_t group, int64_t j)
{
    const sk_view *q = &a->in[0], *kv = &a->in[1];
    int64_t time = q->size[1], heads = q->size[2], r = q->size[3], d = q->size[4];
    int64_t b = group / heads, h = group % heads;
    int64_t at = ((b * time * heads + h) * r + j) * d;
    int64_t at_kv = (b * kv->size[1] * heads + h) * 2 * d;
    return (sk_attend_grad){
        .q = (const real *)q->data + at,
        .k = (const real *)kv->data + at_kv,
        .v = (const real *)kv->data + at_kv + d,
        .y = (const real *)a->in[2].data + at,
        .lse = (const real *)a->in[3].data + (group * r + j) * time,
        .dy = (const real *)a->in[4].data + at,
        .dq = (real *)a->out[0].data + at,
        .dk = (real *)a->out[1].data + at_kv,
        .dv = (real *)a->out[1].data + at_kv + d,
        .step_q = heads * r * d,
        .step_kv = heads * 2 * d,
        .step_y = heads * r * d,
        .d = d,
        .time = times(a),
        .add = a->add & ADD_Q,
    };
}

static void clear(const sk_attend_grad *h) /* the value's gradient follows the key's */
{
    for (int64_t t = 0; t < h->time.k_n; t++)
        memset(h->dk + t * h->step_kv, 0, (size_t)(2 * h->d) * sizeof(real));
}

static void cpu(const sk_args *a)
{
    const sk_view *q = &a->in[0];
    int64_t r = q->size[3], from, to;
    sk_share(a, q->size[0] * q->size[2], &from, &to);
    for (int64_t group = from; group < to; group++)
        for (int64_t j = 0; j < r; j++) {
            sk_attend_grad h = head_at(a, group, j);
            if (!j && !(a->add & ADD_KV)) clear(&h);
            sk_attend_grad_head(&h, a->scratch);
        }
}

static size_t scratch(const sk_args *a)
{
    sk_times t = times(a);
    return sk_attend_grad_scratch(&t);
}

static size_t workspace(const sk_args *a) /* two numbers a row: kernel/cuda/flash.h */
{
    const sk_view *lse = &a->in[3];
    size_t need = 8 * (size_t)sk_count(lse);
    return need > SK_WORKSPACE ? need - SK_WORKSPACE : 0;
}

/* Five products over the pairs that see each other here. */
static double flops(const sk_args *a)
{
    const sk_view *q = &a->in[0];
    sk_times t = times(a);
    return 10 * sk_attend_pairs(&t) * (double)(q->size[0] * sk_span(q, 2, 5));
}

static void shape(const sk_args *a, sk_kernel_shape *s)
{
    const sk_view *q = &a->in[0];
    s->kind = SK_KERNEL_ATTENTION_GRAD;
    sk_attention_shape(s, q, q->size[2] * q->size[3], a->in[1].size[1]);
}

static const sk_sample samples[] = {
    {.in = {"b2t5h2r1d4", "b2t5h2z2d4", "b2t5h2r1d4", "b2h2r1t5", "b2t5h2r1d4"}, .positive = true},
    {.in = {"b1t7h3r3d5", "b1t7h3z2d5", "b1t7h3r3d5", "b1h3r3t7", "b1t7h3r3d5"},
     .attr = {2},
     .positive = true},
    {.in = {"b2t67h1r2d3", "b2t67h1z2d3", "b2t67h1r2d3", "b2h1r2t67", "b2t67h1r2d3"},
     .positive = true},
    {.in = {0}},
};

const sk_op sk_op_attention_kv_grad = {
    .name = "attention_kv_grad",
    .doc = "gradient of attention_kv: of my queries, and what they give to all keys and values",
    .dims = "bthr!d!,bt^hz!d!,bthrd,bhrt,bthrd->bthrd,bt^hzd",
    .n_in = 5,
    .n_out = 2,
    .types = "xxxfx>xx",
    .flags = SK_OP_ADDS,
    .flops = flops,
    .shape = shape,
    .scratch = scratch,
    .workspace = workspace,
    .cpu = cpu,
    .samples = samples,
};
