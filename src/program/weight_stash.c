/* versions.c - weights that change within a step.
 *
 * Where stages update on their own, the tasks of a stage read weights of several versions: a
 * backward pass those of its forward pass (stashed), or both an older common one (double buffered).
 * The stored weights are always the newest.  Before an update the ones that are still to
 * be read are copied; the copy lives until its last reader, as any buffer does, and where
 * weights are sharded it is of the shard.
 *
 * An optimizer that can look ahead is asked what the weights will be when the gradient arrives,
 * and the forward pass reads that instead (Kosson et al. 2020).
 *
 * Stages do not meet for these updates: no norm of all gradients, no sums of an optimizer over
 * tensors, no weights that several stages share. */
#include "layout/word.h"
#include "program/emit.h"

#include <string.h>

typedef struct sk_versions {
    int at, made;    /* the task at work; updates before it */
    int *seen;       /* [micro]: version that its forward pass reads */
    int *late;       /* [micro]: updates between its forward and its backward pass */
    int *old;        /* [version][param]: a copy, or -1 */
    int *ahead;      /* [micro][param]: as the optimizer foresees it, or -1 */
    unsigned *reads; /* param -> phases in which it is read, as bits */
    double places;   /* that gradients were added up of since the last update */
    float scale;     /* of the newest update */
} sk_versions;

static const sk_tasks *mine(const sk_emit *e) { return &e->tasks[e->p->stage]; }
static sk_task at_work(const sk_emit *e) { return mine(e)->v[e->versions->at]; }

/* --- setting up --- */

/* The version that a forward pass reads. */
static int saw(const sk_emit *e, int micro)
{
    for (int i = 0; i < mine(e)->n; i++)
        if (mine(e)->v[i].work == SK_WORK_F && mine(e)->v[i].micro == micro)
            return mine(e)->v[i].version;
    return -1;
}

static sk_status possible(const sk_emit *e)
{
    const char *name = e->plan.schedule->name, *tied = NULL;
    for (int i = 0; i < e->p->params.n; i++)
        if (e->p->params.v[i].tie_group >= 0) tied = e->p->params.v[i].tensor->name;
    if (tied)
        return sk_fail(SK_ECONF,
                       "layout: stages of schedule %s update on their own, and '%s' is on several; "
                       "untie it (model.tie_word_embeddings=false), or take 1f1b",
                       name, tied);
    for (int i = 0; e->opts->optim->ahead && i < e->p->params.n; i++)
        if (sk_narrow(e->p->params.v[i].tensor))
            return sk_fail(SK_ECONF,
                           "optimizer %s foresees weights of f32, and train.dtype is %s; take sgd, "
                           "or train.dtype=f32",
                           e->opts->optim->name, sk_dtype_name(e->p->params.v[i].tensor->type));
    sk_word_ask ask = {.layout = e->l, .async = true};
    for (int i = 0; i < mine(e)->n; i++)
        if (mine(e)->v[i].work == SK_WORK_B && mine(e)->v[i].version != saw(e, mine(e)->v[i].micro))
            ask.stale = true;
    SK_TRY(sk_layout_fits(&ask));
    if (e->opts->optim->pass[1])
        return sk_fail(SK_ECONF,
                       "optimizer %s needs sums over whole tensors, and stages of schedule %s do "
                       "not meet for them; sgd and adamw do without",
                       e->opts->optim->name, name);
    return SK_OK;
}

static int *unset(sk_emit *e, int n)
{
    int *v = sk_many(e->tmp, int, n + 1);
    memset(v, -1, sizeof *v * (size_t)(n + 1));
    return v;
}

static void count_tasks(sk_emit *e, sk_versions *v)
{
    int updates = 0;
    for (int i = 0; i < mine(e)->n; i++) {
        sk_task t = mine(e)->v[i];
        if (t.work == SK_WORK_F) v->seen[t.micro] = t.version, v->late[t.micro] = -updates;
        else if (t.work == SK_WORK_U) updates++;
        else v->late[t.micro] += updates;
    }
    e->p->n_updates = updates;
    e->p->apart = true;
}

static void find_readers(sk_emit *e, sk_versions *v)
{
    for (int layer = 0; layer < e->g->n_layers; layer++)
        for (int phase = 0; phase < 2; phase++) {
            const sk_ints *uses = &e->plan.uses[2 * layer + phase];
            for (int k = 0; k < uses->n; k++) v->reads[uses->v[k]] |= 1u << phase;
        }
}

sk_status sk_emit_versions(sk_emit *e)
{
    int micros = e->p->n_micro, params = e->p->params.n;
    if (!e->plan.schedule->apart) return SK_OK;
    SK_TRY(possible(e));
    sk_versions *v = e->versions = sk_new(e->tmp, sk_versions);
    v->seen = sk_many(e->tmp, int, micros);
    v->late = sk_many(e->tmp, int, micros);
    v->reads = sk_many(e->tmp, unsigned, params + 1);
    count_tasks(e, v);
    find_readers(e, v);
    v->old = unset(e, params * e->p->n_updates);
    v->ahead = unset(e, params * micros);
    return SK_OK;
}

/* --- what a task reads --- */

static bool sees_same(const sk_emit *e, sk_task back)
{
    return back.version == e->versions->seen[back.micro];
}

int sk_emit_stored(const sk_emit *e, int param)
{
    const sk_versions *v = e->versions;
    int stored = e->p->params.v[param].stored;
    if (!v || !e->training) return stored;
    sk_task t = at_work(e);
    int ahead = v->ahead[t.micro * e->p->params.n + param];
    if (ahead >= 0 && (t.work == SK_WORK_F || sees_same(e, t))) return ahead;
    if (t.version == v->made) return stored;
    int old = v->old[t.version * e->p->params.n + param];
    sk_assert(old >= 0);
    return old;
}

bool sk_emit_seen_again(const sk_emit *e)
{
    if (!e->versions || !e->training) return true;
    sk_task f = at_work(e);
    for (int i = e->versions->at; i < mine(e)->n; i++) {
        sk_task t = mine(e)->v[i];
        if (t.micro == f.micro && t.work != SK_WORK_F && t.work != SK_WORK_U)
            return sees_same(e, t);
    }
    return false;
}

/* --- looking ahead --- */

static const sk_state *stored_state(const sk_emit *e, const sk_param_plan *q)
{
    return q->shard == q->stored && sk_emit_is_cut(e, q) ? &q->update : &q->used;
}

static int look_ahead(sk_emit *e, int param, int late)
{
    const sk_param_plan *q = &e->p->params.v[param];
    bool cut = sk_emit_is_cut(e, q);
    int to = sk_emit_piece(e, q->tensor, SK_WIRE, cut ? &q->update : &q->used, -1);
    const sk_extent *box = &e->p->bufs.v[to].box;
    sk_inst *in = sk_emit_inst(e, SK_DO_AHEAD);
    in->param = param;
    in->in[0] = q->shard;
    for (int s = 0; s < q->n_state; s++) in->in[2 + s] = q->state[s];
    in->out[0] = to;
    in->delay = late;
    in->update = e->versions->made;
    in->layer = q->tensor->layer;
    in->flops = 4.0 * (double)sk_box_count(box, 0, box->n);
    return to;
}

/* Each rank foresees the piece whose state it has; those that keep all gather it. */
static void foresee(sk_emit *e, sk_task t)
{
    sk_versions *v = e->versions;
    sk_program *p = e->p;
    int call = -1;
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        int *to = &v->ahead[t.micro * p->params.n + i];
        if (!(v->reads[i] & 1u << SK_FORWARD) || q->tensor->nudge != 0) continue;
        int piece = *to = look_ahead(e, i, v->late[t.micro]);
        if (q->shard == q->stored) continue;
        *to = sk_emit_piece(e, q->tensor, SK_WIRE, &q->used, -1);
        if (call < 0)
            call = sk_emit_call(e, SK_ALLGATHER, SK_SUM, SK_F32, e->l->shard_axis,
                                sk_print(p->arena, "weights ahead from %s", q->tensor->name));
        sk_emit_rows(e, call, piece, *to, &p->bufs.v[*to].box, 0);
    }
    if (call >= 0) sk_emit_start(e, call, SK_FLIES_NOT);
}

/* --- updates --- */

/* Places of a micro-batch that the loss is summed over, on all ranks. */
static double places(const sk_emit *e, int micro)
{
    double n = 1;
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *node = e->g->nodes.v[i];
        for (int o = 0; o < node->n_out; o++) {
            if (node->into[o] != e->g->sum[SK_SUM_WEIGHT]) continue;
            sk_extent box = sk_piece_of(e->g, e->l, node->in[0]->letters, &(sk_state){0},
                                        e->p->coord, micro, e->p->n_micro);
            n = (double)sk_box_count(&box, 0, box.n);
        }
    }
    return n;
}

void sk_emit_versions_at(sk_emit *e, int at)
{
    sk_versions *v = e->versions;
    if (!v) return;
    v->at = at;
    sk_task t = at_work(e);
    e->at.work = t.work;
    e->at.micro = t.micro;
    e->at.layer = 0;
    e->at.phase = t.work == SK_WORK_F ? SK_FORWARD : SK_BACKWARD;
    if (t.work == SK_WORK_B) v->places += places(e, t.micro);
    if (t.work == SK_WORK_F && v->late[t.micro] > 0 && e->opts->optim->ahead) foresee(e, t);
}

/* Phases in which later tasks read the weights as they are now. */
static unsigned wanted(const sk_emit *e)
{
    unsigned phases = 0;
    for (int i = e->versions->at + 1; i < mine(e)->n; i++) {
        sk_task t = mine(e)->v[i];
        if (t.work != SK_WORK_U && t.version == e->versions->made)
            phases |= 1u << (t.work == SK_WORK_F ? SK_FORWARD : SK_BACKWARD);
    }
    return phases;
}

static void keep_version(sk_emit *e)
{
    sk_versions *v = e->versions;
    unsigned phases = wanted(e);
    for (int i = 0; i < e->p->params.n; i++) {
        const sk_param_plan *q = &e->p->params.v[i];
        if (!(v->reads[i] & phases)) continue;
        int copy = sk_emit_piece(e, q->tensor, SK_WIRE, stored_state(e, q), -1);
        sk_inst *in = sk_emit_inst(e, SK_DO_SLICE);
        in->in[0] = q->stored;
        in->out[0] = copy;
        v->old[v->made * e->p->params.n + i] = copy;
    }
}

void sk_emit_apart(sk_emit *e)
{
    sk_versions *v = e->versions;
    int micro = at_work(e).micro;
    v->scale = (float)(1 / (v->places > 0 ? v->places : 1));
    v->places = 0;
    keep_version(e);
    for (int i = 0; i < e->p->params.n; i++) {
        sk_inst *in = sk_emit_pass(e, i, 0);
        in->update = v->made;
        in->delay = v->made - v->seen[micro];
        in->scale = v->scale;
    }
    v->made++;
    e->at.layer = 0;
    sk_emit_whole_weights(e);
    sk_emit_grads_used(e);
}

float sk_emit_scale(const sk_emit *e) { return e->versions ? e->versions->scale : 0; }
