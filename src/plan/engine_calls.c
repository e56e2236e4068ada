/* engine_calls.c - what engines do more about a collective than skein's own programs.
 *
 * Parts: torch.distributed's all_gather and reduce_scatter of lists copy every member's part by a
 * kernel of its own, so a call of n members takes n launches.  Out of a gather they are queued
 * while bytes move, and executed behind it; into a sum they come first.
 *
 * Again: a layer that is recomputed is passed twice in the backward pass.  An engine that drops a
 * weight behind each use gathers it for both, but for those with no more than gather_reuse elements
 * between the two: going to the end of the layer and back, the last half as many.
 *
 * Whole: a function that is called a second time runs to its end.  The product that makes a block's
 * result is then recomputed although nobody needs it: 8 h^2 of the 96 h^2 flops of a token in a
 * block.  It is priced in the forward task, where its shape and its sum are. */
#include "plan/engine_calls.h"

#include <math.h>
#include <string.h>

static bool of_parameters(const sk_program *p, const sk_call_plan *plan)
{
    const sk_tensor *t = plan->n_segs ? p->bufs.v[plan->segs[0].src].tensor : NULL;
    return t && t->role == SK_PARAM;
}

static bool of_weights(const sk_program *p, const sk_call_plan *plan)
{
    return plan->kind == SK_ALLGATHER && of_parameters(p, plan);
}

static bool of_gradients(const sk_program *p, const sk_call_plan *plan)
{
    bool sums = plan->kind == SK_ALLREDUCE || plan->kind == SK_REDUCE_SCATTER;
    return sums && of_parameters(p, plan);
}

static double elements_of(const sk_program *p, const sk_call_seg *s)
{
    const sk_buffer *from = &p->bufs.v[s->src], *to = &p->bufs.v[s->dst];
    const sk_buffer *whole = from->bytes > to->bytes ? from : to;
    return (double)whole->bytes / (double)sk_dtype_size(whole->type);
}

/* The tensors that are large enough to be sharded. */
static int sharded(const sk_machine *m, const sk_program *p, const sk_call_plan *plan)
{
    int n = 0;
    for (int i = 0; i < plan->n_segs; i++)
        n += elements_of(p, &plan->segs[i]) >= m->engine.gather_least;
    return n > 1 ? n : 1;
}

static bool block(const sk_program *p, int layer)
{
    return layer > 0 && layer < p->graph->n_layers - 1;
}

/* In the backward pass of a block, of a layout that recomputes all of it. */
static bool recomputes(const sk_program *p, const sk_inst *in, const sk_call_plan *plan)
{
    return in->work == SK_WORK_B && block(p, plan->param_set - 1) &&
           !strcmp(p->layout.recompute, "full");
}

/* The part of a layer's weights that is gathered again. */
static double again(const sk_machine *m, const sk_program *p, const sk_inst *in,
                    const sk_call_plan *plan)
{
    double all = 0;
    if (m->engine.gather_reuse <= 0 || !recomputes(p, in, plan)) return 0;
    for (int i = 0; i < plan->n_segs; i++) all += elements_of(p, &plan->segs[i]);
    return all > 0 ? fmax(all - m->engine.gather_reuse / 2, 0) / all : 0;
}

static double with_parts(const sk_machine *m, double seconds, int parts, double bytes, bool gather)
{
    double launches = parts * m->engine.part_copy, copies = 2 * bytes / m->memory_rate;
    return gather ? fmax(seconds, launches) + copies : seconds + fmax(launches, copies);
}

double sk_engine_call(const sk_machine *m, const sk_program *p, const sk_inst *in, sk_reach reach)
{
    const sk_engine *e = &m->engine;
    const sk_call_plan *plan = &p->calls.v[in->call];
    bool weights = of_weights(p, plan), gradients = of_gradients(p, plan);
    bool each = e->gather_each && (weights || (gradients && e->part_copy > 0));
    bool wide = e->wide_sums && gradients && sk_dtype_size(plan->type) == 2;
    int calls = each ? sharded(m, p, plan) : 1;
    int64_t bytes = (wide ? 2 : 1) * sk_call_bytes(plan);
    double seconds = sk_machine_coll(m, plan->kind, bytes, reach);
    if (calls > 1) seconds += (calls - 1) * sk_machine_coll(m, plan->kind, 0, reach);
    if (e->part_copy > 0 && (weights || gradients))
        seconds = with_parts(m, seconds, calls * reach.n, (double)bytes, weights);
    return weights ? seconds * (1 + again(m, p, in, plan)) : seconds;
}

double sk_engine_passes(const sk_machine *m, const sk_program *p, const sk_inst *in)
{
    const sk_engine *e = &m->engine;
    if (in->act != SK_DO_START || e->gather_passes + e->sum_passes <= 0) return 0;
    const sk_call_plan *plan = &p->calls.v[in->call];
    double bytes = (double)sk_call_bytes(plan) / m->memory_rate;
    if (of_weights(p, plan)) return e->gather_passes * bytes * (1 + again(m, p, in, plan));
    return of_gradients(p, plan) ? e->sum_passes * bytes : 0;
}

/* --- recomputation --- */

static bool has_clone(const sk_program *p, const sk_node *n)
{
    const sk_graph *g = p->expanded;
    for (int i = p->graph->nodes.n; i < g->nodes.n; i++)
        if (g->nodes.v[i]->layer == n->layer &&
            !strcmp(g->nodes.v[i]->out[0]->name, n->out[0]->name))
            return true;
    return false;
}

/* A product of a block that no backward task needs, but for its result. */
static bool last_product(const sk_program *p, const sk_inst *in)
{
    bool product = in->act == SK_DO_OP && in->shape.kind == SK_KERNEL_PRODUCT;
    return product && in->work == SK_WORK_F && block(p, in->layer) && !has_clone(p, in->node);
}

/* The instruction before this one in its task that writes the buffer; NULL: none does. */
static const sk_inst *writer(const sk_program *p, int pc, int buf)
{
    for (int i = pc - 1; i >= 0 && p->insts.v[i].layer == p->insts.v[pc].layer; i--)
        if (p->insts.v[i].act == SK_DO_OP && p->insts.v[i].out[0] == buf) return &p->insts.v[i];
    return NULL;
}

int sk_engine_times(const sk_machine *m, const sk_program *p, int pc)
{
    const sk_inst *in = &p->insts.v[pc];
    if (!m->engine.whole_recompute || strcmp(p->layout.recompute, "full") || !p->graph) return 1;
    if (in->act == SK_DO_OP) return last_product(p, in) ? 2 : 1;
    const sk_call_plan *plan = in->act == SK_DO_START ? &p->calls.v[in->call] : NULL;
    if (!plan || !plan->n_segs || in->work != SK_WORK_F) return 1;
    const sk_inst *by = writer(p, pc, plan->segs[0].src);
    return by && last_product(p, by) ? 2 : 1;
}

bool sk_engine_sums_late(const sk_machine *m, const sk_program *p, const sk_call_plan *plan)
{
    return m->overlap && m->engine.late_sums && plan->kind == SK_REDUCE_SCATTER &&
           sk_group_axis(p, plan->group) == p->layout.shard_axis && of_gradients(p, plan);
}
