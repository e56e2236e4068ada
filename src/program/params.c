/* params.c - parameters: where they are stored, who owns them, and how sharded ones are gathered.
 *
 * A parameter has a used state (what kernels see) and an update state (what the optimizer sees):
 * the same, or sharded in addition along dim 0 over the shard axis.
 *
 *     shard nothing   weights used,   gradient used,   all-reduce at the end
 *     shard state     weights used,   gradient used,   reduce-scatter at the end, gather weights
 *     shard grads     weights used,   gradient cut:    reduce-scatter per task, gather weights
 *     shard params    weights cut:    gather per layer and task; gradient cut as above
 *
 * Gathers and reductions may be of encoded shards (codec_calls.c).  Ranks along the shard axis may
 * share one copy of the weights in memory (replica): each updates its shard in place, and the
 * gather is only a synchronisation. */
#include "program/lowering.h"

#include <stdio.h>
#include <string.h>

enum { NOT_BEGUN = -1, NOTHING = -2 }; /* instead of a call */

static int *gathering(const sk_lowering *e, int layer) { return &e->gathering[SK_WIDTHS * layer]; }

static bool sharded(const sk_lowering *e, sk_shard level)
{
    return e->opts->optim && e->l->shard >= level && e->l->shard_axis >= 0 &&
           e->l->mesh.size[e->l->shard_axis] > 1; /* a single rank has nothing to gather */
}

bool sk_lower_per_task(const sk_lowering *e)
{
    return e->opts->optim &&
           (e->l->canonical || e->plan.schedule->async || sharded(e, SK_SHARD_GRADS));
}

/* --- parameters --- */

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
bool sk_lower_first(const sk_lowering *e, const sk_state *s, uint64_t stages)
{
    for (int a = 0; a < e->l->mesh.n; a++) {
        if (a == e->l->stage_axis) {
            if (stages && (stages & ((1ull << e->p->stage) - 1))) return false;
        } else if (s->how[a] == SK_REPLICATE && e->p->coord[a] && !sk_layout_local(e->l, a))
            return false;
    }
    return true;
}

/* The optimizer sees a shard of what kernels see; a scalar cannot be sharded. */
bool sk_lower_is_cut(const sk_lowering *e, const sk_param_plan *q)
{
    return sharded(e, SK_SHARD_STATE) && q->update.how[e->l->shard_axis] == SK_SPLIT &&
           q->used.how[e->l->shard_axis] != SK_SPLIT;
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
    q->lead = sk_lower_first(e, &(sk_state){0}, e->plan.read_by[q->tensor->id]);
}

/* The sum that nodes contribute to: the gradient of a parameter, or an extra. */
static void plan_sum(sk_lowering *e, sk_param_plan *q, const char *name)
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
    plan_sum(e, q, name);
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

/* Groups of tied stages are numbered by the order of the parameters that need them, on all ranks.
 */
static int tie_group(sk_lowering *e, uint64_t set, uint64_t *sets, int *n_sets)
{
    int i = 0;
    if ((set & (set - 1)) == 0) return -1;
    while (i < *n_sets && sets[i] != set) i++;
    if (i == *n_sets) sets[(*n_sets)++] = set;
    return (set >> e->p->stage & 1) ? e->p->world + 1 + i : -1;
}

/* The members of a group along an axis: the stages of a set, or those in the small group of the
 * second copy, or all. */
static void make_group(sk_lowering *e, int i, int axis, uint64_t set)
{
    sk_program *p = e->p;
    const sk_mesh *m = &e->l->mesh;
    int n = axis < 0 ? p->n_ranks : m->size[axis], count = 0, *ranks = sk_many(p->arena, int, n);
    int coord[SK_MAX_AXES];
    memcpy(coord, p->coord, sizeof coord);
    p->groups[i].me = -1;
    for (int k = 0; k < n; k++) {
        if (i > p->world && i != p->near && !(set >> k & 1)) continue;
        if (i == p->near && i && k / e->l->copy != p->coord[axis] / e->l->copy) continue;
        if (axis >= 0) coord[axis] = k;
        ranks[count] = axis >= 0 ? sk_mesh_rank(m, coord) : k;
        if (ranks[count] == p->rank) p->groups[i].me = count;
        count++;
    }
    p->groups[i].n = count;
    p->groups[i].ranks = ranks;
}

static void make_groups(sk_lowering *e, const uint64_t *sets, int n_sets)
{
    sk_program *p = e->p;
    int axes = e->l->mesh.n;
    if (sharded(e, SK_SHARD_PARAMS) && e->l->copy > 1) p->near = axes + 1 + n_sets;
    p->n_groups = axes + 1 + n_sets + (p->near > 0);
    p->groups = sk_many(p->arena, sk_group, p->n_groups);
    for (int i = 0; i < axes; i++) make_group(e, i, i, 0);
    make_group(e, p->world, -1, 0);
    for (int i = 0; i < n_sets; i++) {
        p->groups[p->world + 1 + i].me = -1;
        if (sets[i] >> p->stage & 1) make_group(e, p->world + 1 + i, e->l->stage_axis, sets[i]);
    }
    if (p->near) make_group(e, p->near, e->l->shard_axis, 0);
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
    return e->l->replica && sk_lower_is_cut(e, q) && e->l->mesh.size[e->l->shard_axis] > 1;
}

sk_state sk_update_state(const sk_lowering *e, const sk_tensor *t)
{
    sk_state s = e->sp->made[t->id];
    int a = e->l->shard_axis;
    if (!sharded(e, SK_SHARD_STATE) || !t->letters[0]) return s;
    if (t->role == SK_EXTRA && !t->of) return s; /* every rank has all of it, for reports */
    if (s.how[a] != SK_SPLIT) s.dim[a] = 0; /* what a letter splits over it needs no cut more */
    s.how[a] = SK_SPLIT;
    return s;
}

static sk_status plan_param(sk_lowering *e, const sk_tensor *t, uint64_t set, int tie)
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
                         .ema = -1,
                         .scalars = -1,
                         .error = -1};
    if (e->opts->optim) {
        q->group = sk_lower_group(e, t);
        q->optim = sk_lower_optim(e, t);
    }
    q->update = sk_update_state(e, t);
    bool cut = sharded(e, SK_SHARD_PARAMS);
    q->stored = kept(e, t->name, t, SK_WEIGHTS, cut ? &q->update : &q->used);
    q->shard = cut || !sk_lower_is_cut(e, q) ? q->stored : part_of(e, q->stored, t, &q->update);
    p->bufs.v[q->stored].common = is_common(e, q);
    q->owner = sk_lower_first(e, &q->update, set);
    q->writes = sk_lower_first(e, cut ? &q->update : &q->used, set);
    if (!e->opts->optim) return SK_OK;
    bool moves = q->optim->perturb && t->bias_update == 0;
    if (t->type != SK_F32 || sk_lower_hosted(e, t) || moves)
        q->master = sk_lower_kept_state(e, sk_print(p->arena, "%s.master", t->name), q, SK_F32);
    SK_TRY(sk_whole_fits(e, q));
    SK_TRY(plan_grad(e, q));
    if (p->ema > 0) {
        q->ema = sk_lower_kept_state(e, sk_print(p->arena, "%s.ema", t->name), q, SK_F32);
        p->bufs.v[q->ema].zero = true;
    }
    sk_plan_replica(e, q);
    if (e->l->feedback && sk_lower_grads_as(e, q)) sk_lower_error(e, q, set);
    return SK_OK;
}

/* --- extras of the backward pass --- */

int sk_program_extra(const sk_program *p, const sk_tensor *param, int kind)
{
    for (int i = p->params.n; i < sk_n_grads(p); i++)
        if (p->params.v[i].tensor->of == param && p->params.v[i].tensor->extra == kind) return i;
    return -1;
}

static void plan_extra(sk_lowering *e, const sk_tensor *t)
{
    sk_program *p = e->p;
    sk_param_plan *q = sk_push(p->arena, &p->params);
    e->plan.param_of[t->id] = p->params.n - 1;
    const sk_tensor *sent = sk_extra_sent(e, t);
    *q = (sk_param_plan){.tensor = sent,
                         .made = sent == t ? NULL : t,
                         .every = sk_extra_every(e, t),
                         .used = e->sp->made[t->id],
                         .update = sk_update_state(e, t),
                         .tie_group = -1,
                         .stored = -1,
                         .shard = -1,
                         .master = -1,
                         .mean = -1,
                         .anchor = -1,
                         .outer_momentum = -1,
                         .ema = -1,
                         .scalars = -1,
                         .error = -1};
    q->owner = sk_lower_first(e, &q->update, 0);
    plan_sum(e, q, sent->name);
}

/* Who wants extras: an optimizer with Kronecker factors, or the user. */
static const char *asks_extras(const sk_compile_opts *o)
{
    for (int i = 0; i < o->n_groups; i++)
        if (o->groups[i].optim->factors) return o->groups[i].optim->name;
    return o->optim->factors ? o->optim->name : "train.backward";
}

static sk_status extras_fit(const sk_lowering *e)
{
    if (!e->opts->optim || !e->g->extras) return SK_OK;
    const char *who = asks_extras(e->opts);
    if (e->plan.schedule->async)
        return sk_fail(SK_ECONF,
                       "%s: schedule %s updates weights between micro-batches, so what they tell "
                       "is not of one point; take another schedule, as 1f1b",
                       who, e->l->schedule);
    if (e->l->home[SK_GRAD])
        return sk_fail(SK_ECONF,
                       "%s: gradients are offloaded to the %s; leave out offload=grads, or %s", who,
                       sk_placement_names[e->l->home[SK_GRAD]], who);
    return SK_OK;
}

/* Behind the parameters; contributions to one are all of one stage. */
static sk_status plan_extras(sk_lowering *e)
{
    sk_program *p = e->p;
    SK_TRY(extras_fit(e));
    for (int i = 0; i < e->g->nodes.n && e->opts->optim; i++) {
        const sk_node *n = e->g->nodes.v[i];
        for (int o = 0; o < n->n_out && e->sp->stage[i] == p->stage; o++) {
            const sk_tensor *t = n->into[o];
            if (!t || t->role != SK_EXTRA || e->plan.param_of[t->id] >= 0) continue;
            plan_extra(e, t);
            p->n_extras++;
        }
    }
    p->params.n -= p->n_extras;
    return SK_OK;
}

static void add_use(sk_arena *a, sk_ints *list, int param)
{
    for (int i = 0; i < list->n; i++)
        if (list->v[i] == param) return;
    *sk_push(a, list) = param;
}

/* For every (phase, layer) of this stage, the parameters its nodes read, including clones of
 * recomputed nodes in the backward pass. */
static void index_uses(sk_lowering *e)
{
    sk_program *p = e->p;
    e->plan.uses = sk_many(p->arena, sk_ints, 2 * (e->g->n_layers + 1));
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *n = e->g->nodes.v[i];
        if (e->sp->stage[i] != p->stage) continue;
        sk_ints *list = &e->plan.uses[2 * n->layer + (int)n->phase];
        for (int k = 0; k < n->n_in; k++) {
            int q = e->plan.param_of[n->in[k]->id];
            if (q < 0 || n->in[k]->role != SK_PARAM) continue;
            add_use(p->arena, list, q);
            if (n->phase == SK_FORWARD && e->plan.recomputed[n->out[0]->id])
                add_use(p->arena, list + 1, q);
        }
    }
}

sk_status sk_plan_params(sk_lowering *e)
{
    sk_program *p = e->p;
    uint64_t sets[64];
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
        uint64_t set = e->plan.read_by[t->id];
        int tie = tie_group(e, set, sets, &n_sets);
        if (n_sets == 63) return sk_fail(SK_ECONF, "more than 62 sets of stages share parameters");
        if (set >> p->stage & 1) SK_TRY(plan_param(e, t, set, tie));
    }
    sk_lower_decaying_vectors(e);
    SK_TRY(plan_extras(e));
    SK_TRY(grads_fit(e));
    make_groups(e, sets, n_sets);
    index_uses(e);
    e->leaves.order = sk_many(e->tmp, int, sk_n_grads(p) + 1);
    e->gathering = sk_many(p->arena, int, SK_WIDTHS *(e->g->n_layers + 1));
    for (int i = 0; i < SK_WIDTHS * (e->g->n_layers + 1); i++) e->gathering[i] = NOT_BEGUN;
    return SK_OK;
}

/* --- sharded weights, gathered for one layer of one task --- */

static const sk_ints *uses_of(const sk_lowering *e, int layer)
{
    return &e->plan.uses[2 * layer + (int)e->at.phase];
}

/* Adds a weight to a layer's call; the first weight creates it. */
static void join_gather(sk_lowering *e, int layer, int param)
{
    sk_program *p = e->p;
    const sk_param_plan *q = &p->params.v[param];
    const sk_codec *codec = sk_lower_weights_as(e, q);
    int *call = gathering(e, layer) + (codec ? SK_CODED : sk_narrow(q->tensor));
    if (*call == NOTHING) {
        *call = sk_lower_call(e, SK_ALLGATHER, SK_SUM, codec ? SK_U8 : q->tensor->type,
                              e->l->shard_axis, sk_print(p->arena, "weights of layer %d", layer));
        p->calls.v[*call].param_set = layer + 1;
    }
    int whole = sk_lower_piece(e, q->tensor, SK_WIRE, &q->used, -1), dst = whole;
    int src = sk_lower_averaged(e, q) ? sk_lower_average(e, param) : q->stored;
    if (codec) {
        src = sk_lower_encode(e, codec, src, -1, false);
        dst = sk_lower_code(e, codec, whole, 1);
        sk_lower_then(e, *call, (sk_then){SK_DO_DECODE, dst, whole, 1, codec});
    }
    const sk_extent box = p->bufs.v[dst].box;
    sk_lower_rows(e, *call, src, dst, &box, 0);
    sk_call_plan *c = &p->calls.v[*call];
    c->segs[c->n_segs - 1].param = param + 1;
    sk_lower_have(e, q->tensor, &q->used, whole);
}

/* Is it gathered where a layer reads it? */
static bool comes_in_shards(const sk_lowering *e, const sk_param_plan *q)
{
    return sk_lower_is_cut(e, q) && (sharded(e, SK_SHARD_PARAMS) || sk_lower_averaged(e, q));
}

/* Starts the gather of weights that a layer reads and that are not available. */
static void begin_gather(sk_lowering *e, int layer)
{
    const sk_ints *uses = uses_of(e, layer);
    int *calls = gathering(e, layer);
    if (*calls != NOT_BEGUN) return;
    for (int w = 0; w < SK_WIDTHS; w++) calls[w] = NOTHING;
    for (int k = 0; k < uses->n; k++) {
        const sk_param_plan *q = &e->p->params.v[uses->v[k]];
        if (comes_in_shards(e, q) && sk_lower_find(e, q->tensor, &q->used) < 0)
            join_gather(e, layer, uses->v[k]);
    }
    for (int w = 0; w < SK_WIDTHS; w++)
        if (calls[w] != NOTHING) sk_lower_start(e, calls[w], SK_FLIES_IN_TASK);
}

/* Gathers this layer's weights, and starts the gathers of the next layers of this task. */
static void open_layer(sk_lowering *e)
{
    int at = 0;
    while (at < e->layers.n && e->layers.v[at] != e->at.layer) at++;
    int ahead = e->at.work == SK_WORK_W ? 0 : e->l->prefetch; /* weight halves read few weights */
    for (int k = at; k <= at + ahead && k < e->layers.n; k++) begin_gather(e, e->layers.v[k]);
    e->gathered_layer = e->at.layer;
}

/* A parameter of which this rank has all that kernels see. */
static int not_gathered(sk_lowering *e, int param)
{
    const sk_param_plan *q = &e->p->params.v[param];
    if (!sk_lower_averaged(e, q)) return q->stored;
    int buf = sk_lower_find(e, q->tensor, &q->used);
    if (buf >= 0) return buf;
    buf = sk_lower_average(e, param);
    sk_lower_have(e, q->tensor, &q->used, buf);
    return buf;
}

/* The buffer with a parameter as kernels see it. */
int sk_lower_gathered(sk_lowering *e, int param)
{
    const sk_param_plan *q = &e->p->params.v[param];
    if (!comes_in_shards(e, q)) return not_gathered(e, param);
    if (e->gathered_layer != e->at.layer) open_layer(e);
    int buf = sk_lower_find(e, q->tensor, &q->used);
    sk_assert(buf >= 0);
    return buf;
}

/* Does a layer whose gather has started rely on this weight (tied: it was available then)? */
static bool awaited(const sk_lowering *e, int param)
{
    for (int i = 0; i < e->layers.n; i++) {
        const sk_ints *uses = uses_of(e, e->layers.v[i]);
        if (*gathering(e, e->layers.v[i]) == NOT_BEGUN) continue;
        for (int k = 0; k < uses->n; k++)
            if (uses->v[k] == param) return true;
    }
    return false;
}

/* The layer is done: its weights are freed, or kept for the backward pass. */
void sk_lower_close_layer(sk_lowering *e)
{
    const sk_ints *uses = uses_of(e, e->at.layer);
    e->gathered_layer = -1;
    if (!sharded(e, SK_SHARD_PARAMS) && e->training) return;
    *gathering(e, e->at.layer) = NOT_BEGUN;
    bool forward = e->training && e->at.work == SK_WORK_F && sk_lower_same_weights(e);
    for (int k = 0; k < uses->n; k++) {
        const sk_tensor *t = e->p->params.v[uses->v[k]].tensor;
        bool saved = forward && sk_is_saved_as(e, t, SK_GATHERED);
        if (!saved && !awaited(e, uses->v[k])) sk_lower_forget(e, t);
    }
}
