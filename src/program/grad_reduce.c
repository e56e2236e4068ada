/* grad_reduce.c - gradients that are partial sums, reduced over all axes: a list of gradients
 * becomes one call per axis and element type.
 *
 * Where the optimizer sees a shard, the sum over the shard axis is a reduce-scatter, and the
 * reductions over other axes are of shards.  Gradients may be encoded on their way (codec_calls.c),
 * or be summed as factors (grad_low_rank.c).  Adasum comes behind all sums (grad_adasum.c).  In
 * deterministic order axes are reduced in the order in which they split the batch, the finest
 * first: that is the order of the tree.
 *
 * Without a shard axis, a gradient that is a partial sum over several axes of the batch goes down
 * and up again (Cho et al. 2019, BlueConnect; Mikami et al. 2018): a reduce-scatter over each but
 * the last, an all-reduce of the rank's part over the last, all-gathers back.  Later axes
 * move 1/n of what two all-reduces would; each element is added in the same order.  A gradient
 * whose elements n does not divide is summed over that axis as a whole. */
#include "program/lowering.h"

#include <string.h>

static sk_param_plan *plan_of(const sk_lowering *e, int param) { return &e->p->params.v[param]; }

/* Is this gradient summed over the shard axis by a reduce-scatter?  If nothing is split over that
 * axis, every rank has the complete sum already, and its shard is a slice of it. */
static bool is_partial(const sk_lowering *e, const sk_param_plan *q, int axis)
{
    return e->plan.grad_made[q->tensor->id].how[axis] == SK_PARTIAL;
}

static bool scattered(const sk_lowering *e, const sk_param_plan *q, int axis)
{
    return sk_lower_is_cut(e, q) && !sk_adasum_scatters(e, q) && !sk_lower_low_rank(e, q) &&
           is_partial(e, q, axis);
}

/* Is it summed over this axis while it is cut?  Not in deterministic order over two axes: shards
 * are cut by one order of these and sums are taken in the other. */
static bool sums_while_cut(const sk_lowering *e, const sk_param_plan *q, int axis)
{
    int axes[SK_SHARD_LEVELS], n = sk_lower_levels(e, q, axes), partial = 0;
    bool of_these = false;
    for (int k = 0; k < n; k++) {
        partial += is_partial(e, q, axes[k]);
        of_these |= axes[k] == axis;
    }
    return of_these && !(e->l->canonical && partial > 1);
}

/* The k-th axis to reduce over: in deterministic order the finest split of the batch first;
 * otherwise the shard axis first, so that the others reduce only shards. */
static int kth_axis(const sk_lowering *e, int k)
{
    const sk_layout *l = e->l;
    return sk_layout_cutter(l, l->canonical ? e->g->batch : 0, l->mesh.n - 1 - k);
}

/* Replicas sum no gradients with each other, but for the steps before they are replicas. */
static bool partial_over(const sk_lowering *e, const sk_param_plan *q, int axis)
{
    if (sk_layout_local(e->l, axis) && !sk_layout_local_from(e->l, axis)) return false;
    if (sk_is_timed(e, axis)) return false; /* COMMIT sums them, or nobody does */
    if (sk_layout_local(e->l, axis) && sk_lower_per_task(e))
        return false;                             /* sk_reduce_together() */
    if (sums_while_cut(e, q, axis)) return false; /* scattered or sliced */
    if (axis == sk_lower_code_axis(e) && sk_lower_grads_as(e, q)) return false; /* sum_coded() */
    if (sk_coded_hop(e, q, axis) || sk_union_over(e, q, axis)) return false;
    if (axis == sk_layout_adasum(e->l) && sk_adasum_joins(e, q)) return false;
    if (sk_grad_rows(e, q, axis, &(sk_codec){0})) return false; /* sk_reduce_grad_rows() */
    if (sk_lower_low_rank(e, q) && !sk_layout_local(e->l, axis)) return false;
    return e->plan.grad_made[q->tensor->id].how[axis] == SK_PARTIAL;
}

/* One more gradient for one of the calls on an axis; the first opens it. */
static void join_scatter(sk_lowering *e, int *calls, const sk_param_plan *q, int axis, int whole,
                         int piece)
{
    int *call = &calls[sk_narrow(q->tensor)];
    if (sk_lower_grads_as(e, q)) {
        sk_coded x = {.q = q,
                      .codec = sk_lower_grads_as(e, q),
                      .axis = sk_lower_code_axis(e),
                      .from = whole,
                      .part = piece};
        sk_join_coded(e, &calls[SK_CODED], &x);
        return;
    }
    const sk_extent *box = &e->p->bufs.v[whole].box;
    if (*call < 0)
        *call = sk_lower_call(e, SK_REDUCE_SCATTER, SK_SUM, q->tensor->type, axis,
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

/* Is it encoded, and not sharded? */
static bool wants_coded(const sk_lowering *e, const sk_param_plan *q)
{
    return e->l->shard_axis < 0 && sk_lower_grads_as(e, q);
}

static bool in_hops(const sk_lowering *e, const sk_param_plan *q)
{
    bool any = false;
    for (int a = 0; a < e->l->mesh.n; a++) any |= sk_coded_hop(e, q, a);
    return any;
}

/* --- a list of gradients --- */

/* Encoded sums that every rank needs complete. */
static void reduce_coded(sk_lowering *e, const sk_grad_at *v, int n)
{
    sk_coded *all = sk_many(e->tmp, sk_coded, n + 1);
    int n_all = 0;
    for (int i = 0; i < n; i++) {
        const sk_param_plan *q = plan_of(e, v[i].param);
        if (!wants_coded(e, q) || in_hops(e, q) || sk_union_sums(e, q)) continue;
        sk_coded x = {.q = q,
                      .codec = sk_lower_grads_as(e, q),
                      .axis = sk_lower_code_axis(e),
                      .from = v[i].whole,
                      .whole = v[i].whole};
        all[n_all++] = sk_coded_whole(e, x);
    }
    sk_sum_coded(e, all, n_all);
    if (e->l->shard_axis < 0) sk_sum_hops(e, v, n);
    if (e->l->shard_axis < 0) sk_sum_unions(e, v, n);
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
    if (sk_layout_local(e->l, axis)) e->at.sync = sk_together_due(e, axis);
    start_all(e, calls, flies);
    e->at.sync = (sk_step_due){0};
}

/* From `from`, which this axis cuts next, to `to`.  A gradient that is not scattered is complete on
 * every rank; the rank's shard is a part or a slice of it. */
static void cut_over(sk_lowering *e, int calls[][SK_WIDTHS], const sk_param_plan *q, int axis,
                     int from, int to)
{
    if (scattered(e, q, axis) && sums_while_cut(e, q, axis))
        join_scatter(e, calls[axis], q, axis, from, to);
    else if (sk_buffer_root(e->p, from) != sk_buffer_root(e->p, to))
        sk_lower_move(e, SK_DO_SLICE, from, to);
}

/* Over one axis; over two, the coarser one first, into its place in the whole gradient. */
static void scatter(sk_lowering *e, const sk_grad_at *v, int n, sk_flies flies)
{
    int *at = sk_many(e->tmp, int, n + 1);
    for (int i = 0; i < n; i++) at[i] = v[i].whole;
    for (int level = SK_SHARD_LEVELS - 1; level >= 0; level--) {
        int calls[SK_MAX_AXES][SK_WIDTHS], axis[SK_SHARD_LEVELS];
        memset(calls, -1, sizeof calls);
        for (int i = 0; i < n; i++) {
            const sk_param_plan *q = plan_of(e, v[i].param);
            if (sk_lower_levels(e, q, axis) <= level || sk_adasum_scatters(e, q)) continue;
            int to = level ? sk_lower_between(e, q, v[i].whole) : v[i].piece;
            cut_over(e, calls, q, axis[level], at[i], to);
            at[i] = to;
        }
        for (int a = 0; a < e->l->mesh.n; a++) start_all(e, calls[a], flies);
    }
}

/* --- several axes of the batch, no shard axis --- */

/* Is the gradient a partial sum over this axis of the batch, and over nothing that replicas need?
 */
static bool over_batch(const sk_lowering *e, const sk_param_plan *q, int axis)
{
    return e->l->mesh.size[axis] > 1 && sk_layout_splits(e->l, axis, e->g->batch) &&
           !sk_layout_local(e->l, axis) && partial_over(e, q, axis);
}

/* The k-th axis, where there is no shard axis.  The axis that goes first moves most: with several
 * of the batch, the one along which ranks are neighbours, if the order of sums is free. */
static int level_axis(const sk_lowering *e, int k)
{
    const sk_layout *l = e->l;
    int batch = 0;
    for (int a = 0; a < l->mesh.n; a++)
        batch += l->mesh.size[a] > 1 && sk_layout_splits(l, a, e->g->batch);
    return batch > 1 && !l->canonical ? sk_layout_cutter(l, 0, k) : kth_axis(e, k);
}

/* Is the k-th axis one that another axis of the batch follows?  An algorithm that is pinned for
 * its all-reduce keeps it; parts must be alike, since ranks of one class have one program; and
 * gradients that are offloaded are fetched as a whole. */
static bool goes_down(const sk_lowering *e, const sk_param_plan *q, int buf, int k)
{
    int axis = level_axis(e, k);
    const sk_extent *box = &e->p->bufs.v[buf].box;
    if (sk_box_count(box, 0, box->n) % e->l->mesh.size[axis]) return false;
    if (e->l->shard_axis >= 0 || e->l->home[SK_GRAD] || !over_batch(e, q, axis)) return false;
    if (sk_pins_of(&e->opts->pins, SK_ALLREDUCE, axis) != SK_PIN_NONE) return false;
    for (k++; k < e->l->mesh.n; k++)
        if (over_batch(e, q, level_axis(e, k))) return true;
    return false;
}

/* This rank's part of a gradient, which is cut as a row of numbers. */
static int flat_part(sk_lowering *e, int whole, int axis)
{
    const sk_group *g = &e->p->groups[axis];
    const sk_buffer w = e->p->bufs.v[whole];
    int64_t all = sk_box_count(&w.box, 0, w.box.n), from, to;
    sk_cut(all, g->me, g->n, &from, &to);
    sk_extent box = {.n = 1, .at = {from}, .size = {to - from}, .full = {all}};
    int part = sk_lower_buffer(e, w.name, NULL, w.kind, w.type, box);
    e->p->bufs.v[part].within = whole;
    e->p->bufs.v[part].part_at = from * (int64_t)sk_dtype_size(w.type);
    return part;
}

static void join_part(sk_lowering *e, int *call, sk_coll_kind kind, int axis,
                      const sk_param_plan *q, int whole, int part)
{
    bool down = kind == SK_REDUCE_SCATTER;
    const sk_buffer w = e->p->bufs.v[whole];
    if (*call < 0)
        *call = sk_lower_call(
            e, kind, SK_SUM, q->tensor->type, axis,
            sk_print(e->p->arena, "%s from %s", down ? "grads" : "sums", q->tensor->name));
    sk_lower_seg(e, *call, down ? whole : part, down ? part : whole, 1,
                 sk_box_count(&w.box, 0, w.box.n), 1);
}

/* at[k][i]: what gradient i is when the k-th axis comes. */
typedef int level[SK_MAX_AXES + 1];

static void go_down(sk_lowering *e, const sk_grad_at *v, int n, level *at, int k, sk_flies flies)
{
    int calls[SK_WIDTHS] = {-1, -1, -1};
    for (int i = 0; i < n; i++) {
        const sk_param_plan *q = plan_of(e, v[i].param);
        at[i][k + 1] = at[i][k];
        if (!goes_down(e, q, at[i][k], k)) continue;
        at[i][k + 1] = flat_part(e, at[i][k], level_axis(e, k));
        join_part(e, &calls[sk_narrow(q->tensor)], SK_REDUCE_SCATTER, level_axis(e, k), q, at[i][k],
                  at[i][k + 1]);
    }
    start_all(e, calls, flies);
}

static void go_up(sk_lowering *e, const sk_grad_at *v, int n, level *at, int k, sk_flies flies)
{
    int calls[SK_WIDTHS] = {-1, -1, -1};
    for (int i = 0; i < n; i++) {
        const sk_param_plan *q = plan_of(e, v[i].param);
        if (at[i][k + 1] != at[i][k])
            join_part(e, &calls[sk_narrow(q->tensor)], SK_ALLGATHER, level_axis(e, k), q, at[i][k],
                      at[i][k + 1]);
    }
    start_all(e, calls, flies);
}

/* Those that do not go down over the k-th axis, and are partial over it. */
static void sum_level(sk_lowering *e, const sk_grad_at *v, int n, level *at, int k, sk_flies flies)
{
    sk_grad_at *rest = sk_many(e->tmp, sk_grad_at, n + 1);
    int n_rest = 0;
    for (int i = 0; i < n; i++) {
        bool adasum = sk_adasum_scatters(e, plan_of(e, v[i].param));
        if (at[i][k + 1] == at[i][k])
            rest[n_rest++] = (sk_grad_at){v[i].param, adasum ? v[i].whole : at[i][k], at[i][k]};
    }
    sum_over(e, rest, n_rest, level_axis(e, k), true, flies);
}

static void reduce_levels(sk_lowering *e, const sk_grad_at *v, int n, sk_flies flies)
{
    level *at = sk_many(e->tmp, level, n + 1);
    for (int i = 0; i < n; i++) at[i][0] = v[i].piece;
    for (int k = 0; k < e->l->mesh.n; k++) {
        go_down(e, v, n, at, k, flies);
        sum_level(e, v, n, at, k, flies);
    }
    for (int k = e->l->mesh.n - 1; k >= 0; k--) go_up(e, v, n, at, k, flies);
}

/* --- all of it --- */

static void reduce_all(sk_lowering *e, const sk_grad_at *v, int n, sk_flies flies)
{
    bool cut = e->l->shard_axis < 0;
    int shards = 1 + (e->l->shard_second > 0); /* axes of shards to come */
    reduce_coded(e, v, n);
    sk_reduce_low_rank(e, v, n, false);
    if (cut) {
        reduce_levels(e, v, n, flies);
        for (int k = 0; k < e->l->mesh.n; k++) sk_reduce_grad_rows(e, v, n, kth_axis(e, k), flies);
        sk_join_adasum(e, v, n, false);
        return;
    }
    for (int k = 0; k < e->l->mesh.n; k++) {
        int axis = kth_axis(e, k);
        sum_over(e, v, n, axis, cut, flies);
        if (!sk_layout_shards(e->l, axis) || --shards) continue;
        scatter(e, v, n, flies);
        cut = true;
    }
    sk_sum_hops(e, v, n);
    sk_join_adasum(e, v, n, false);
}

/* Before replicas are on their own they sum what each has of the whole step: once, and not for
 * every micro-batch, and in canonical order behind all of its micro-batches, as replicas cut the
 * batch before these do. */
void sk_reduce_together(sk_lowering *e)
{
    for (int k = 0; sk_lower_per_task(e) && k < e->l->mesh.n; k++) {
        int axis = kth_axis(e, k), calls[SK_WIDTHS] = {-1, -1, -1};
        if (!sk_layout_local(e->l, axis) || !sk_layout_local_from(e->l, axis)) continue;
        for (int i = 0; i < e->p->params.n; i++) {
            const sk_param_plan *q = plan_of(e, i);
            if (e->plan.grad_made[q->tensor->id].how[axis] == SK_PARTIAL)
                join_sum(e, &calls[sk_narrow(q->tensor)], axis, q, q->grad_shard);
        }
        e->at.sync = sk_together_due(e, axis);
        start_all(e, calls, SK_FLIES_NOT);
        e->at.sync = (sk_step_due){0};
    }
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
