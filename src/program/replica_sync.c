/* replica_sync.c - synchronisations of replicas (sync.h): instructions behind the update, which run
 * in every so-many-th step.
 *
 * What is averaged is what the optimizer changes: the master of a narrow weight, else the weight,
 * as the shard that this rank updates.  So under ZeRO inside of a replica each rank sends only its
 * shard, and the gather of updated weights that follows brings the averages to all. */
#include "program/lowering.h"
#include "program/sync.h"

#include <string.h>

const sk_sync *sk_sync_find(const char *name)
{
    for (const sk_sync *const *s = sk_sync_parts; *s; s++)
        if (!strcmp((*s)->name, name)) return *s;
    return NULL;
}

static int optimized(const sk_param_plan *q) { return q->master >= 0 ? q->master : q->shard; }
static int mean_of(const sk_param_plan *q) { return q->mean; }

/* The mean over the replicas along the axis of one buffer of each parameter, in buckets.  A call
 * has elements of one type: f32, or narrower ones. */
static void average(sk_lowering *e, int axis, int (*which)(const sk_param_plan *q), bool is_narrow)
{
    sk_program *p = e->p;
    int64_t bytes = 0;
    int call = -1;
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        int buf = which(q);
        const sk_buffer b = p->bufs.v[buf];
        if ((b.type != SK_F32) != is_narrow) continue;
        if (call < 0)
            call = sk_lower_call(e, SK_ALLREDUCE, SK_MEAN, b.type, axis,
                                 sk_print(p->arena, "replicas from %s", q->tensor->name));
        sk_lower_seg(e, call, buf, buf, 1, sk_box_count(&b.box, 0, b.box.n), 1);
        bytes += sk_lower_logical(e, q->tensor);
        if (bytes < sk_lower_bucket(e)) continue;
        sk_lower_start(e, call, SK_FLIES_NOT);
        call = -1;
        bytes = 0;
    }
    if (call >= 0) sk_lower_start(e, call, SK_FLIES_NOT);
}

/* Kernels read narrow weights: rounded anew from the averaged masters. */
static void narrow(sk_lowering *e)
{
    for (int i = 0; i < e->p->params.n; i++) {
        const sk_param_plan *q = &e->p->params.v[i];
        if (q->master < 0) continue;
        sk_lower_move(e, SK_DO_NARROW, q->master, q->shard);
        sk_inst *in = &e->p->insts.v[e->p->insts.n - 1];
        in->param = i;
        in->layer = q->tensor->layer;
    }
}

/* Between steps the gradient of a weight is not needed: its buffer takes the mean over replicas of
 * the weights, or of their averages where the optimizer keeps some, for validation and exports. */
void sk_lower_replica_mean(sk_lowering *e)
{
    sk_program *p = e->p;
    if (!p->optim || !sk_layout_any_local(e->l)) return;
    e->at.task = e->at.micro = -1;
    e->at.layer = 0;
    e->at.mean = true;
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        int own = sk_param_own_average(q), from = own >= 0 ? own : q->shard;
        bool narrows = p->bufs.v[from].type != p->bufs.v[q->mean].type;
        sk_lower_move(e, narrows ? SK_DO_NARROW : SK_DO_SLICE, from, q->mean);
        p->insts.v[p->insts.n - 1].param = narrows ? i : -1;
    }
    for (int a = 0; a < e->l->mesh.n; a++)
        if (sk_layout_local(e->l, a))
            for (int narrow = 0; narrow < 2; narrow++) average(e, a, mean_of, narrow);
    e->at.mean = false;
}

/* A sum over the batch that is not one of a gradient would make replicas wait for each other. */
static sk_status crosses(const sk_lowering *e, const sk_inst *in)
{
    const sk_call_plan *c = &e->p->calls.v[in->call];
    if (c->group >= e->l->mesh.n || !sk_layout_local(e->l, c->group)) return SK_OK;
    return sk_fail(SK_ECONF,
                   "layout: '%s' is over '%s' in every step, and sync makes replicas of its ranks; "
                   "leave out sync, or take another axis",
                   c->what, e->l->mesh.name[c->group]);
}

sk_status sk_check_replicas(sk_lowering *e)
{
    sk_program *p = e->p;
    bool local = p->optim && sk_layout_any_local(e->l);
    if (local && e->opts->noise)
        return sk_fail(SK_ECONF,
                       "layout: sync gives replicas weights of their own, and train.noise "
                       "compares gradients of one point; leave out one of them");
    for (int pc = 0; local && pc < p->n_train; pc++)
        if (p->insts.v[pc].act == SK_DO_START && p->insts.v[pc].task >= 0 &&
            p->insts.v[pc].micro >= 0)
            SK_TRY(crosses(e, &p->insts.v[pc]));
    p->n_mean = p->n_train;
    while (p->n_mean < p->insts.n && p->insts.v[p->n_mean].mean) p->n_mean++;
    return SK_OK;
}

void sk_lower_replica_sync(sk_lowering *e)
{
    for (int a = 0; a < e->l->mesh.n; a++) {
        if (!sk_layout_local(e->l, a)) continue;
        int every = e->l->sync[a].every;
        e->at.sync = (sk_step_due){every, every - 1};
        average(e, a, optimized, false);
        narrow(e);
        e->at.sync = (sk_step_due){0};
    }
}
