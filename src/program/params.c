/* params.c - parameters: where they are stored, and who owns them.
 *
 * A parameter has a used state (what kernels see) and an update state (what the optimizer sees):
 * the same, or sharded in addition along dim 0 over the shard axis.
 *
 *     shard nothing   weights used,   gradient used,   all-reduce at the end
 *     shard state     weights used,   gradient used,   reduce-scatter at the end, gather weights
 *     shard grads     weights used,   gradient cut:    reduce-scatter per task, gather weights
 *     shard params    weights cut:    gather per layer and task; gradient cut as above
 *
 * Whole weights are gathered where a step first reads them (lazy_gathers.c).  Gathers for a layer
 * of a task (param_gathers.c) and reductions may be of encoded shards (codec_calls.c).  Ranks along
 * the shard axis may share one copy of the weights in memory (replica): each updates its shard in
 * place, and the gather is only a synchronisation. */
#include "program/lowering.h"

#include <stdio.h>
#include <string.h>

bool sk_lower_sharded(const sk_lowering *e, sk_shard level)
{
    bool several = false; /* a single rank has nothing to gather */
    for (int a = 0; a < e->l->mesh.n; a++)
        several |= sk_layout_shards(e->l, a) && e->l->mesh.size[a] > 1;
    return e->opts->optim && e->l->shard >= level && several;
}

bool sk_lower_per_task(const sk_lowering *e)
{
    return e->opts->optim &&
           (e->l->canonical || e->plan.schedule->async || sk_lower_sharded(e, SK_SHARD_GRADS));
}

/* A part of a kept buffer: this rank's shard of dim 0 over the shard axis. */
static int part_of(sk_lowering *e, int whole, const sk_tensor *t, const sk_state *cut)
{
    sk_program *p = e->p;
    int part = sk_lower_piece(e, t, p->bufs.v[whole].kind, cut, -1);
    sk_buffer *b = &p->bufs.v[part], *w = &p->bufs.v[whole];
    b->keep = true;
    b->within = whole;
    b->part_at = b->box.n ? (b->box.at[0] - w->box.at[0]) * sk_box_count(&b->box, 1, b->box.n) *
                                (int64_t)sk_dtype_size(b->type)
                          : 0;
    return part;
}

static int kept(sk_lowering *e, const char *name, const sk_tensor *t, sk_kind kind,
                const sk_state *s)
{
    int b = sk_lower_piece(e, t, kind, s, -1);
    e->p->bufs.v[b].name = name;
    e->p->bufs.v[b].keep = true;
    return b;
}

/* The state of the optimizer, which has a type of its own. */
int sk_lower_kept_state(sk_lowering *e, const char *name, const sk_param_plan *q, sk_dtype type)
{
    int b = kept(e, name, q->tensor, SK_OPTIM, &q->update);
    sk_buffer *x = &e->p->bufs.v[b];
    x->type = type;
    x->bytes = sk_box_count(&x->box, 0, x->box.n) * (int64_t)sk_dtype_size(type);
    return b;
}

/* Is this rank the owner of a shard that several have?  The owner is the first along every axis
 * over which it is replicated; each replica (sync=..) has owners of its own. */
bool sk_lower_first(const sk_lowering *e, const sk_state *s, const sk_stages *stages)
{
    for (int a = 0; a < e->l->mesh.n; a++) {
        if (a == e->l->stage_axis) {
            if (stages && sk_stages_before(stages, e->p->stage)) return false;
        } else if (s->how[a] == SK_REPLICATE && e->p->coord[a] && !sk_layout_local(e->l, a))
            return false;
    }
    return true;
}

/* The optimizer sees a shard of what kernels see; a scalar cannot be sharded. */
bool sk_lower_is_cut(const sk_lowering *e, const sk_param_plan *q)
{
    return sk_lower_levels(e, q, (int[SK_SHARD_LEVELS]){0}) > 0;
}

/* Numbers of the optimizer for the parameter as a whole: every rank that updates a shard has them,
 * and the first of the ranks writes them to a checkpoint. */
static void plan_scalars(sk_lowering *e, sk_param_plan *q)
{
    int n = q->tensor->bias_update != 0 ? 0 : sk_optim_scalars(q->optim);
    sk_extent box = {.n = 1, .size = {n}, .full = {n}};
    if (!n) return;
    sk_assert(2 + sk_optim_arrays(q->optim) <= SK_IN_SCALARS);
    const char *name = sk_print(e->p->arena, "%s.%s.scalars", q->tensor->name, q->optim->name);
    q->scalars = sk_lower_buffer(e, name, q->tensor, SK_OPTIM, SK_F32, box);
    e->p->bufs.v[q->scalars].keep = e->p->bufs.v[q->scalars].zero = true;
    q->lead = sk_lower_first(e, &(sk_state){0}, &e->plan.read_by[q->tensor->id]);
}

void sk_plan_sum(sk_lowering *e, sk_param_plan *q, const char *name)
{
    const sk_tensor *t = q->tensor;
    q->grad = -1;
    if (!sk_lower_per_task(e) && q->made) { /* a sum that is gone once it is packed */
        q->grad = sk_lower_piece(e, q->made, SK_GRADS, &q->used, -1);
        q->grad_shard = kept(e, name, t, SK_GRADS, &q->update);
    } else if (!sk_lower_per_task(e)) {
        q->grad = kept(e, name, t, SK_GRADS, &q->used);
        q->grad_shard = sk_lower_is_cut(e, q) ? part_of(e, q->grad, t, &q->update) : q->grad;
    } else q->grad_shard = kept(e, name, t, SK_GRADS, &q->update);
}

static sk_status plan_grad(sk_lowering *e, sk_param_plan *q)
{
    const sk_tensor *t = q->tensor;
    sk_program *p = e->p;
    const char *name = sk_print(p->arena, "%s.grad", t->name);
    sk_plan_sum(e, q, name);
    q->n_state = t->bias_update != 0 ? 0 : q->optim->n_state;
    for (int s = 0; s < q->n_state; s++) {
        name = sk_print(p->arena, "%s.%s.%s", t->name, q->optim->name, q->optim->state[s]);
        q->state[s] = sk_lower_kept_state(e, name, q, sk_lower_state_type(e, q));
        p->bufs.v[q->state[s]].zero = true;
        SK_TRY(sk_lower_blocks(e, q, s));
    }
    plan_scalars(e, q);
    if (!e->opts->late || !sk_lower_hosted(e, t) || q->n_state == SK_MAX_STATE) return SK_OK;
    name = sk_print(p->arena, "%s.%s.pending", t->name, q->optim->name);
    q->state[q->n_state] = sk_lower_kept_state(e, name, q, SK_F32);
    p->bufs.v[q->state[q->n_state++]].zero = true;
    return SK_OK;
}

/* Contributions are added up in place: they must all have the same state, and be split as the
 * weight is. */
static sk_status grad_fits(const sk_lowering *e, const sk_param_plan *q, const sk_state *made)
{
    const sk_tensor *t = q->tensor;
    const sk_state *first = &e->plan.grad_made[t->id];
    for (int a = 0; a < e->l->mesh.n; a++) {
        bool split = q->used.how[a] == SK_SPLIT;
        if (made->how[a] == first->how[a] && split == (made->how[a] == SK_SPLIT) &&
            (!split || made->dim[a] == q->used.dim[a]))
            continue;
        return sk_fail(SK_ECONF,
                       "layout: the gradient of '%s' would not be cut over '%s' as the "
                       "weight \"%s\" is; split fewer of these letters over '%s'",
                       t->name, e->l->mesh.name[a], t->letters, e->l->mesh.name[a]);
    }
    return SK_OK;
}

static sk_status grads_fit(const sk_lowering *e)
{
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *n = e->g->nodes.v[i];
        for (int o = 0; o < n->n_out; o++) {
            bool adds =
                n->into[o] && (n->into[o]->role == SK_PARAM || n->into[o]->role == SK_EXTRA);
            int q = adds ? e->plan.param_of[n->into[o]->id] : -1;
            if (q >= 0) SK_TRY(grad_fits(e, &e->p->params.v[q], &e->sp->node[i].out[o]));
        }
    }
    return SK_OK;
}

/* Shared memory needs a shard for each rank: every rank has its own copy of a weight that cannot be
 * sharded. */
static bool is_common(const sk_lowering *e, const sk_param_plan *q)
{
    return e->l->replica && sk_lower_is_cut(e, q);
}

sk_state sk_update_state(const sk_lowering *e, const sk_tensor *t)
{
    sk_state s = e->sp->made[t->id];
    if (!sk_lower_sharded(e, SK_SHARD_STATE) || !t->letters[0]) return s;
    if (t->role == SK_EXTRA && !t->of) return s; /* every rank has all of it, for reports */
    for (int a = 0; a < e->l->mesh.n; a++) {
        if (!sk_layout_shards(e->l, a) || e->l->mesh.size[a] == 1) continue;
        if (s.how[a] != SK_SPLIT) s.dim[a] = 0; /* what a letter splits over it needs no cut more */
        s.how[a] = SK_SPLIT;
    }
    return s;
}

static sk_status plan_param(sk_lowering *e, const sk_tensor *t, const sk_stages *set, int tie)
{
    sk_program *p = e->p;
    sk_param_plan *q = sk_push(p->arena, &p->params);
    e->plan.param_of[t->id] = p->params.n - 1;
    *q = (sk_param_plan){.tensor = t,
                         .used = e->sp->made[t->id],
                         .tie_group = tie,
                         .decay = t->init > 0,
                         .master = -1,
                         .grad = -1,
                         .grad_shard = -1,
                         .mean = -1,
                         .anchor = -1,
                         .outer_momentum = -1,
                         .change_error = -1,
                         .ema = -1,
                         .scalars = -1,
                         .error = -1,
                         .factor = -1};
    if (e->opts->optim) {
        q->group = sk_lower_group(e, t);
        q->optim = sk_lower_optim(e, t);
    }
    q->update = sk_update_state(e, t);
    bool cut = sk_lower_sharded(e, SK_SHARD_PARAMS);
    q->stored = kept(e, t->name, t, SK_WEIGHTS, cut ? &q->update : &q->used);
    q->shard = cut || !sk_lower_is_cut(e, q) ? q->stored : part_of(e, q->stored, t, &q->update);
    p->bufs.v[q->stored].common = is_common(e, q);
    q->lazy = sk_lower_is_lazy(e, q);
    q->owner = sk_lower_first(e, &q->update, set);
    q->writes = sk_lower_first(e, sk_param_kept_state(p, q), set);
    if (!e->opts->optim) return SK_OK;
    bool moves = q->optim->perturb && t->bias_update == 0;
    if (t->type != SK_F32 || sk_lower_hosted(e, t) || moves)
        q->master = sk_lower_kept_state(e, sk_print(p->arena, "%s.master", t->name), q, SK_F32);
    SK_TRY(sk_matrix_fits(e, q));
    SK_TRY(plan_grad(e, q));
    if (p->ema > 0) {
        q->ema = sk_lower_kept_state(e, sk_print(p->arena, "%s.ema", t->name), q, SK_F32);
        p->bufs.v[q->ema].zero = true;
    }
    sk_plan_replica(e, q);
    if (sk_lower_grads_as(e, q)) sk_plan_coded(e, q, set);
    if (sk_lower_low_rank(e, q)) sk_plan_low_rank(e, q, set);
    if (q->optim->sends) sk_plan_sent(e, q);
    return SK_OK;
}

sk_status sk_plan_params(sk_lowering *e)
{
    sk_program *p = e->p;
    sk_stages sets[64];
    int n_sets = 0;
    SK_TRY(sk_averages_fit(e));
    SK_TRY(sk_plan_phases(e));
    p->world = e->l->mesh.n;
    e->plan.param_of = sk_many(e->tmp, int, e->g->tensors.n + 1);
    for (int i = 0; i < e->g->tensors.n; i++) {
        const sk_tensor *t = e->g->tensors.v[i];
        e->plan.param_of[i] = -1;
        if (t->role == SK_MEMORY) {
            int b = kept(e, t->name, t, SK_ACTS, &e->sp->made[i]);
            p->bufs.v[b].zero = true;
            *sk_push(p->arena, &p->memories) = b;
            e->plan.param_of[i] = p->memories.n - 1;
        }
        if (t->role != SK_PARAM) continue;
        const sk_stages *set = &e->plan.read_by[t->id];
        int tie = sk_plan_tie_group(e, set, sets, &n_sets);
        if (n_sets == 63) return sk_fail(SK_ECONF, "more than 62 sets of stages share parameters");
        if (sk_stages_has(set, p->stage)) SK_TRY(plan_param(e, t, set, tie));
    }
    sk_lower_decaying_vectors(e);
    SK_TRY(sk_plan_extras(e));
    SK_TRY(grads_fit(e));
    sk_plan_rank_groups(e, sets, n_sets);
    sk_plan_gathers(e);
    e->leaves.order = sk_many(e->tmp, int, sk_n_grads(p) + 1);
    return SK_OK;
}
