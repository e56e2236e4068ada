/* grads.c - where the gradient of a parameter goes, and gradients that are reduced task by task.
 *
 * A gradient is added up over micro-batches in one buffer and reduced when the last contribution is
 * there (buckets.c).  Sharded gradients are reduced task by task instead: each rank keeps its piece
 * and adds it to those of earlier micro-batches.  So are all where stages update on their own, and
 * in deterministic order (base/cells.h): there micro-batches are the upper part of the tree of
 * sums, ranks the lower, and what several nodes contribute to a tied weight is summed apart and
 * added last, as it is when they sit on two stages. */
#include "program/emit.h"

#include <string.h>

static sk_param_plan *plan_of(const sk_emit *e, int param) { return &e->p->params.v[param]; }

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
    bool first = true;
    for (int i = 0; i + 1 < e->portions.n; i++) first &= e->portions.v[i].param != param;
    x->sum = first ? q->grad_shard : sk_emit_piece(e, q->tensor, SK_GRADS, &q->update, -1);
    x->done = sk_many(e->tmp, sk_subtree, e->p->n_micro);
    return x;
}

/* Where this micro-batch's sum goes: to its own place if it is the first to be added to. */
static int leaf(sk_emit *e, sk_portion *x)
{
    bool first = e->l->canonical ? e->at.micro == 0 : !x->begun;
    x->begun = true;
    return first ? x->sum
                 : sk_emit_piece(e, plan_of(e, x->param)->tensor, SK_GRADS,
                                 &plan_of(e, x->param)->update, -1);
}

static int task_target(sk_emit *e, int param, const sk_node *n)
{
    sk_portion *x = portion_of(e, param, n);
    const sk_param_plan *q = plan_of(e, param);
    if (x->full >= 0) return x->full;
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
    int lo = e->at.micro, hi = e->at.micro + 1, n = e->p->n_micro;
    while (hi - lo < n) {
        int from = lo, to = hi, mid = parent(n, &from, &to), other = lo == from ? mid : from;
        if (x->done[other].end != (other == from ? mid : to)) {
            x->done[lo] = (sk_subtree){hi, buf};
            return;
        }
        int left = other == from ? x->done[other].buf : buf,
            right = other == from ? buf : x->done[other].buf;
        sk_emit_move(e, SK_DO_ADD, right, left);
        buf = left, lo = from, hi = to;
    }
}

static void collect_task(sk_emit *e)
{
    for (int i = 0; i < e->portions.n; i++) {
        sk_portion *x = &e->portions.v[i];
        if (x->full < 0) continue;
        if (e->l->canonical) climb(e, x, x->piece);
        else if (x->piece != x->sum) sk_emit_move(e, SK_DO_ADD, x->piece, x->sum);
        x->full = -1;
    }
}

/* Called when the backward half of one layer of one micro-batch is written. */
void sk_emit_task_end(sk_emit *e)
{
    sk_emit_close_layer(e);
    if (!e->training || !sk_emit_per_task(e)) return;
    sk_grad_at *made = sk_many(e->tmp, sk_grad_at, e->portions.n + 1);
    int n = 0;
    for (int i = 0; i < e->portions.n; i++) {
        const sk_portion *x = &e->portions.v[i];
        if (x->full >= 0) made[n++] = (sk_grad_at){x->param, x->full, x->piece};
    }
    sk_reduce_grads(e, made, n, SK_FLIES_NOT);
    collect_task(e);
}

void sk_emit_grads_used(sk_emit *e)
{
    for (int i = 0; i < e->portions.n; i++) e->portions.v[i].begun = false;
}

/* --- both --- */

int sk_emit_grad_target(sk_emit *e, int param, const sk_node *n, const sk_state *made)
{
    sk_param_plan *q = plan_of(e, param);
    sk_assert(sk_state_equal(made, &e->plan.grad_made[q->tensor->id])); /* see grads_fit */
    if (sk_emit_per_task(e)) return task_target(e, param, n);
    return q->grad;
}

/* What several nodes of this stage contributed to one weight. */
static void join_portions(sk_emit *e)
{
    for (int i = 0; i < e->portions.n; i++) {
        const sk_portion *x = &e->portions.v[i];
        int to = plan_of(e, x->param)->grad_shard;
        if (x->sum != to) sk_emit_move(e, SK_DO_ADD, x->sum, to);
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
        for (int w = 0; w < SK_WIDTHS; w++)
            if (calls[w] >= 0) sk_emit_start(e, calls[w], SK_FLIES_NOT);
    }
}

void sk_emit_grads_end(sk_emit *e)
{
    e->at.task = -1;
    join_portions(e);
    reduce_tied(e);
}
