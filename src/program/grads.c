/* grads.c - where gradients go.
 *
 * Usually they are added up in place over the micro-batches and reduced once, at the end, in
 * buckets as they become ready, so that reductions start before the backward pass ends.
 * Buckets are formed by logical sizes, which all ranks see alike, never by the sizes of pieces.
 *
 * Sharded gradients are reduced task by task instead: each rank keeps its piece and adds it to
 * those of earlier micro-batches.  So are all where stages update on their own, and in canonical
 * order (base/cells.h): there micro-batches are the upper part of the tree of sums, ranks the
 * lower, and what several nodes contribute to a tied weight is summed apart and added last, as it
 * is when they sit on two stages.
 *
 * In canonical order axes are taken as they cut the batch, the finest first: that is the order
 * of the tree. */
#include "program/emit.h"

#include <string.h>

static void now(sk_emit *e, int call)
{
    if (call >= 0) sk_emit_start(e, call, SK_FLIES_NOT);
}

static void move(sk_emit *e, sk_act act, int from, int to)
{
    sk_inst *in = sk_emit_inst(e, act);
    in->in[0] = from;
    in->out[0] = to;
}

static sk_param_plan *plan_of(const sk_emit *e, int param) { return &e->p->params.v[param]; }

/* Is this gradient summed over the shard axis by a reduce-scatter?  Where nothing is split over
 * that axis every rank has the whole sum already, and its piece is a slice. */
static bool scattered(const sk_emit *e, const sk_param_plan *q)
{
    return sk_emit_is_cut(e, q) && e->grad_made[q->tensor->id].how[e->l->shard_axis] == SK_PSUM;
}

/* The axis whose turn is the k-th: in canonical order the finest cut of the batch first; otherwise
 * the shard axis, so that the others see only pieces. */
static int turn(const sk_emit *e, int k)
{
    const sk_layout *l = e->l;
    return sk_layout_cutter(l, l->canonical, l->mesh.n - 1 - k);
}

static bool partial_over(const sk_emit *e, const sk_param_plan *q, int axis)
{
    if (axis == e->l->shard_axis && sk_emit_is_cut(e, q)) return false; /* scattered or sliced */
    if (axis == sk_emit_code_axis(e) && sk_emit_grads_as(e, q)) return false; /* sum_coded() */
    return e->grad_made[q->tensor->id].how[axis] == SK_PSUM;
}

/* Encoded rows go to their owners, who decode and sum them: one more gradient for the call. */
static void join_coded(sk_emit *e, int *call, const sk_param_plan *q, int whole, int piece)
{
    const sk_codec *c = sk_emit_grads_as(e, q);
    int axis = sk_emit_code_axis(e), n = e->l->mesh.size[axis];
    if (*call < 0)
        *call = sk_emit_call(e, SK_ALLTOALL, SK_SUM, SK_U8, axis,
                             sk_print(e->p->arena, "grads from %s", q->tensor->name));
    int code = sk_emit_encode(e, c, whole, q->error, false), came = sk_emit_code(e, c, piece, n);
    const sk_extent box = e->p->bufs.v[code].box;
    sk_emit_rows(e, *call, code, came, &box, 0);
    sk_emit_then(e, *call, (sk_then){SK_DO_DECODE, came, piece, n, c});
}

/* One more gradient for one of the calls on an axis; the first opens it. */
static void join_scatter(sk_emit *e, int *calls, const sk_param_plan *q, int whole, int piece)
{
    int *call = &calls[sk_narrow(q->tensor)];
    if (sk_emit_grads_as(e, q)) {
        join_coded(e, &calls[SK_CODED], q, whole, piece);
        return;
    }
    const sk_extent *box = &e->p->bufs.v[whole].box;
    if (*call < 0)
        *call = sk_emit_call(e, SK_REDUCE_SCATTER, SK_SUM, q->tensor->type, e->l->shard_axis,
                             sk_print(e->p->arena, "grads from %s", q->tensor->name));
    sk_emit_rows(e, *call, whole, piece, box, 0);
}

static void join_sum(sk_emit *e, int *call, int axis, const sk_param_plan *q, int buf)
{
    const sk_extent *box = &e->p->bufs.v[buf].box;
    if (*call < 0)
        *call = sk_emit_call(e, SK_ALLREDUCE, SK_SUM, q->tensor->type, axis,
                             sk_print(e->p->arena, "grads from %s", q->tensor->name));
    sk_emit_seg(e, *call, buf, buf, 1, sk_box_count(box, 0, box->n), 1);
}

/* --- encoded sums that every rank wants whole --- */

typedef struct coded { /* a gradient, my rows of it, and where losses of these rows are kept */
    const sk_param_plan *q;
    int whole, part, error;
} coded;

typedef struct codeds {
    coded *v;
    int n, cap;
} codeds;

/* Is it encoded, and not cut? */
static bool wants_coded(const sk_emit *e, const sk_param_plan *q)
{
    return e->l->shard_axis < 0 && sk_emit_grads_as(e, q);
}

static void add_coded(sk_emit *e, codeds *all, const sk_param_plan *q, int whole)
{
    const sk_group *g = &e->p->groups[sk_emit_code_axis(e)];
    coded x = {.q = q, .whole = whole, .part = sk_emit_part(e, whole, g->me, g->n), .error = -1};
    if (q->error >= 0) {
        const sk_buffer part = e->p->bufs.v[x.part], w = e->p->bufs.v[whole];
        sk_extent box = e->p->bufs.v[q->error].box;
        int64_t row = sk_box_count(&w.box, 1, w.box.n) * (int64_t)sizeof(real);
        box.at[1] = part.box.at[0];
        box.size[1] = part.box.size[0];
        x.error = sk_emit_buffer(e, e->p->bufs.v[q->error].name, NULL, SK_OPTIM, SK_F32, box);
        e->p->bufs.v[x.error].within = q->error;
        e->p->bufs.v[x.error].part_at = (part.box.at[0] - w.box.at[0]) * row;
        e->p->bufs.v[x.error].keep = true;
    }
    *(coded *)sk_push(e->tmp, all) = x;
}

/* Rows to their owners, who sum them; sums back to all.  What is lost of a sum its owner adds to
 * what was lost of its own part of it. */
static void sum_coded(sk_emit *e, const codeds *all)
{
    int axis = sk_emit_code_axis(e), there = -1, back = -1;
    for (int i = 0; i < all->n; i++)
        join_coded(e, &there, all->v[i].q, all->v[i].whole, all->v[i].part);
    now(e, there);
    for (int i = 0; i < all->n; i++) {
        const coded *x = &all->v[i];
        const sk_codec *c = sk_emit_grads_as(e, x->q);
        if (back < 0)
            back = sk_emit_call(e, SK_ALLGATHER, SK_SUM, SK_U8, axis,
                                sk_print(e->p->arena, "sums from %s", x->q->tensor->name));
        int code = sk_emit_encode(e, c, x->part, x->error, true);
        int came = sk_emit_code(e, c, x->whole, 1);
        const sk_extent box = e->p->bufs.v[came].box;
        sk_emit_rows(e, back, code, came, &box, 0);
        sk_emit_then(e, back, (sk_then){SK_DO_DECODE, came, x->whole, 1, c});
    }
    now(e, back);
}

static void coded_ready(sk_emit *e)
{
    codeds all = {0};
    for (int i = 0; i < e->ready.n; i++) {
        const sk_param_plan *q = plan_of(e, e->ready.v[i]);
        if (wants_coded(e, q)) add_coded(e, &all, q, q->grad);
    }
    sum_coded(e, &all);
}

static void coded_task(sk_emit *e)
{
    codeds all = {0};
    for (int i = 0; i < e->portions.n; i++) {
        const sk_portion *x = &e->portions.v[i];
        if (x->full >= 0 && wants_coded(e, plan_of(e, x->param)))
            add_coded(e, &all, plan_of(e, x->param), x->full);
    }
    sum_coded(e, &all);
}

/* --- in buckets, at the end --- */

static void scatter_ready(sk_emit *e, int *calls)
{
    for (int i = 0; i < e->ready.n; i++) {
        const sk_param_plan *q = plan_of(e, e->ready.v[i]);
        if (scattered(e, q)) join_scatter(e, calls, q, q->grad, q->grad_shard);
    }
}

static void sum_ready(sk_emit *e, int axis, bool cut, int *calls)
{
    for (int i = 0; i < e->ready.n; i++) {
        const sk_param_plan *q = plan_of(e, e->ready.v[i]);
        if (partial_over(e, q, axis))
            join_sum(e, &calls[sk_narrow(q->tensor)], axis, q, cut ? q->grad_shard : q->grad);
    }
}

static void flush(sk_emit *e)
{
    bool cut = e->l->shard_axis < 0;
    coded_ready(e);
    for (int k = 0; k < e->l->mesh.n; k++) {
        int axis = turn(e, k), calls[2 * SK_WIDTHS] = {-1, -1, -1, -1, -1, -1};
        sum_ready(e, axis, cut, calls);
        if (axis == e->l->shard_axis) scatter_ready(e, calls + SK_WIDTHS), cut = true;
        for (int i = 0; i < 2 * SK_WIDTHS; i++)
            if (calls[i] >= 0) sk_emit_start(e, calls[i], SK_FLIES_ON);
    }
    e->ready.n = 0;
    e->ready_bytes = 0;
}

void sk_emit_grad_done(sk_emit *e, int param)
{
    if (sk_emit_per_task(e) || --e->left[param]) return;
    *sk_push(e->tmp, &e->ready) = param;
    e->ready_bytes += sk_emit_logical(e, plan_of(e, param)->tensor);
    if (e->ready_bytes >= sk_emit_bucket(e)) flush(e);
}

/* --- task by task --- */

/* The gradient that a node's contribution is added to in one task. */
static sk_portion *portion_of(sk_emit *e, int param, const sk_node *n)
{
    for (int i = 0; i < e->portions.n; i++) {
        sk_portion *x = &e->portions.v[i];
        if (x->param == param && (!e->l->canonical || x->node == n->id)) return x;
    }
    sk_portion *x = sk_push(e->tmp, &e->portions);
    *x = (sk_portion){.param = param, .node = n->id, .full = -1, .piece = -1};
    sk_param_plan *q = plan_of(e, param);
    bool first = !e->begun[param];
    e->begun[param] = 1;
    x->sum = first ? q->grad_shard : sk_emit_piece(e, q->tensor, SK_GRADS, &q->update, -1);
    x->done = sk_many(e->tmp, sk_subtree, e->p->n_micro);
    return x;
}

/* Where this micro-batch's sum goes: to its own place if it is the first to be added to. */
static int leaf(sk_emit *e, sk_portion *x)
{
    bool first = e->l->canonical ? e->micro == 0 : !x->begun;
    x->begun = true;
    return first ? x->sum
                 : sk_emit_piece(e, plan_of(e, x->param)->tensor, SK_GRADS,
                                 &plan_of(e, x->param)->update, -1);
}

static int task_target(sk_emit *e, int param, const sk_node *n, bool *add)
{
    sk_portion *x = portion_of(e, param, n);
    const sk_param_plan *q = plan_of(e, param);
    *add = x->full >= 0;
    if (*add) return x->full;
    x->piece = leaf(e, x);
    x->full = x->piece;
    if (sk_emit_is_cut(e, q)) x->full = sk_emit_piece(e, q->tensor, SK_GRADS, &q->used, -1);
    return x->full;
}

/* Of n micro-batches in a tree: the parent of [*lo, *hi) in place; returns where its second half
 * begins. */
static int parent(int n, int *lo, int *hi)
{
    int from = 0, to = n;
    for (;;) {
        int left = 1;
        while (2 * left < to - from) left *= 2;
        int mid = from + left;
        if ((*lo == from && *hi == mid) || (*lo == mid && *hi == to)) {
            *lo = from, *hi = to;
            return mid;
        }
        if (*lo < mid) to = mid;
        else from = mid;
    }
}

/* Adds a micro-batch's sum to those it meets on its way up; what waits for its other half stays. */
static void climb(sk_emit *e, sk_portion *x, int buf)
{
    int lo = e->micro, hi = e->micro + 1, n = e->p->n_micro;
    while (hi - lo < n) {
        int from = lo, to = hi, mid = parent(n, &from, &to), other = lo == from ? mid : from;
        if (x->done[other].end != (other == from ? mid : to)) {
            x->done[lo] = (sk_subtree){hi, buf};
            return;
        }
        int left = other == from ? x->done[other].buf : buf,
            right = other == from ? buf : x->done[other].buf;
        move(e, SK_DO_ADD, right, left);
        buf = left, lo = from, hi = to;
    }
}

static void scatter_task(sk_emit *e)
{
    int calls[SK_WIDTHS] = {-1, -1, -1};
    for (int i = 0; i < e->portions.n; i++) {
        const sk_portion *x = &e->portions.v[i];
        const sk_param_plan *q = plan_of(e, x->param);
        if (x->full < 0 || !sk_emit_is_cut(e, q)) continue;
        if (scattered(e, q)) join_scatter(e, calls, q, x->full, x->piece);
        else move(e, SK_DO_SLICE, x->full, x->piece);
    }
    for (int w = 0; w < SK_WIDTHS; w++) now(e, calls[w]);
}

static void sum_task(sk_emit *e, int axis, bool cut)
{
    int calls[SK_WIDTHS] = {-1, -1, -1};
    for (int i = 0; i < e->portions.n; i++) {
        const sk_portion *x = &e->portions.v[i];
        const sk_param_plan *q = plan_of(e, x->param);
        if (x->full >= 0 && partial_over(e, q, axis))
            join_sum(e, &calls[sk_narrow(q->tensor)], axis, q, cut ? x->piece : x->full);
    }
    for (int w = 0; w < SK_WIDTHS; w++) now(e, calls[w]);
}

static void collect_task(sk_emit *e)
{
    for (int i = 0; i < e->portions.n; i++) {
        sk_portion *x = &e->portions.v[i];
        if (x->full < 0) continue;
        if (e->l->canonical) climb(e, x, x->piece);
        else if (x->piece != x->sum) move(e, SK_DO_ADD, x->piece, x->sum);
        x->full = -1;
    }
}

/* Called when the backward half of one layer of one micro-batch is written. */
void sk_emit_task_end(sk_emit *e)
{
    sk_emit_close_layer(e);
    if (!e->training || !sk_emit_per_task(e)) return;
    bool cut = e->l->shard_axis < 0;
    coded_task(e);
    for (int k = 0; k < e->l->mesh.n; k++) {
        sum_task(e, turn(e, k), cut);
        if (turn(e, k) != e->l->shard_axis) continue;
        scatter_task(e);
        cut = true;
    }
    collect_task(e);
}

void sk_emit_grads_used(sk_emit *e)
{
    for (int i = 0; i < e->portions.n; i++) e->portions.v[i].begun = false;
}

/* --- both --- */

int sk_emit_grad_target(sk_emit *e, int param, const sk_node *n, const sk_state *made, bool *add)
{
    sk_param_plan *q = plan_of(e, param);
    sk_assert(sk_state_equal(made, &e->grad_made[q->tensor->id])); /* see grads_fit */
    if (sk_emit_per_task(e)) return task_target(e, param, n, add);
    *add = e->begun[param];
    e->begun[param] = 1;
    return q->grad;
}

/* What several nodes of this stage contributed to one weight. */
static void join_portions(sk_emit *e)
{
    for (int i = 0; i < e->portions.n; i++) {
        const sk_portion *x = &e->portions.v[i];
        int to = plan_of(e, x->param)->grad_shard;
        if (x->sum != to) move(e, SK_DO_ADD, x->sum, to);
    }
}

/* Parameters that several stages share: every stage has a part of the sum. */
static void reduce_tied(sk_emit *e)
{
    sk_program *p = e->p;
    for (int g = p->world + 1; g < p->n_groups; g++) {
        int calls[SK_WIDTHS] = {-1, -1, -1};
        for (int i = 0; i < p->params.n; i++) {
            sk_param_plan *q = &p->params.v[i];
            const sk_extent *box = &p->bufs.v[q->grad_shard].box;
            if (q->tie_group != g) continue;
            int *call = &calls[sk_narrow(q->tensor)];
            if (*call < 0)
                *call = sk_emit_call(e, SK_ALLREDUCE, SK_SUM, q->tensor->type, g, "tied grads");
            sk_emit_seg(e, *call, q->grad_shard, q->grad_shard, 1, sk_box_count(box, 0, box->n), 1);
        }
        for (int w = 0; w < SK_WIDTHS; w++) now(e, calls[w]);
    }
}

void sk_emit_grads_end(sk_emit *e)
{
    if (e->ready.n) flush(e);
    e->task = -1;
    join_portions(e);
    reduce_tied(e);
}
