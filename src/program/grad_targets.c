/* grad_targets.c - where the gradient of a parameter goes, and gradients that are reduced in every
 * task.
 *
 * Usually a gradient is added up over micro-batches in one buffer and reduced when the last
 * contribution is there (buckets.c).  Three kinds are reduced in every task instead: sharded
 * gradients, of which each rank keeps its shard; all gradients where stages update asynchronously;
 * and all in deterministic order (base/reduction_blocks.h), where ranks are the lower part of the
 * tree of sums and micro-batches the upper.  Then each layer of a task leaves its gradient in a
 * buffer of its own, a leaf, which is reduced and added to the accumulator; accumulate.c decides
 * which leaves are added to which. */
#include "program/lowering.h"

#include <string.h>

static sk_param_plan *plan_of(const sk_lowering *e, int param) { return &e->p->params.v[param]; }

/* --- gradients that are reduced in every task --- */

/* The leaf that a node's contribution is added to; in deterministic order each node has its own.
 * Leaves are reduced in the order in which a step first makes their gradients. */
static sk_leaf *leaf_of(sk_lowering *e, int param, const sk_node *n)
{
    bool ordered = e->l->canonical;
    int at = e->leaves.n;
    for (int i = 0; i < e->leaves.n; i++) {
        sk_leaf *x = &e->leaves.v[i];
        if (x->grad.param == param && (!ordered || x->node == n)) return x;
    }
    sk_push(e->tmp, &e->leaves);
    if (!e->leaves.order[param]) e->leaves.order[param] = ++e->leaves.n_order;
    for (; at && !ordered; at--) {
        const sk_leaf *before = &e->leaves.v[at - 1];
        if (e->leaves.order[before->grad.param] < e->leaves.order[param]) break;
        e->leaves.v[at] = *before;
    }
    sk_leaf *x = &e->leaves.v[at];
    *x = (sk_leaf){.node = n, .grad = {.param = param, .whole = -1}};
    return x;
}

static int task_target(sk_lowering *e, int param, const sk_node *n)
{
    sk_leaf *x = leaf_of(e, param, n);
    const sk_param_plan *q = plan_of(e, param);
    if (x->grad.whole >= 0) return x->grad.whole;
    x->grad.piece = sk_lower_piece(e, q->tensor, SK_GRADS, &q->update, -1);
    x->grad.whole = x->grad.piece;
    if (q->made || sk_lower_is_cut(e, q))
        x->grad.whole = sk_lower_piece(e, q->made ? q->made : q->tensor, SK_GRADS, &q->used, -1);
    return x->grad.whole;
}

/* Called when the backward half of one layer of one micro-batch is written. */
void sk_lower_task_end(sk_lowering *e)
{
    sk_lower_close_layer(e);
    if (!e->training || !e->leaves.n) return;
    sk_grad_at *made = sk_many(e->tmp, sk_grad_at, e->leaves.n);
    for (int i = 0; i < e->leaves.n; i++) made[i] = e->leaves.v[i].grad;
    sk_noise_leaves(e, made, e->leaves.n);
    sk_reduce_grads(e, made, e->leaves.n, SK_FLIES_NOT);
    for (int i = 0; i < e->leaves.n; i++) {
        sk_inst *in = sk_lower_inst(e, SK_DO_ADD);
        in->in[0] = made[i].piece;
        in->out[0] = plan_of(e, made[i].param)->grad_shard;
        in->param = made[i].param;
        in->node = e->leaves.v[i].node;
        in->every = plan_of(e, made[i].param)->every;
    }
    e->leaves.n = 0;
}

/* --- both kinds --- */

int sk_lower_grad_target(sk_lowering *e, int param, const sk_node *n, const sk_state *made)
{
    sk_param_plan *q = plan_of(e, param);
    sk_assert(sk_state_equal(made, &e->plan.grad_made[q->tensor->id])); /* see grads_fit */
    if (sk_lower_per_task(e)) return task_target(e, param, n);
    return q->grad;
}

/* Parameters that several stages share: every stage has a partial sum.  Adasum joins complete sums,
 * so those that it joins are added before. */
static void reduce_tied(sk_lowering *e)
{
    sk_program *p = e->p;
    for (int g = p->world + 1; g < p->n_groups; g++) {
        int calls[SK_WIDTHS] = {-1, -1, -1};
        for (int i = 0; i < p->params.n; i++) {
            sk_param_plan *q = &p->params.v[i];
            if (q->tie_group != g || sk_lower_low_rank(e, q)) continue;
            int *call = &calls[sk_narrow(q->tensor)], buf = q->grad_shard;
            if (sk_adasum_scatters(e, q)) buf = q->grad;
            const sk_extent *box = &p->bufs.v[buf].box;
            if (*call < 0)
                *call = sk_lower_call(e, SK_ALLREDUCE, SK_SUM, q->tensor->type, g, "tied grads");
            sk_lower_seg(e, *call, buf, buf, 1, sk_box_count(box, 0, box->n), 1);
        }
        for (int w = 0; w < SK_WIDTHS; w++)
            if (calls[w] >= 0) sk_lower_start(e, calls[w], SK_FLIES_NOT);
    }
}

static void join_tied(sk_lowering *e)
{
    int n = 0;
    sk_grad_at *v = sk_many(e->tmp, sk_grad_at, e->p->params.n + 1);
    for (int i = 0; i < e->p->params.n; i++) {
        const sk_param_plan *q = plan_of(e, i);
        if (q->tie_group >= 0) v[n++] = (sk_grad_at){i, q->grad, q->grad_shard};
    }
    sk_reduce_low_rank(e, v, n, true);
    sk_join_adasum(e, v, n, true);
}

void sk_lower_grads_end(sk_lowering *e)
{
    e->at.task = -1;
    sk_reduce_together(e); /* of each node by itself: before other stages' are added */
    reduce_tied(e);
    join_tied(e);
}
