/* grads.c - parameters, where they lie, and where their gradients go.
 *
 * A parameter has a used state (what kernels see) and an update state (what the
 * optimizer sees): the same, or cut once more along dim 0 over the shard axis.
 *
 *     shard nothing   weights used,   gradient used,   all-reduce at the end
 *     shard state     weights used,   gradient used,   reduce-scatter at the end, gather weights
 *     shard grads     weights used,   gradient cut:    reduce-scatter per task, gather weights
 *     shard params    weights cut:    gather per layer and task; gradient cut as above
 *
 * Ranks along the shard axis may have their weights in one memory (replica): each updates its piece
 * in place, and to gather them is only to meet.
 *
 * Reductions go in buckets as gradients become ready, so that they start before
 * the backward pass ends.  Buckets are formed by logical sizes, which all ranks
 * see alike, never by the sizes of pieces. */
#include "program/emit.h"

#include <stdio.h>
#include <string.h>

enum { IN_FLIGHT = SK_COMM_FLIGHT / 2 };

static bool sharded(const sk_emit *e, sk_shard level)
{
    return e->opts->optim && e->l->shard >= level && e->l->shard_axis >= 0;
}

/* --- parameters --- */

/* A part of a kept buffer: my cut of dim 0 over the shard axis. */
static int part_of(sk_emit *e, int whole, const sk_tensor *t, const sk_state *cut)
{
    sk_program *p = e->p;
    int part = sk_emit_piece(e, t, p->bufs.v[whole].kind, cut, -1);
    sk_buffer *b = &p->bufs.v[part], *w = &p->bufs.v[whole];
    b->keep = true;
    b->within = whole;
    b->part_at = b->box.n ? (b->box.at[0] - w->box.at[0]) * sk_box_count(&b->box, 1, b->box.n) *
                                (int64_t)sk_dtype_size(b->type)
                          : 0;
    return part;
}

static int kept(sk_emit *e, const char *name, const sk_tensor *t, sk_kind kind, const sk_state *s)
{
    int b = sk_emit_piece(e, t, kind, s, -1);
    e->p->bufs.v[b].name = name;
    e->p->bufs.v[b].keep = true;
    return b;
}

/* The rank that speaks for a piece that several have: the first along every axis that repeats it.
 */
static bool first_of(const sk_emit *e, const sk_state *s, uint64_t stages)
{
    for (int a = 0; a < e->l->mesh.n; a++) {
        if (a == e->l->stage_axis) {
            if (stages && (stages & ((1ull << e->p->stage) - 1))) return false;
        } else if (s->how[a] == SK_WHOLE && e->p->coord[a]) return false;
    }
    return true;
}

/* The optimizer sees a piece of what kernels see; a scalar cannot be cut. */
static bool is_cut(const sk_emit *e, const sk_param_plan *q)
{
    return sharded(e, SK_SHARD_STATE) && q->update.how[e->l->shard_axis] == SK_SPLIT;
}

static void plan_grad(sk_emit *e, sk_param_plan *q)
{
    const sk_tensor *t = q->tensor;
    sk_program *p = e->p;
    const char *name = sk_print(p->arena, "%s.grad", t->name);
    q->grad = -1;
    if (!sharded(e, SK_SHARD_GRADS)) {
        q->grad = kept(e, name, t, SK_GRADS, &q->used);
        q->grad_shard = is_cut(e, q) ? part_of(e, q->grad, t, &q->update) : q->grad;
    } else q->grad_shard = kept(e, name, t, SK_GRADS, &q->update);
    for (int s = 0; s < e->opts->optim->n_state; s++) {
        name =
            sk_print(p->arena, "%s.%s.%s", t->name, e->opts->optim->name, e->opts->optim->state[s]);
        q->state[s] = kept(e, name, t, SK_OPTIM, &q->update);
        p->bufs.v[q->state[s]].zero = true;
    }
}

/* Groups of tied stages are numbered by the order of the parameters that need them, on all ranks.
 */
static int tie_group(sk_emit *e, uint64_t set, uint64_t *sets, int *n_sets)
{
    int i = 0;
    if ((set & (set - 1)) == 0) return -1;
    while (i < *n_sets && sets[i] != set) i++;
    if (i == *n_sets) sets[(*n_sets)++] = set;
    return (set >> e->p->stage & 1) ? e->p->world + 1 + i : -1;
}

static void make_groups(sk_emit *e, const uint64_t *sets, int n_sets)
{
    sk_program *p = e->p;
    const sk_mesh *m = &e->l->mesh;
    p->n_groups = m->n + 1 + n_sets;
    p->groups = sk_many(p->arena, sk_group, p->n_groups);
    for (int i = 0; i < p->n_groups; i++) {
        int axis = i < m->n ? i : i == p->world ? -1 : e->l->stage_axis;
        p->groups[i].me = -1;
        if (i > p->world && !(sets[i - p->world - 1] >> p->stage & 1)) continue; /* not mine */
        int n = axis < 0 ? p->n_ranks : m->size[axis], *ranks = sk_many(p->arena, int, n),
            count = 0;
        for (int k = 0; k < n; k++) {
            int coord[SK_MAX_AXES];
            memcpy(coord, p->coord, sizeof coord);
            if (i > p->world && !(sets[i - p->world - 1] >> k & 1)) continue;
            if (axis >= 0) coord[axis] = k;
            ranks[count] = axis >= 0 ? sk_mesh_rank(m, coord) : k;
            if (ranks[count] == p->rank) p->groups[i].me = count;
            count++;
        }
        p->groups[i].n = count;
        p->groups[i].ranks = ranks;
    }
}

/* The state a gradient has after all its contributions, before any reduction. */
static sk_state grad_made(const sk_emit *e, const sk_tensor *t) { return e->grad_made[t->id]; }

/* Contributions are added up in place: they must be made alike, and cut as the weight is. */
static sk_status grads_fit(const sk_emit *e, const sk_param_plan *q)
{
    const sk_tensor *t = q->tensor;
    sk_state first = grad_made(e, t);
    for (int i = 0; i < e->g->nodes.n; i++) {
        for (int o = 0; o < e->g->nodes.v[i]->n_out; o++) {
            const sk_state *made = &e->sp->node[i].out[o];
            if (e->g->nodes.v[i]->into[o] != t) continue;
            for (int a = 0; a < e->l->mesh.n; a++) {
                bool split = q->used.how[a] == SK_SPLIT;
                if (made->how[a] == first.how[a] && split == (made->how[a] == SK_SPLIT) &&
                    (!split || made->dim[a] == q->used.dim[a]))
                    continue;
                return sk_fail(SK_ECONF,
                               "layout: the gradient of '%s' would not be cut over '%s' as the "
                               "weight \"%s\" is; split fewer of these letters over '%s'",
                               t->name, e->l->mesh.name[a], t->letters, e->l->mesh.name[a]);
            }
        }
    }
    return SK_OK;
}

/* Common memory needs a piece for each rank: what cannot be cut is everybody's own. */
static bool is_common(const sk_emit *e, const sk_param_plan *q)
{
    return e->l->replica && is_cut(e, q) && e->l->mesh.size[e->l->shard_axis] > 1;
}

static sk_status plan_param(sk_emit *e, const sk_tensor *t, uint64_t set, int tie)
{
    sk_program *p = e->p;
    sk_param_plan *q = sk_push(p->arena, &p->params);
    e->param_of[t->id] = p->params.n - 1;
    *q = (sk_param_plan){.tensor = t,
                         .used = e->sp->made[t->id],
                         .tie_group = tie,
                         .decay = t->init > 0,
                         .grad = -1,
                         .grad_shard = -1};
    q->update = q->used;
    if (sharded(e, SK_SHARD_STATE) && t->letters[0]) {
        int a = e->l->shard_axis;
        if (q->used.how[a] == SK_SPLIT)
            return sk_fail(
                SK_ECONF,
                "layout: '%s' is split along '%c' over '%s' and cannot be sharded over it "
                "as well",
                t->name, t->letters[q->used.dim[a]], e->l->mesh.name[a]);
        q->update.how[a] = SK_SPLIT;
        q->update.dim[a] = 0;
    }
    SK_TRY(grads_fit(e, q));
    bool cut = sharded(e, SK_SHARD_PARAMS);
    q->stored = kept(e, t->name, t, SK_WEIGHTS, cut ? &q->update : &q->used);
    q->shard = cut || !is_cut(e, q) ? q->stored : part_of(e, q->stored, t, &q->update);
    p->bufs.v[q->stored].common = is_common(e, q);
    q->owner = first_of(e, &q->update, set);
    q->writes = first_of(e, cut ? &q->update : &q->used, set);
    if (e->opts->optim) plan_grad(e, q);
    return SK_OK;
}

/* For every (phase, layer) of this stage, the parameters its nodes read. */
static void index_uses(sk_emit *e)
{
    sk_program *p = e->p;
    e->uses = sk_many(p->arena, sk_ints, 2 * (e->g->n_layers + 1));
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *n = e->g->nodes.v[i];
        if (e->sp->stage[i] != p->stage) continue;
        sk_ints *list = &e->uses[2 * n->layer + (int)n->phase];
        for (int k = 0; k < n->n_in; k++) {
            int q = e->param_of[n->in[k]->id], at = 0;
            if (q < 0 || n->in[k]->role != SK_PARAM) continue;
            while (at < list->n && list->v[at] != q) at++;
            if (at == list->n) *sk_push(p->arena, list) = q;
        }
    }
}

sk_status sk_emit_params(sk_emit *e)
{
    sk_program *p = e->p;
    uint64_t sets[64];
    int n_sets = 0;
    p->world = e->l->mesh.n;
    for (int i = 0; i < e->g->tensors.n; i++) {
        const sk_tensor *t = e->g->tensors.v[i];
        e->param_of[i] = -1;
        if (t->role == SK_MEMORY) {
            int b = kept(e, t->name, t, SK_ACTS, &e->sp->made[i]);
            p->bufs.v[b].zero = true;
            *sk_push(p->arena, &p->memories) = b;
            e->param_of[i] = p->memories.n - 1;
        }
        if (t->role != SK_PARAM) continue;
        uint64_t set = e->read_by[t->id];
        int tie = tie_group(e, set, sets, &n_sets);
        if (n_sets == 63) return sk_fail(SK_ECONF, "more than 62 sets of stages share parameters");
        if (set >> p->stage & 1) SK_TRY(plan_param(e, t, set, tie));
    }
    make_groups(e, sets, n_sets);
    index_uses(e);
    e->left = sk_many(p->arena, int, p->params.n + 1);
    e->begun = sk_many(p->arena, char, p->params.n + 1);
    e->full_grad = sk_many(p->arena, int, p->params.n + 1);
    e->gathered = sk_many(p->arena, int, p->params.n + 1);
    for (int i = 0; i < p->params.n; i++) {
        e->left[i] = e->grad_parts[p->params.v[i].tensor->id] * p->n_micro;
        e->full_grad[i] = -1;
    }
    return SK_OK;
}

/* --- sharded weights, made whole for one layer of one task --- */

static void gather_layer(sk_emit *e)
{
    sk_program *p = e->p;
    const char *what = sk_print(p->arena, "weights of layer %d", e->layer);
    int call = sk_emit_call(e, SK_ALLGATHER, SK_SUM, SK_F32, e->l->shard_axis, what);
    memset(e->gathered, -1, sizeof *e->gathered * (size_t)p->params.n);
    e->gathered_layer = e->layer;
    const sk_ints *uses = &e->uses[2 * e->layer + (int)e->phase];
    for (int k = 0; k < uses->n; k++) {
        int i = uses->v[k];
        const sk_param_plan *q = &p->params.v[i];
        e->gathered[i] = q->stored;
        if (!is_cut(e, q)) continue;
        int whole = sk_emit_piece(e, q->tensor, SK_WIRE, &q->used, -1);
        const sk_extent *box = &p->bufs.v[whole].box;
        sk_emit_seg(e, call, q->stored, whole, 1, box->size[0], sk_box_count(box, 1, box->n));
        e->gathered[i] = whole;
    }
    sk_emit_start(e, call);
    sk_emit_wait(e, call);
}

/* The buffer that has a parameter as kernels see it. */
int sk_emit_gathered(sk_emit *e, int param)
{
    if (!sharded(e, SK_SHARD_PARAMS)) return e->p->params.v[param].stored;
    if (e->gathered_layer != e->layer) gather_layer(e);
    sk_assert(e->gathered[param] >= 0);
    return e->gathered[param];
}

/* --- gradients --- */

static void fly(sk_emit *e, int call)
{
    if (e->flying.n == IN_FLIGHT) sk_emit_wait(e, e->flying.v[0]);
    sk_emit_start(e, call);
    *sk_push(e->p->arena, &e->flying) = call;
}

static void settle_all(sk_emit *e)
{
    while (e->flying.n) sk_emit_wait(e, e->flying.v[0]);
}

int sk_emit_grad_target(sk_emit *e, int param, const sk_state *made, bool *add)
{
    sk_param_plan *q = &e->p->params.v[param];
    sk_state first = grad_made(e, q->tensor);
    sk_assert(sk_state_equal(made, &first)); /* see grads_fit */
    if (!sharded(e, SK_SHARD_GRADS)) {
        *add = e->begun[param];
        e->begun[param] = 1;
        return q->grad;
    }
    *add = e->full_grad[param] >= 0;
    if (!*add) e->full_grad[param] = sk_emit_piece(e, q->tensor, SK_GRADS, &q->used, -1);
    return e->full_grad[param];
}

/* Is this gradient summed over the shard axis by a reduce-scatter?  Where nothing is split over
 * that axis every rank has the whole sum already, and its piece is a slice. */
static bool scattered(const sk_emit *e, const sk_param_plan *q)
{
    return is_cut(e, q) && grad_made(e, q->tensor).how[e->l->shard_axis] == SK_PSUM;
}

static bool more_axes(const sk_emit *e, int before)
{
    for (int i = 0; i < e->ready.n; i++) {
        sk_state made = grad_made(e, e->p->params.v[e->ready.v[i]].tensor);
        for (int a = 0; a < before; a++)
            if (made.how[a] == SK_PSUM) return true;
    }
    return false;
}

/* Reduce the ready gradients over every axis over which they are partial.  The shard axis comes
 * last and leaves each rank its piece. */
static void reduce_ready(sk_emit *e)
{
    sk_program *p = e->p;
    int shard = sharded(e, SK_SHARD_STATE) ? e->l->shard_axis : -1;
    for (int a = e->l->mesh.n - 1; a >= 0; a--) {
        int call = -1;
        for (int i = 0; i < e->ready.n; i++) {
            sk_param_plan *q = &p->params.v[e->ready.v[i]];
            sk_state made = grad_made(e, q->tensor);
            if ((a == shard && is_cut(e, q)) || made.how[a] != SK_PSUM) continue;
            int64_t n = sk_box_count(&p->bufs.v[q->grad].box, 0, p->bufs.v[q->grad].box.n);
            if (call < 0)
                call = sk_emit_call(e, SK_ALLREDUCE, SK_SUM, SK_F32, a,
                                    sk_print(p->arena, "grads from %s", q->tensor->name));
            sk_emit_seg(e, call, q->grad, q->grad, 1, n, 1);
        }
        if (call < 0) continue;
        fly(e, call);
        if (shard >= 0 || more_axes(e, a)) sk_emit_wait(e, call);
    }
}

static void scatter_ready(sk_emit *e)
{
    sk_program *p = e->p;
    int a = e->l->shard_axis, call = -1;
    for (int i = 0; i < e->ready.n; i++) {
        sk_param_plan *q = &p->params.v[e->ready.v[i]];
        const sk_extent *box = &p->bufs.v[q->grad].box;
        if (!scattered(e, q)) continue;
        if (call < 0)
            call = sk_emit_call(e, SK_REDUCE_SCATTER, SK_SUM, SK_F32, a,
                                sk_print(p->arena, "grads from %s", q->tensor->name));
        sk_emit_seg(e, call, q->grad, q->grad_shard, 1, box->size[0], sk_box_count(box, 1, box->n));
    }
    if (call >= 0) fly(e, call);
}

static void flush(sk_emit *e)
{
    if (!e->ready.n) return;
    reduce_ready(e);
    if (sharded(e, SK_SHARD_STATE)) scatter_ready(e);
    e->ready.n = 0;
    e->ready_bytes = 0;
}

void sk_emit_grad_done(sk_emit *e, int param)
{
    if (sharded(e, SK_SHARD_GRADS) || --e->left[param]) return;
    *sk_push(e->p->arena, &e->ready) = param;
    e->ready_bytes += sk_emit_logical(e, e->p->params.v[param].tensor);
    if (e->ready_bytes >= sk_emit_bucket(e)) flush(e);
}

static void move(sk_emit *e, sk_act act, int from, int to)
{
    sk_inst *in = sk_emit_inst(e, act);
    in->in[0] = from;
    in->out[0] = to;
}

/* Gradients cut over the shard axis: the whole gradients of this task are reduced, each rank
 * keeps its piece and adds it to what came from earlier micro-batches. */
static void scatter_task(sk_emit *e)
{
    sk_program *p = e->p;
    int call = -1, *piece = sk_many(p->arena, int, p->params.n);
    for (int i = 0; i < p->params.n; i++) {
        if (e->full_grad[i] < 0) continue;
        sk_param_plan *q = &p->params.v[i];
        piece[i] =
            e->begun[i] ? sk_emit_piece(e, q->tensor, SK_GRADS, &q->update, -1) : q->grad_shard;
        if (!scattered(e, q)) continue;
        const sk_extent *box = &p->bufs.v[e->full_grad[i]].box;
        if (call < 0)
            call = sk_emit_call(e, SK_REDUCE_SCATTER, SK_SUM, SK_F32, e->l->shard_axis,
                                sk_print(p->arena, "grads from %s", q->tensor->name));
        sk_emit_seg(e, call, e->full_grad[i], piece[i], 1, box->size[0],
                    sk_box_count(box, 1, box->n));
    }
    if (call >= 0) sk_emit_start(e, call);
    if (call >= 0) sk_emit_wait(e, call);
    for (int i = 0; i < p->params.n; i++) {
        if (e->full_grad[i] < 0) continue;
        if (!scattered(e, &p->params.v[i])) move(e, SK_DO_SLICE, e->full_grad[i], piece[i]);
        if (e->begun[i]) move(e, SK_DO_ADD, piece[i], p->params.v[i].grad_shard);
        e->begun[i] = 1;
        e->full_grad[i] = -1;
    }
}

/* Axes other than the shard axis first, in place on the whole gradient. */
static void reduce_task(sk_emit *e)
{
    sk_program *p = e->p;
    for (int a = e->l->mesh.n - 1; a >= 0; a--) {
        int call = -1;
        for (int i = 0; i < p->params.n; i++) {
            if (e->full_grad[i] < 0) continue;
            if (a == e->l->shard_axis && is_cut(e, &p->params.v[i])) continue;
            if (grad_made(e, p->params.v[i].tensor).how[a] != SK_PSUM) continue;
            if (call < 0) call = sk_emit_call(e, SK_ALLREDUCE, SK_SUM, SK_F32, a, "grads");
            const sk_extent *box = &p->bufs.v[e->full_grad[i]].box;
            sk_emit_seg(e, call, e->full_grad[i], e->full_grad[i], 1, sk_box_count(box, 0, box->n),
                        1);
        }
        if (call < 0) continue;
        sk_emit_start(e, call);
        sk_emit_wait(e, call);
    }
}

/* Called when the backward half of one layer of one micro-batch is written. */
void sk_emit_task_end(sk_emit *e)
{
    e->gathered_layer = -1;
    if (!e->training || !sharded(e, SK_SHARD_GRADS)) return;
    reduce_task(e);
    scatter_task(e);
}

/* Parameters that several stages share: every stage has a part of the sum. */
static void reduce_tied(sk_emit *e)
{
    sk_program *p = e->p;
    for (int g = p->world + 1; g < p->n_groups; g++) {
        int call = -1;
        for (int i = 0; i < p->params.n; i++) {
            sk_param_plan *q = &p->params.v[i];
            const sk_extent *box = &p->bufs.v[q->grad_shard].box;
            if (q->tie_group != g) continue;
            if (call < 0) call = sk_emit_call(e, SK_ALLREDUCE, SK_SUM, SK_F32, g, "tied grads");
            sk_emit_seg(e, call, q->grad_shard, q->grad_shard, 1, sk_box_count(box, 0, box->n), 1);
        }
        if (call < 0) continue;
        sk_emit_start(e, call);
        sk_emit_wait(e, call);
    }
}

void sk_emit_grads_end(sk_emit *e)
{
    flush(e);
    settle_all(e);
    reduce_tied(e);
}
