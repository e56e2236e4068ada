/* grad_reduce.c - gradients that are partial sums, reduced over all axes: a list of gradients
 * becomes one call per axis and element type.
 *
 * Where the optimizer sees a shard, the sum over the shard axis is a reduce-scatter, and the
 * reductions over other axes are of shards.  Gradients may be encoded on their way (codec_calls.c),
 * or be summed as factors (grad_low_rank.c).  Adasum comes behind all sums (grad_adasum.c).  In
 * deterministic order axes are reduced in the order in which they split the batch, the finest
 * first: that is the order of the tree. */
#include "program/lowering.h"

#include <string.h>

static sk_param_plan *plan_of(const sk_lowering *e, int param) { return &e->p->params.v[param]; }

/* Is this gradient summed over the shard axis by a reduce-scatter?  If nothing is split over that
 * axis, every rank has the complete sum already, and its shard is a slice of it. */
static bool scattered(const sk_lowering *e, const sk_param_plan *q)
{
    return sk_lower_is_cut(e, q) && !sk_adasum_scatters(e, q) && !sk_lower_low_rank(e, q) &&
           e->plan.grad_made[q->tensor->id].how[e->l->shard_axis] == SK_PARTIAL;
}

/* The k-th axis to reduce over: in deterministic order the finest split of the batch first;
 * otherwise the shard axis first, so that the others reduce only shards. */
static int kth_axis(const sk_lowering *e, int k)
{
    const sk_layout *l = e->l;
    return sk_layout_cutter(l, l->canonical, l->mesh.n - 1 - k);
}

/* Replicas sum no gradients with each other, but for the steps before they are replicas. */
static bool partial_over(const sk_lowering *e, const sk_param_plan *q, int axis)
{
    if (sk_layout_local(e->l, axis) && !e->l->sync[axis].from) return false;
    if (axis == e->l->shard_axis && sk_lower_is_cut(e, q)) return false; /* scattered or sliced */
    if (axis == sk_lower_code_axis(e) && sk_lower_grads_as(e, q)) return false; /* sum_coded() */
    if (axis == sk_layout_adasum(e->l) && sk_adasum_joins(e, q)) return false;
    if (sk_grad_rows(e, q, axis, &(sk_codec){0})) return false; /* sk_reduce_grad_rows() */
    if (sk_lower_low_rank(e, q) && !sk_layout_local(e->l, axis)) return false;
    return e->plan.grad_made[q->tensor->id].how[axis] == SK_PARTIAL;
}

/* Encoded rows go to their owners, who decode and sum them: one more gradient for the call. */
static void join_coded(sk_lowering *e, int *call, const sk_param_plan *q, int whole, int piece)
{
    const sk_codec *c = sk_lower_grads_as(e, q);
    int axis = sk_lower_code_axis(e), n = e->l->mesh.size[axis];
    if (*call < 0)
        *call = sk_lower_call(e, SK_ALLTOALL, SK_SUM, SK_U8, axis,
                              sk_print(e->p->arena, "grads from %s", q->tensor->name));
    int code = sk_lower_encode(e, c, q, whole, q->error, false),
        came = sk_lower_code(e, c, piece, n);
    const sk_extent box = e->p->bufs.v[code].box;
    sk_lower_rows(e, *call, code, came, &box, 0);
    sk_lower_then(e, *call, (sk_then){SK_DO_DECODE, came, piece, n, c, sk_lower_stream(q)});
}

/* One more gradient for one of the calls on an axis; the first opens it. */
static void join_scatter(sk_lowering *e, int *calls, const sk_param_plan *q, int whole, int piece)
{
    int *call = &calls[sk_narrow(q->tensor)];
    if (sk_lower_grads_as(e, q)) {
        join_coded(e, &calls[SK_CODED], q, whole, piece);
        return;
    }
    const sk_extent *box = &e->p->bufs.v[whole].box;
    if (*call < 0)
        *call = sk_lower_call(e, SK_REDUCE_SCATTER, SK_SUM, q->tensor->type, e->l->shard_axis,
                              sk_print(e->p->arena, "grads from %s", q->tensor->name));
    sk_lower_rows(e, *call, whole, piece, box, 0);
}

static void join_sum(sk_lowering *e, int *call, int axis, const sk_param_plan *q, int buf)
{
    const sk_extent *box = &e->p->bufs.v[buf].box;
    if (*call < 0)
        *call = sk_lower_call(e, SK_ALLREDUCE, SK_SUM, q->tensor->type, axis,
                              sk_print(e->p->arena, "grads from %s", q->tensor->name));
    sk_lower_seg(e, *call, buf, buf, 1, sk_box_count(box, 0, box->n), 1);
}

/* --- encoded sums that every rank needs complete --- */

typedef struct coded { /* a gradient, this rank's rows of it, and the error of these rows */
    const sk_param_plan *q;
    int whole, part, error;
} coded;

typedef struct codeds {
    coded *v;
    int n, cap;
} codeds;

/* Is it encoded, and not sharded? */
static bool wants_coded(const sk_lowering *e, const sk_param_plan *q)
{
    return e->l->shard_axis < 0 && sk_lower_grads_as(e, q);
}

static void add_coded(sk_lowering *e, codeds *all, const sk_param_plan *q, int whole)
{
    const sk_group *g = &e->p->groups[sk_lower_code_axis(e)];
    coded x = {.q = q, .whole = whole, .part = sk_lower_part(e, whole, g->me, g->n), .error = -1};
    if (q->error >= 0) {
        const sk_buffer part = e->p->bufs.v[x.part], w = e->p->bufs.v[whole];
        sk_extent box = e->p->bufs.v[q->error].box;
        int64_t row = sk_box_count(&w.box, 1, w.box.n) * (int64_t)sizeof(real);
        box.at[1] = part.box.at[0];
        box.size[1] = part.box.size[0];
        x.error = sk_lower_buffer(e, e->p->bufs.v[q->error].name, NULL, SK_OPTIM, SK_F32, box);
        e->p->bufs.v[x.error].within = q->error;
        e->p->bufs.v[x.error].part_at = (part.box.at[0] - w.box.at[0]) * row;
        e->p->bufs.v[x.error].keep = true;
    }
    *(coded *)sk_push(e->tmp, all) = x;
}

/* Rows to their owners, who sum them; sums back to all.  The owner of a row adds the error of
 * encoding the sum to the error of its own term. */
static void sum_coded(sk_lowering *e, const codeds *all)
{
    int axis = sk_lower_code_axis(e), there = -1, back = -1;
    for (int i = 0; i < all->n; i++)
        join_coded(e, &there, all->v[i].q, all->v[i].whole, all->v[i].part);
    if (there >= 0) sk_lower_start(e, there, SK_FLIES_NOT);
    for (int i = 0; i < all->n; i++) {
        const coded *x = &all->v[i];
        const sk_codec *c = sk_lower_grads_as(e, x->q);
        if (back < 0)
            back = sk_lower_call(e, SK_ALLGATHER, SK_SUM, SK_U8, axis,
                                 sk_print(e->p->arena, "sums from %s", x->q->tensor->name));
        int code = sk_lower_encode(e, c, x->q, x->part, x->error, true);
        int came = sk_lower_code(e, c, x->whole, 1);
        const sk_extent box = e->p->bufs.v[came].box;
        sk_lower_rows(e, back, code, came, &box, 0);
        sk_lower_then(e, back,
                      (sk_then){SK_DO_DECODE, came, x->whole, 1, c, sk_lower_stream(x->q)});
    }
    if (back >= 0) sk_lower_start(e, back, SK_FLIES_NOT);
}

/* --- a list of gradients --- */

static void reduce_coded(sk_lowering *e, const sk_grad_at *v, int n)
{
    codeds all = {0};
    for (int i = 0; i < n; i++)
        if (wants_coded(e, plan_of(e, v[i].param)))
            add_coded(e, &all, plan_of(e, v[i].param), v[i].whole);
    sum_coded(e, &all);
}

static void start_all(sk_lowering *e, const int *calls, sk_flies flies)
{
    for (int w = 0; w < SK_WIDTHS; w++)
        if (calls[w] >= 0) sk_lower_start(e, calls[w], flies);
}

static void sum_over(sk_lowering *e, const sk_grad_at *v, int n, int axis, bool cut, sk_flies flies)
{
    int calls[SK_WIDTHS] = {-1, -1, -1};
    for (int i = 0; i < n; i++) {
        const sk_param_plan *q = plan_of(e, v[i].param);
        if (partial_over(e, q, axis))
            join_sum(e, &calls[sk_narrow(q->tensor)], axis, q,
                     cut && !sk_adasum_scatters(e, q) ? v[i].piece : v[i].whole);
    }
    if (sk_layout_local(e->l, axis)) e->at.sync.until = e->l->sync[axis].from;
    start_all(e, calls, flies);
    e->at.sync.until = 0;
}

/* A gradient that was not scattered is complete on every rank; the rank's shard is a part or a
 * slice of it. */
static void scatter(sk_lowering *e, const sk_grad_at *v, int n, sk_flies flies)
{
    int calls[SK_WIDTHS] = {-1, -1, -1};
    for (int i = 0; i < n; i++) {
        const sk_param_plan *q = plan_of(e, v[i].param);
        if (!sk_lower_is_cut(e, q) || sk_adasum_scatters(e, q)) continue;
        if (scattered(e, q)) join_scatter(e, calls, q, v[i].whole, v[i].piece);
        else if (e->p->bufs.v[v[i].piece].within != v[i].whole)
            sk_lower_move(e, SK_DO_SLICE, v[i].whole, v[i].piece);
    }
    start_all(e, calls, flies);
}

static void reduce_all(sk_lowering *e, const sk_grad_at *v, int n, sk_flies flies)
{
    bool cut = e->l->shard_axis < 0;
    reduce_coded(e, v, n);
    sk_reduce_low_rank(e, v, n, false);
    for (int k = 0; k < e->l->mesh.n; k++) {
        int axis = kth_axis(e, k);
        sum_over(e, v, n, axis, cut, flies);
        sk_reduce_grad_rows(e, v, n, axis, flies);
        if (axis != e->l->shard_axis) continue;
        scatter(e, v, n, flies);
        cut = true;
    }
    sk_join_adasum(e, v, n, false);
}

/* Symmetric extras go packed. */
static sk_grad_at packed(sk_lowering *e, sk_grad_at at)
{
    const sk_param_plan *q = plan_of(e, at.param);
    if (!q->made) return at;
    int to = at.piece;
    if (sk_lower_is_cut(e, q)) to = sk_lower_piece(e, q->tensor, SK_GRADS, &q->used, -1);
    sk_lower_sym_pack(e, q, at.whole, to);
    at.whole = to;
    return at;
}

/* Those of some updates have calls of their own, which run in these updates alone. */
void sk_reduce_grads(sk_lowering *e, const sk_grad_at *v, int n, sk_flies flies)
{
    char *done = sk_many(e->tmp, char, n + 1);
    sk_grad_at *alike = sk_many(e->tmp, sk_grad_at, n + 1);
    for (int i = 0; i < n; i++) {
        int every = plan_of(e, v[i].param)->every, n_alike = 0;
        if (done[i]) continue;
        e->at.every = every;
        for (int k = i; k < n; k++) {
            if (plan_of(e, v[k].param)->every != every) continue;
            alike[n_alike++] = packed(e, v[k]);
            done[k] = 1;
        }
        reduce_all(e, alike, n_alike, flies);
        e->at.every = 0;
    }
}
