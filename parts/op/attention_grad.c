/* attention_grad.c - the gradient of attention, with its probabilities recomputed.
 *
 * Keys and values of a head group gather from all its queries, so a thread owns
 * whole groups: it clears their gradient, and every query head adds to it
 * (kernel/causal_attention.h). attr[0]: as attention's. */
#include "graph/graph.h"
#include "kernel/kernel_launch.h"
#include "kernel/causal_attention.h"

static sk_times times(const sk_args *a)
{
    const sk_view *x = &a->in[0];
    return (sk_times){x->at[1], x->size[1], x->at[1], x->size[1], x->full[1], (int)a->attr[0]};
}

static sk_attend_grad head_at(const sk_args *a, int64_t group, int64_t j)
{
    const sk_view *x = &a->in[0];
    int64_t time = x->size[1], heads = x->size[2], slots = x->size[3], d = x->size[4];
    int64_t r = slots - 2, b = group / heads, h = group % heads;
    int64_t at = (b * time * heads + h) * slots * d, at_y = ((b * time * heads + h) * r + j) * d;
    const real *p = (const real *)x->data + at;
    real *dp = (real *)a->out[0].data + at;
    return (sk_attend_grad){
        .q = p + j * d,
        .k = p + r * d,
        .v = p + (r + 1) * d,
        .y = (const real *)a->in[1].data + at_y,
        .lse = (const real *)a->in[2].data + (group * r + j) * time,
        .dy = (const real *)a->in[3].data + at_y,
        .dq = dp + j * d,
        .dk = dp + r * d,
        .dv = dp + (r + 1) * d,
        .step_q = heads * slots * d,
        .step_kv = heads * slots * d,
        .step_y = heads * r * d,
        .d = d,
        .time = times(a),
    };
}

static void clear(const sk_attend_grad *h) /* the value's gradient follows the key's */
{
    for (int64_t t = 0; t < h->time.k_n; t++)
        memset(h->dk + t * h->step_kv, 0, (size_t)(2 * h->d) * sizeof(real));
}

static void cpu(const sk_args *a)
{
    const sk_view *x = &a->in[0];
    int64_t r = x->size[3] - 2, from, to;
    sk_share(a, x->size[0] * x->size[2], &from, &to);
    for (int64_t group = from; group < to; group++)
        for (int64_t j = 0; j < r; j++) {
            sk_attend_grad h = head_at(a, group, j);
            if (!j) clear(&h);
            sk_attend_grad_head(&h, a->scratch);
        }
}

static size_t scratch(const sk_args *a)
{
    sk_times t = times(a);
    return sk_attend_grad_scratch(&t);
}

/* Of a GPU: two numbers a row for our own kernels; cuDNN's gradient keeps a square of scores in
 * bf16 for every head it has under way and, of grouped heads, dk and dv (kernel/cuda/cudnn_sdpa.h).
 * Up to MOST_ROOM it gets as much as it can use, and beyond that never more than one group needs: 2
 * GiB at 32,768 tokens, 8 GiB for four heads that share a key, or at 65,536.  Where that is over
 * MOST_GROUP it gets nothing, our own kernels do it, and the run says so at its start. */
#define MOST_ROOM  ((int64_t)2304 << 20)
#define MOST_GROUP ((int64_t)9 << 30)

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

static size_t workspace(const sk_args *a)
{
    const sk_view *x = &a->in[0];
    int64_t t = x->size[1], r = x->size[3] - 2, d = x->size[4], groups = x->size[0] * x->size[2];
    int64_t square = 2 * round_up(t, 64) * round_up(t, 128), apart = r > 1 ? 4 * t * d : 0;
    int64_t group = r * (square + apart + 8 * t) + 4096, need = 8 * groups * r * t;
    bool narrow = x->type == SK_BF16 || x->type == SK_F16;
    if (narrow && d % 8 == 0 && a->attr[0] <= 1 && group <= MOST_GROUP) {
        int64_t most = group > MOST_ROOM ? group : MOST_ROOM;
        int64_t want = groups * group < most ? groups * group : most;
        if (want > need) need = want;
    }
    return need > SK_WORKSPACE ? (size_t)(need - SK_WORKSPACE) : 0;
}

/* Five products over the pairs that see each other. */
static double flops(const sk_args *a)
{
    const sk_view *y = &a->in[1];
    sk_times t = times(a);
    return 10 * sk_attend_pairs(&t) * (double)(y->size[0] * sk_span(y, 2, 5));
}

static void shape(const sk_args *a, sk_kernel_shape *s)
{
    const sk_view *q = &a->in[0];
    s->kind = SK_KERNEL_ATTENTION_GRAD;
    sk_attention_shape(s, q, q->size[2] * (q->size[3] - 2), q->size[1]);
}

static const sk_sample samples[] = {
    {.in = {"b2t5h2s3d4", "b2t5h2r1d4", "b2h2r1t5", "b2t5h2r1d4"}, .positive = true},
    {.in = {"b1t3h3s5d7", "b1t3h3r3d7", "b1h3r3t3", "b1t3h3r3d7"}, .positive = true},
    {.in = {"b2t67h1s4d3", "b2t67h1r2d3", "b2h1r2t67", "b2t67h1r2d3"}, .positive = true},
    {.in = {0}},
};

const sk_op sk_op_attention_grad = {
    .name = "attention_grad",
    .doc = "gradient of attention with respect to queries, keys and values",
    .dims = "bt!hs!d!,bthr!d,bhr!t,bthr!d->bthsd",
    .n_in = 4,
    .types = "xxfx>x",
    .flops = flops,
    .shape = shape,
    .scratch = scratch,
    .workspace = workspace,
    .cpu = cpu,
    .samples = samples,
};
