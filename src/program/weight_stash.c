/* weight_stash.c - asynchronous updates: weight stashing and weight prediction.
 *
 * Where stages update asynchronously within a step, tasks of a stage read weights of several
 * versions (task.version, from the schedule): a backward pass reads those of its forward pass
 * (weight stashing: PipeDream), or both read the same older version (double buffering:
 * PipeDream-2BW).
 *
 * `lower` ignores versions: every task reads the stored weights, and an update task has one UPDATE
 * a parameter.  This pass goes over the tasks in order:
 *   - an update task begins with copies of the weights that later tasks still read; a copy lives
 *     until its last reader, as any buffer does, and where weights are sharded it is of the shard;
 *   - a task that reads an older version reads the copy instead of the stored weights;
 *   - an optimizer that predicts weights (optim.ahead) computes what they will be when the gradient
 *     arrives, and the forward pass reads that instead (Kosson et al. 2020);
 *   - UPDATE learns its number, its delay and the scale of its gradients; CLIP that of the newest.
 *
 * Stages do not synchronise for these updates: there is no norm of all gradients, no sum of an
 * optimizer over tensors, and no weight that several stages share. */
#include "layout/word.h"
#include "program/acts.h"
#include "program/lowering.h"

#include <string.h>

typedef struct part { /* of stored weights, and the same part of another version */
    int of, whole, buf;
} part;

typedef struct stash {
    sk_lowering *e;
    sk_program *p;
    const sk_tasks *tasks; /* of this stage */
    int at, made;          /* the current task; updates before it */
    int *seen;             /* by micro-batch: the version that its forward pass reads */
    int *delay;            /* by micro-batch: updates between its forward and its backward pass */
    int *old;              /* [version][parameter]: a copy, or -1 */
    int *ahead;            /* [micro-batch][parameter]: as the optimizer predicts it, or -1 */
    unsigned *reads;       /* by parameter: the phases in which it is read, as bits */
    int *param_of;         /* by buffer: the parameter that it stores, or -1 */
    struct {
        part *v;
        int n, cap;
    } parts;
    double places; /* of the loss whose gradients were accumulated since the last update */
    float scale;   /* of the newest update */
} stash;

/* --- what `lower` asks --- */

/* The version that a forward pass reads. */
static int seen_by(const sk_tasks *tasks, int micro)
{
    for (int i = 0; i < tasks->n; i++)
        if (tasks->v[i].work == SK_WORK_F && tasks->v[i].micro == micro) return tasks->v[i].version;
    return -1;
}

bool sk_lower_same_weights(const sk_lowering *e)
{
    const sk_tasks *mine = &e->tasks[e->p->stage];
    if (!e->plan.schedule->async || !e->training) return true;
    sk_task f = mine->v[e->at.task];
    for (int i = e->at.task; i < mine->n; i++) {
        sk_task t = mine->v[i];
        if (t.micro == f.micro && t.work != SK_WORK_F && t.work != SK_WORK_U)
            return t.version == f.version;
    }
    return false;
}

static sk_status possible(const sk_lowering *e)
{
    const char *name = e->plan.schedule->name, *tied = NULL;
    const sk_tasks *mine = &e->tasks[e->p->stage];
    for (int i = 0; i < e->p->params.n; i++)
        if (e->p->params.v[i].tie_group >= 0) tied = e->p->params.v[i].tensor->name;
    if (tied)
        return sk_fail(SK_ECONF,
                       "layout: stages of schedule %s update on their own, and '%s' is on several; "
                       "untie it (model.tie_word_embeddings=false), or take 1f1b",
                       name, tied);
    SK_TRY(sk_averages_not_async(e));
    for (int i = 0; i < e->p->params.n; i++) {
        const sk_param_plan *q = &e->p->params.v[i];
        if (q->optim->ahead && sk_narrow(q->tensor))
            return sk_fail(SK_ECONF,
                           "optimizer %s foresees weights of f32, and train.dtype is %s; take sgd, "
                           "or train.dtype=f32",
                           q->optim->name, sk_dtype_name(q->tensor->type));
        if (q->optim->pass[1])
            return sk_fail(SK_ECONF,
                           "optimizer %s needs sums over whole tensors, and stages of schedule %s "
                           "do not meet for them; sgd and adamw do without",
                           q->optim->name, name);
    }
    sk_word_ask ask = {.layout = e->l, .async = true};
    for (int i = 0; i < mine->n; i++)
        if (mine->v[i].work == SK_WORK_B && mine->v[i].version != seen_by(mine, mine->v[i].micro))
            ask.stale = true;
    SK_TRY(sk_layout_fits(&ask));
    return SK_OK;
}

sk_status sk_lower_async(sk_lowering *e)
{
    const sk_tasks *mine = &e->tasks[e->p->stage];
    if (!e->plan.schedule->async) return SK_OK;
    SK_TRY(possible(e));
    e->p->n_updates = 0;
    for (int i = 0; i < mine->n; i++) e->p->n_updates += mine->v[i].work == SK_WORK_U;
    e->p->async = true;
    return SK_OK;
}

/* --- setting up --- */

static int *unset(sk_lowering *e, int n)
{
    int *v = sk_many(e->tmp, int, n + 1);
    memset(v, -1, sizeof *v * (size_t)(n + 1));
    return v;
}

static void count_delays(stash *x)
{
    int updates = 0;
    for (int i = 0; i < x->tasks->n; i++) {
        sk_task t = x->tasks->v[i];
        if (t.work == SK_WORK_F) x->seen[t.micro] = t.version, x->delay[t.micro] = -updates;
        else if (t.work == SK_WORK_U) updates++;
        else x->delay[t.micro] += updates;
    }
}

static void find_readers(stash *x)
{
    for (int layer = 0; layer < x->e->g->n_layers; layer++)
        for (int phase = 0; phase < 2; phase++) {
            const sk_ints *uses = &x->e->plan.uses[2 * layer + phase];
            for (int k = 0; k < uses->n; k++) x->reads[uses->v[k]] |= 1u << phase;
        }
}

static void begin(stash *x)
{
    sk_arena *tmp = x->e->tmp;
    int micros = x->p->n_micro, params = x->p->params.n;
    x->tasks = &x->e->plan.tasks[true][x->p->stage];
    x->at = -1;
    x->seen = sk_many(tmp, int, micros);
    x->delay = sk_many(tmp, int, micros);
    x->reads = sk_many(tmp, unsigned, params + 1);
    count_delays(x);
    find_readers(x);
    x->old = unset(x->e, params * x->p->n_updates);
    x->ahead = unset(x->e, params * micros);
    x->param_of = unset(x->e, x->p->bufs.n);
    for (int i = 0; i < params; i++) x->param_of[x->p->params.v[i].stored] = i;
}

/* --- weight prediction --- */

static int predict_one(stash *x, int param, int delay)
{
    const sk_param_plan *q = &x->p->params.v[param];
    bool cut = sk_lower_is_cut(x->e, q);
    int to = sk_lower_piece(x->e, q->tensor, SK_WIRE, cut ? &q->update : &q->used, -1);
    const sk_extent *box = &x->p->bufs.v[to].box;
    sk_inst *in = sk_lower_inst(x->e, SK_DO_AHEAD);
    in->param = param;
    in->in[0] = q->shard;
    for (int s = 0; s < q->n_state; s++) in->in[2 + s] = q->state[s];
    in->out[0] = to;
    in->delay = delay;
    in->update = x->made;
    in->layer = q->tensor->layer;
    in->flops = 4.0 * (double)sk_box_count(box, 0, box->n);
    return to;
}

/* Each rank predicts the shard whose optimizer state it has; ranks that store all of the weight
 * gather it. */
static void predict(stash *x, sk_task t)
{
    sk_lowering *e = x->e;
    sk_program *p = x->p;
    int call = -1;
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        int *to = &x->ahead[t.micro * p->params.n + i];
        if (!(x->reads[i] & 1u << SK_FORWARD) || !q->optim->ahead || q->tensor->bias_update != 0)
            continue;
        int piece = *to = predict_one(x, i, x->delay[t.micro]);
        if (q->shard == q->stored) continue;
        *to = sk_lower_piece(e, q->tensor, SK_WIRE, &q->used, -1);
        if (call < 0)
            call = sk_lower_call(e, SK_ALLGATHER, SK_SUM, SK_F32, e->l->shard_axis,
                                 sk_print(p->arena, "weights ahead from %s", q->tensor->name));
        sk_lower_rows(e, call, piece, *to, &p->bufs.v[*to].box, 0);
    }
    if (call >= 0) sk_lower_start(e, call, SK_FLIES_NOT);
}

/* --- weight stashing --- */

/* Phases in which later tasks read the weights as they are now. */
static unsigned wanted(const stash *x)
{
    unsigned phases = 0;
    for (int i = x->at + 1; i < x->tasks->n; i++) {
        sk_task t = x->tasks->v[i];
        if (t.work != SK_WORK_U && t.version == x->made)
            phases |= 1u << (t.work == SK_WORK_F ? SK_FORWARD : SK_BACKWARD);
    }
    return phases;
}

static void copy_wanted(stash *x)
{
    unsigned phases = wanted(x);
    for (int i = 0; i < x->p->params.n; i++) {
        const sk_param_plan *q = &x->p->params.v[i];
        bool shard = q->shard == q->stored && sk_lower_is_cut(x->e, q);
        if (!(x->reads[i] & phases)) continue;
        int copy = sk_lower_piece(x->e, q->tensor, SK_WIRE, shard ? &q->update : &q->used, -1);
        sk_lower_move(x->e, SK_DO_SLICE, q->stored, copy);
        x->old[x->made * x->p->params.n + i] = copy;
    }
}

/* Where the current task finds a parameter. */
static int version_of(const stash *x, int param)
{
    sk_task t = x->tasks->v[x->at];
    int n = x->p->params.n, ahead = x->ahead[t.micro * n + param];
    if (ahead >= 0 && (t.work == SK_WORK_F || t.version == x->seen[t.micro])) return ahead;
    if (t.version == x->made) return x->p->params.v[param].stored;
    int old = x->old[t.version * n + param];
    sk_assert(old >= 0);
    return old;
}

/* The part of `whole` that a tile is of the stored weights; the same for all its readers. */
static int part_in(stash *x, int of, int whole)
{
    for (int i = 0; i < x->parts.n; i++)
        if (x->parts.v[i].of == of && x->parts.v[i].whole == whole) return x->parts.v[i].buf;
    const sk_buffer b = x->p->bufs.v[of];
    int buf = sk_lower_buffer(x->e, b.name, b.tensor, x->p->bufs.v[whole].kind, b.type, b.box);
    x->p->bufs.v[buf].within = whole;
    x->p->bufs.v[buf].part_at = b.part_at;
    *sk_push(x->e->tmp, &x->parts) = (part){of, whole, buf};
    return buf;
}

static void bind(void *ctx, int *buf, unsigned how)
{
    stash *x = ctx;
    int root = sk_buffer_root(x->p, *buf), param = x->param_of[root];
    if (param < 0) return;
    sk_assert(how & SK_READS); /* only updates write weights */
    int to = version_of(x, param);
    if (to != root) *buf = *buf == root ? to : part_in(x, *buf, to);
}

/* --- tasks in order --- */

/* Positions of a micro-batch that the loss is summed over, on all ranks. */
static double places(const sk_lowering *e, int micro)
{
    double n = 1;
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *node = e->g->nodes.v[i];
        for (int o = 0; o < node->n_out; o++) {
            if (node->into[o] != e->g->sum[SK_SUM_WEIGHT]) continue;
            sk_extent box = sk_shard_of(e->g, e->l, node->in[0]->letters, &(sk_state){0},
                                        e->p->coord, micro, e->p->n_micro);
            n = (double)sk_box_count(&box, 0, box.n);
        }
    }
    return n;
}

static void next_task(stash *x)
{
    sk_lowering *e = x->e;
    if (x->at >= 0) x->made += x->tasks->v[x->at].work == SK_WORK_U;
    sk_task t = x->tasks->v[++x->at];
    e->at = (sk_place){.task = x->at,
                       .work = t.work,
                       .micro = t.micro,
                       .phase = t.work == SK_WORK_F ? SK_FORWARD : SK_BACKWARD};
    if (t.work == SK_WORK_B) x->places += places(e, t.micro);
    if (t.work == SK_WORK_F && x->delay[t.micro] > 0) predict(x, t);
    if (t.work != SK_WORK_U) return;
    x->scale = (float)(1 / (x->places > 0 ? x->places : 1));
    x->places = 0;
    copy_wanted(x);
}

static void one_inst(stash *x, sk_inst in)
{
    if (in.act == SK_DO_UPDATE) {
        in.update = x->made;
        in.delay = x->made - x->seen[in.micro];
        in.scale = x->scale;
    } else if (in.act == SK_DO_CLIP) in.scale = x->scale;
    else if (in.task >= 0 && in.work != SK_WORK_U) sk_operands(x->p, &in, bind, x);
    *sk_push(x->e->tmp, &x->p->insts) = in;
}

sk_status sk_stash_weights(sk_lowering *e)
{
    sk_program *p = e->p;
    int n = p->insts.n, n_train = p->n_train;
    stash x = {.e = e, .p = p};
    if (!p->async) return SK_OK;
    begin(&x);
    sk_inst *old = sk_grow(e->tmp, NULL, 0, sizeof *old * (size_t)(n + 1));
    memcpy(old, p->insts.v, sizeof *old * (size_t)n);
    p->insts.n = 0;
    for (int pc = 0; pc < n_train; pc++) {
        int task = old[pc].task >= 0 ? old[pc].task : x.tasks->n - 1;
        while (x.at < task) next_task(&x);
        one_inst(&x, old[pc]);
    }
    p->n_train = p->insts.n;
    for (int pc = n_train; pc < n; pc++) *sk_push(e->tmp, &p->insts) = old[pc];
    return SK_OK;
}
