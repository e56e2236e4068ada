/* grad_noise.c - the gradient noise scale (train.noise): the gradient of a part of the batch beside
 * that of all of it.
 *
 * McCandlish et al. 2018, "An empirical model of large-batch training": squared norms of gradients
 * at two batch sizes give the variance of the gradient and the squared norm of its mean, without
 * bias.  The norm of the whole batch is known anyway.  The small batches are one micro-batch of
 * every rank that splits the batch, the one that the schedule takes backward first: its gradient is
 * complete before the second adds to it, or, if there is no second, before it is reduced.  SUMSQ
 * adds the squares of each such gradient to one number, which the all-reduce of the statistics of a
 * step takes along, and CLIP reports.  That costs one more read of the gradients a step, and no
 * memory.
 *
 *     measured  = sum over small batches of |g_small|^2        g: sums over samples
 *     expected  : sum(b) tr(Sigma) + sum(b^2) |G|^2            b: samples of a small batch
 *
 * So small batches may differ in size; the plan has both sums, as parts of the batch (sk_noise).
 *
 * Where gradients are reduced in every task (grad_targets.c), the leaves of that micro-batch are
 * measured.
 *
 * In deterministic order (order=canonical) the small batches are all micro-batches of all ranks
 * that split the batch, and their squares are added as integers (base/exact.h).  So the sum, and
 * what AdaScale makes of it, depends only on the parts into which the batch is cut: dp=4, dp=2
 * micro=2 and micro=4, with any tp, pp or zero, have the same bits.
 *
 * A gradient must be in one place: a parameter whose gradient comes in parts that
 * meet only later, on two stages, in two leaves or over an axis that splits something else than
 * samples, has no norm of a small batch on any rank.  Such layouts are refused. */
#include "base/exact.h"
#include "program/acts.h"
#include "program/lowering.h"

#include <string.h>

/* --- which layouts have gradients of small batches --- */

static bool splits_batch(const sk_lowering *e, int axis)
{
    return e->l->mesh.size[axis] > 1 && sk_layout_splits(e->l, axis, e->g->batch);
}

static bool measured(const sk_tensor *t) { return t->role == SK_PARAM && t->bias_update == 0; }

static sk_status no_place(const sk_lowering *e, const sk_tensor *t)
{
    const sk_state *made = &e->plan.grad_made[t->id];
    for (int a = 0; a < e->l->mesh.n; a++) {
        bool batch = splits_batch(e, a), partial = made->how[a] == SK_PARTIAL;
        if (a == e->l->stage_axis || e->l->mesh.size[a] == 1 || batch == partial) continue;
        return sk_fail(SK_ECONF,
                       batch ? "train.noise: the gradient of '%s' is not split by samples over %s, "
                               "as other gradients are; leave train.noise out, or split the batch "
                               "over another axis"
                             : "train.noise: the gradient of '%s' is a partial sum over %s, which "
                               "splits no samples, so no rank has the gradient of a small batch; "
                               "leave out train.noise, or what splits sequences (sp, cp)",
                       t->name, e->l->mesh.name[a]);
    }
    return SK_OK;
}

static sk_status many_leaves(const sk_lowering *e, const sk_tensor *t)
{
    if (e->l->canonical)
        return sk_fail(SK_ECONF,
                       "train.noise: with order=canonical the parts of the gradient of '%s' are "
                       "reduced one by one, so no rank has it of a small batch; take "
                       "model.tie_word_embeddings=false or order=fast, or leave out train.noise",
                       t->name);
    return sk_fail(SK_ECONF,
                   "train.noise: with zero=%d the parts of the gradient of '%s' are reduced one by "
                   "one, so no rank has it of a small batch; take "
                   "model.tie_word_embeddings=false or zero=1, or leave out train.noise",
                   (int)e->l->shard, t->name);
}

/* Nodes that contribute to the gradient of a parameter: on one stage, and to one leaf. */
static sk_status one_place(const sk_lowering *e)
{
    const sk_node **first = sk_many(e->tmp, const sk_node *, e->g->tensors.n + 1);
    bool leaves = sk_lower_per_task(e);
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *n = e->g->nodes.v[i];
        for (int o = 0; o < n->n_out; o++) {
            const sk_tensor *t = n->into[o];
            if (!t || !measured(t)) continue;
            const sk_node *f = first[t->id];
            if (!f) SK_TRY(no_place(e, t));
            else if (e->sp->stage[f->id] != e->sp->stage[i])
                return sk_fail(
                    SK_ECONF,
                    "train.noise: stages %d and %d have a part each of the gradient of "
                    "'%s'; take model.tie_word_embeddings=false, or leave out train.noise",
                    e->sp->stage[f->id], e->sp->stage[i], t->name);
            else if (leaves && (e->l->canonical || f->layer != n->layer)) return many_leaves(e, t);
            if (!f) first[t->id] = n;
        }
    }
    return SK_OK;
}

static sk_status words_fit(const sk_lowering *e)
{
    if (e->plan.schedule->async)
        return sk_fail(SK_ECONF,
                       "train.noise: schedule %s updates weights between micro-batches, so their "
                       "gradients are not of one point; take another schedule, as 1f1b",
                       e->l->schedule);
    if (e->l->home[SK_GRAD])
        return sk_fail(SK_ECONF,
                       "train.noise: gradients are offloaded to the %s; leave out "
                       "offload=grads, or train.noise",
                       sk_placement_names[e->l->home[SK_GRAD]]);
    if (*e->l->grads_as)
        return sk_fail(SK_ECONF,
                       "train.noise: with grads=%s the gradient of the batch is not the sum of "
                       "those of its parts; leave out one of the two",
                       e->l->grads_as);
    if (sk_layout_adasum(e->l) >= 0)
        return sk_fail(SK_ECONF, "train.noise: with reduce=adasum the gradient of the batch is not "
                                 "the sum of those of its parts; leave out one of the two");
    return SK_OK;
}

/* --- sizes of small batches --- */

/* The micro-batch whose gradient is complete first, on the last stage that has one. */
static int first_backward(const sk_lowering *e)
{
    for (int s = e->sp->n_stages - 1; s >= 0; s--) {
        const sk_tasks *t = &e->plan.tasks[true][s];
        for (int i = 0; i < t->n; i++)
            if (t->v[i].work != SK_WORK_F) return t->v[i].micro;
    }
    return 0;
}

static bool is_small(const sk_lowering *e, int micro) /* of the task, or -1 */
{
    return micro >= 0 && (e->l->canonical || micro == e->noise_micro);
}

/* Of the rank at these coordinates: samples of a micro-batch. */
static int64_t samples(const sk_lowering *e, const int *coord, int micro)
{
    const char batch[] = {e->g->batch, 0};
    sk_state s = {0};
    for (int a = 0; a < e->l->mesh.n; a++)
        if (splits_batch(e, a)) s.how[a] = SK_SPLIT;
    return sk_shard_of(e->g, e->l, batch, &s, coord, micro, e->p->n_micro).size[0];
}

static sk_status plan_sizes(sk_lowering *e)
{
    sk_noise *x = &e->p->noise;
    double all = (double)e->g->size[(int)e->g->batch & 127];
    int64_t sum = 0, squares = 0; /* of sizes: whole numbers, which no order of ranks changes */
    for (int r = 0; r < e->p->n_ranks; r++) {
        int coord[SK_MAX_AXES];
        bool counts = true;
        sk_mesh_coords(&e->l->mesh, r, coord);
        for (int a = 0; a < e->l->mesh.n; a++) counts &= splits_batch(e, a) || !coord[a];
        for (int m = 0; counts && m < e->p->n_micro; m++) {
            int64_t n = is_small(e, m) ? samples(e, coord, m) : 0;
            sum += n;
            squares += n * n;
        }
    }
    x->part = (double)sum / all;
    x->square = (double)squares / (all * all);
    if (x->part > 0 && x->part - x->square > 1e-9) return SK_OK;
    if (x->part <= 0 && all < e->p->n_micro)
        return sk_fail(SK_ECONF,
                       "train.noise measures the gradient of a micro-batch, and train.batch=%.0f "
                       "leaves it empty: there are %d micro-batches; take train.batch=%d or more, "
                       "or fewer micro-batches",
                       all, e->p->n_micro, e->p->n_micro);
    return sk_fail(SK_ECONF,
                   "train.noise compares the gradient of the batch with those of parts of it; here "
                   "%s; take two micro-batches (micro=2) or ranks that split the batch (dp=2)",
                   x->part > 0 ? "one rank has all of it in one micro-batch"
                               : "the micro-batch that would be measured is empty");
}

sk_status sk_noise_begin(sk_lowering *e)
{
    if (!e->opts->noise) return SK_OK;
    SK_TRY(words_fit(e));
    SK_TRY(one_place(e));
    e->noise_micro = first_backward(e);
    SK_TRY(plan_sizes(e));
    for (int i = 0; i < e->p->params.n; i++) {
        sk_param_plan *q = &e->p->params.v[i];
        const sk_state *made = &e->plan.grad_made[q->tensor->id];
        q->counts = measured(q->tensor);
        for (int a = 0; a < e->l->mesh.n; a++)
            if (a != e->l->stage_axis && made->how[a] == SK_REPLICATE && e->p->coord[a])
                q->counts = false;
    }
    int64_t n = e->l->canonical ? SK_EXACT_LIMBS : 1;
    sk_extent box = {.n = 1, .size = {n}, .full = {n}};
    e->noise = sk_lower_buffer(e, "noise", NULL, SK_WIRE, e->l->canonical ? SK_I64 : SK_F64, box);
    e->p->bufs.v[e->noise].keep = true;
    e->at.micro = -1;
    e->at.phase = SK_FORWARD;
    sk_lower_inst(e, SK_DO_ZERO)->out[0] = e->noise;
    return SK_OK;
}

/* --- instructions --- */

/* On every rank, whether it counts them or not: ranks of one shape have equal instructions. */
static void measure(const sk_lowering *e, sk_inst *in, int param, int buf)
{
    in->in[0] = buf;
    in->out[0] = e->noise;
    in->param = param;
}

void sk_noise_leaves(sk_lowering *e, const sk_grad_at *v, int n)
{
    for (int i = 0; e->noise >= 0 && is_small(e, e->at.micro) && i < n; i++)
        if (measured(e->p->params.v[v[i].param].tensor))
            measure(e, sk_lower_inst(e, SK_DO_SUMSQ), v[i].param, v[i].whole);
}

typedef struct writes { /* of gradients that are added up over micro-batches */
    sk_lowering *e;
    int *param_of;     /* by buffer: whose gradient it is, or -1 */
    int *last, *other; /* by parameter: the last write of the micro-batch; the first of another */
    int pc;
} writes;

static void see_write(void *ctx, int *buf, unsigned how)
{
    const writes *x = ctx;
    const sk_inst *in = &x->e->p->insts.v[x->pc];
    int param = how & SK_WRITES ? x->param_of[sk_buffer_root(x->e->p, *buf)] : -1;
    if (param < 0) return;
    if (in->micro == x->e->noise_micro) x->last[param] = x->pc;
    else if (x->other[param] < 0) x->other[param] = x->pc;
}

static sk_status find_writes(writes *x)
{
    sk_program *p = x->e->p;
    x->param_of = sk_many(x->e->tmp, int, p->bufs.n + 1);
    x->last = sk_many(x->e->tmp, int, p->params.n + 1);
    x->other = sk_many(x->e->tmp, int, p->params.n + 1);
    memset(x->param_of, -1, sizeof *x->param_of * (size_t)p->bufs.n);
    memset(x->last, -1, sizeof *x->last * (size_t)p->params.n);
    memset(x->other, -1, sizeof *x->other * (size_t)p->params.n);
    for (int i = 0; i < p->params.n; i++)
        if (measured(p->params.v[i].tensor)) x->param_of[p->params.v[i].grad] = i;
    for (x->pc = 0; x->pc < p->n_train; x->pc++)
        if (p->insts.v[x->pc].task >= 0) sk_operands(p, &p->insts.v[x->pc], see_write, x);
    for (int i = 0; i < p->params.n; i++)
        if (x->other[i] >= 0 && x->other[i] < x->last[i])
            return sk_fail(SK_ECONF,
                           "train.noise: schedule %s adds another micro-batch to the gradient of "
                           "'%s' before micro-batch %d is complete; take another schedule, as "
                           "1f1b",
                           x->e->l->schedule, p->params.v[i].tensor->name, x->e->noise_micro);
    return SK_OK;
}

/* Behind the unit of the last write, so that the gradient is complete, and as a part of that unit,
 * so that buckets.c reduces it afterwards. */
static int write_unit(void *ctx, const sk_inst *old, int pc)
{
    const writes *x = ctx;
    sk_program *p = x->e->p;
    int end = pc, n = x->pc;
    do *sk_push(x->e->tmp, &p->insts) = old[end++];
    while (end < n && old[pc].task >= 0 && old[end].task == old[pc].task &&
           old[end].unit == old[pc].unit);
    for (int i = 0; i < p->params.n && old[pc].task >= 0; i++) {
        if (x->last[i] < pc || x->last[i] >= end) continue;
        sk_inst in = sk_inst_like(&old[end - 1], SK_DO_SUMSQ);
        measure(x->e, &in, i, p->params.v[i].grad);
        *sk_push(x->e->tmp, &p->insts) = in;
    }
    return end;
}

sk_status sk_measure_noise(sk_lowering *e)
{
    writes x = {.e = e};
    if (e->noise < 0 || sk_lower_per_task(e)) return SK_OK;
    SK_TRY(find_writes(&x));
    x.pc = e->p->n_train;
    return sk_rewrite(e, write_unit, &x);
}
