/* coded_sums.c - sums over the ranks of an axis of what is encoded: rows go to their owners by an
 * all-to-all of bytes, who decode and sum them; where every rank needs the sums, these are encoded
 * once more and gathered.  For gradients (grad_reduce.c) and for what an optimizer sends
 * (sent_state.c).
 *
 * Over several axes of the batch encoded gradients go in hops, as in ZeRO++ (Wang et al. 2023): an
 * all-to-all over each axis, with a sum and an encoding between them, so that of what leaves a host
 * each rank sends its part of the host's sum.  On the way back the codes of the sums are gathered
 * axis by axis, and decoded once. */
#include "program/lowering.h"

/* The rows of the error feedback that belong to rows of the gradient `whole`; -1: there is none. */
static int error_rows(sk_lowering *e, const sk_param_plan *q, int whole, int rows)
{
    if (q->error < 0) return -1;
    const sk_buffer part = e->p->bufs.v[rows], w = e->p->bufs.v[whole];
    sk_extent box = e->p->bufs.v[q->error].box;
    int64_t row = sk_box_count(&w.box, 1, w.box.n) * (int64_t)sizeof(real);
    box.at[1] = part.box.at[0];
    box.size[1] = part.box.size[0];
    int error = sk_lower_buffer(e, e->p->bufs.v[q->error].name, NULL, SK_OPTIM, SK_F32, box);
    e->p->bufs.v[error].within = q->error;
    e->p->bufs.v[error].part_at = (part.box.at[0] - w.box.at[0]) * row;
    e->p->bufs.v[error].keep = true;
    return error;
}

/* Of what was summed over another axis before, the loss is added to that of the rank's own term. */
static int encode(sk_lowering *e, const sk_coded *x)
{
    if (!x->hop) return sk_lower_encode(e, x->codec, x->q, x->from, x->q->error, false);
    int error = error_rows(e, x->q, x->whole, x->from);
    int code = sk_lower_encode(e, x->codec, x->q, x->from, error, true);
    sk_inst *in = &e->p->insts.v[e->p->insts.n - 1];
    in->term = 1 + x->q->term;
    in->stream += (uint64_t)x->hop;
    return code;
}

void sk_join_coded(sk_lowering *e, int *call, const sk_coded *x)
{
    int n = e->l->mesh.size[x->axis];
    if (*call < 0)
        *call = sk_lower_call(
            e, SK_ALLTOALL, SK_SUM, SK_U8, x->axis,
            sk_print(e->p->arena, "%s from %s", x->what ? x->what : "grads", x->q->tensor->name));
    int code = encode(e, x), came = sk_lower_code(e, x->codec, x->part, n);
    const sk_extent box = e->p->bufs.v[code].box;
    sk_lower_rows(e, *call, code, came, &box, 0);
    sk_lower_then(e, *call,
                  (sk_then){SK_DO_DECODE, came, x->part, n, x->codec,
                            sk_lower_stream(x->q) + (uint64_t)x->hop});
}

sk_coded sk_coded_whole(sk_lowering *e, sk_coded x)
{
    const sk_group *g = &e->p->groups[x.axis];
    x.part = sk_lower_part(e, x.whole, g->me, g->n);
    x.error = error_rows(e, x.q, x.whole, x.part);
    return x;
}

/* The owner of a row adds the error of encoding the sum to the error of its own term. */
void sk_sum_coded(sk_lowering *e, const sk_coded *v, int n)
{
    int there = -1, back = -1;
    for (int i = 0; i < n; i++) sk_join_coded(e, &there, &v[i]);
    if (there >= 0) sk_lower_start(e, there, SK_FLIES_NOT);
    for (int i = 0; i < n; i++) {
        const sk_coded *x = &v[i];
        if (back < 0)
            back = sk_lower_call(e, SK_ALLGATHER, SK_SUM, SK_U8, x->axis,
                                 sk_print(e->p->arena, "sums from %s", x->q->tensor->name));
        int code = sk_lower_encode(e, x->codec, x->q, x->part, x->error, true);
        int came = sk_lower_code(e, x->codec, x->whole, 1);
        const sk_extent box = e->p->bufs.v[came].box;
        sk_lower_rows(e, back, code, came, &box, 0);
        sk_lower_then(e, back,
                      (sk_then){SK_DO_DECODE, came, x->whole, 1, x->codec, sk_lower_stream(x->q)});
    }
    if (back >= 0) sk_lower_start(e, back, SK_FLIES_NOT);
}

/* --- several axes of the batch --- */

/* Rows must divide: ranks of one class have one program. */
static bool rows_divide(const sk_lowering *e, const sk_param_plan *q)
{
    sk_extent box =
        sk_shard_of(e->g, e->l, q->tensor->letters, &q->used, e->p->coord, -1, e->p->n_micro);
    int64_t n = 1;
    for (int a = 0; a < e->l->mesh.n; a++)
        if (sk_layout_splits(e->l, a, e->g->batch) && !sk_layout_local(e->l, a))
            n *= e->l->mesh.size[a];
    return box.size[0] % n == 0;
}

bool sk_coded_hop(const sk_lowering *e, const sk_param_plan *q, int axis)
{
    const sk_layout *l = e->l;
    if (axis == sk_lower_code_axis(e) || l->mesh.size[axis] < 2 || l->home[SK_GRAD]) return false;
    if (!sk_layout_splits(l, axis, e->g->batch) || sk_layout_local(l, axis)) return false;
    if (e->plan.grad_made[q->tensor->id].how[axis] != SK_PARTIAL) return false;
    return sk_lower_grads_as(e, q) && !sk_union_sums(e, q) && rows_divide(e, q);
}

/* What a gradient is between hops. */
typedef struct hops {
    sk_coded x;
    int n, axis[SK_MAX_AXES], at[SK_MAX_AXES + 1]; /* at[0]: where the sum belongs */
} hops;

static bool begin(sk_lowering *e, const sk_grad_at *v, hops *h)
{
    const sk_param_plan *q = &e->p->params.v[v->param];
    bool cut = e->l->shard_axis >= 0, any = false;
    for (int a = 0; a < e->l->mesh.n; a++) any |= sk_coded_hop(e, q, a);
    *h = (hops){.x = {.q = q, .codec = sk_lower_grads_as(e, q), .whole = v->whole, .hop = cut},
                .at = {cut ? v->piece : v->whole}};
    return any;
}

static void hop_over(sk_lowering *e, hops *h, int n, int axis)
{
    const sk_group *g = &e->p->groups[axis];
    int call = -1;
    for (int i = 0; i < n; i++) {
        bool first = e->l->shard_axis < 0 && axis == sk_lower_code_axis(e);
        if (!first && !sk_coded_hop(e, h[i].x.q, axis)) continue;
        h[i].x.axis = h[i].axis[h[i].n] = axis;
        h[i].x.from = h[i].at[h[i].n++];
        h[i].x.part = h[i].at[h[i].n] = sk_lower_part(e, h[i].x.from, g->me, g->n);
        sk_join_coded(e, &call, &h[i].x);
        h[i].x.hop++;
    }
    if (call >= 0) sk_lower_start(e, call, SK_FLIES_NOT);
}

/* Codes of sums are gathered along an axis; behind the last one they are decoded. */
static void back_over(sk_lowering *e, hops *h, int *code, int n, int axis)
{
    int call = -1;
    for (int i = 0; i < n; i++) {
        const sk_coded *x = &h[i].x;
        if (!h[i].n || h[i].axis[h[i].n - 1] != axis) continue;
        if (call < 0)
            call = sk_lower_call(e, SK_ALLGATHER, SK_SUM, SK_U8, axis,
                                 sk_print(e->p->arena, "sums from %s", x->q->tensor->name));
        int to = h[i].at[--h[i].n], came = sk_lower_code(e, x->codec, to, 1);
        const sk_extent box = e->p->bufs.v[came].box;
        sk_lower_rows(e, call, code[i], came, &box, 0);
        code[i] = came;
        if (!h[i].n)
            sk_lower_then(e, call,
                          (sk_then){SK_DO_DECODE, came, to, 1, x->codec, sk_lower_stream(x->q)});
    }
    if (call >= 0) sk_lower_start(e, call, SK_FLIES_NOT);
}

/* Axes along which ranks are neighbours go first: what leaves a host is summed before. */
void sk_sum_hops(sk_lowering *e, const sk_grad_at *v, int n)
{
    hops *h = sk_many(e->tmp, hops, n + 1);
    int *code = sk_many(e->tmp, int, n + 1), n_hops = 0, axes = e->l->mesh.n;
    for (int i = 0; i < n; i++) n_hops += begin(e, &v[i], &h[n_hops]);
    for (int k = 0; k < axes; k++) hop_over(e, h, n_hops, sk_layout_cutter(e->l, 0, k));
    for (int i = 0; i < n_hops; i++) {
        int last = h[i].at[h[i].n];
        code[i] = sk_lower_encode(e, h[i].x.codec, h[i].x.q, last,
                                  error_rows(e, h[i].x.q, h[i].x.whole, last), true);
    }
    for (int k = axes - 1; k >= 0; k--) back_over(e, h, code, n_hops, sk_layout_cutter(e->l, 0, k));
}
