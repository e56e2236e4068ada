/* update.c - the end of a step: sums, clipping, the optimizer, the gather of updated weights.
 *
 * Sums over logical tensors (the global norm, an optimizer's own) are taken over the shards of all
 * ranks, every element counted once: a shard that several ranks have is counted by its owner.
 *
 * Delayed updates (optim.late; ZeRO-Offload's delayed parameter update) run on the host during a
 * step: they use the gradient of the step before.  When the step's own gradient is known, the
 * weights are copied from the masters, and the gradient is kept for the next step.  So each
 * gradient is computed with weights that lack the update before it.  The first step, and one after
 * a skipped step, has no gradient to begin with and updates nothing. */
#include "base/exact.h"
#include "program/lowering.h"

#include <string.h>

static int numbers(sk_lowering *e, const char *name, sk_dtype type, int64_t n)
{
    sk_extent box = {.n = 1, .size = {n}, .full = {n}};
    int b = sk_lower_buffer(e, name, NULL, SK_WIRE, type, box);
    e->p->bufs.v[b].keep = true;
    return b;
}

/* more: another buffer of the same type in the same call, or -1. */
static void reduce_over(sk_lowering *e, int group, int buf, int more, const char *what)
{
    sk_program *p = e->p;
    int call = sk_lower_call(e, SK_ALLREDUCE, e->totals_by, p->bufs.v[buf].type, group, what);
    sk_lower_seg(e, call, buf, buf, 1, p->bufs.v[buf].box.size[0], 1);
    if (more >= 0) sk_lower_seg(e, call, more, more, 1, p->bufs.v[more].box.size[0], 1);
    sk_lower_start(e, call, SK_FLIES_NOT);
}

/* Over the ranks of a replica, axis by axis; over the replicas; without replicas over all ranks. */
static void reduce_axes(sk_lowering *e, bool local, int buf, int more, const char *what)
{
    const sk_layout *l = e->l;
    for (int a = 0; a < l->mesh.n; a++)
        if (l->mesh.size[a] > 1 && sk_layout_local(l, a) == local)
            reduce_over(e, a, buf, more, what);
}

static void reduce_replica(sk_lowering *e, int buf, int more, const char *what)
{
    if (sk_layout_any_local(e->l)) reduce_axes(e, false, buf, more, what);
    else if (e->p->n_ranks > 1) reduce_over(e, e->p->world, buf, more, what);
}

/* A copy of the sums of a replica, summed over all replicas: what a step reports, while replicas
 * are told of each other's.  -1: they never are. */
static int reduce_all(sk_lowering *e, int buf, const char *name, const char *what)
{
    const sk_buffer b = e->p->bufs.v[buf];
    int64_t until = sk_replicas_apart(e) ? sk_replicas_from(e->l) : 0;
    if (sk_replicas_apart(e) && !until) return -1;
    int all = numbers(e, name, b.type, b.box.size[0]);
    e->at.sync.until = until;
    sk_lower_move(e, SK_DO_SLICE, buf, all);
    reduce_axes(e, true, all, -1, what);
    e->at.sync.until = 0;
    return all;
}

/* In deterministic order losses are summed by reduction blocks of the batch, and squares are added
 * as integers: neither depends on the order of ranks. */
static void stats(sk_lowering *e)
{
    sk_program *p = e->p;
    int cells = p->n_trees * p->n_blocks;
    bool exact = e->l->canonical && e->training;
    if (!p->stats) p->stats = numbers(e, "stats", SK_F64, SK_STAT_SUMS + p->n_sums + cells);
    int squares = exact ? numbers(e, "squares", SK_I64, SK_EXACT_LIMBS) : -1;
    for (int i = 0; e->training && e->l->home[SK_GRAD] && i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        if (q->tensor->bias_update != 0) continue;
        sk_inst *in = sk_lower_inst(e, SK_DO_SQUARES);
        in->in[0] = q->grad_shard;
        in->param = i;
        in->layer = q->tensor->layer;
    }
    bool timed = e->training && sk_layout_timed(e->l);
    if (timed) sk_lower_commit(e);
    sk_inst *in = sk_lower_inst(e, SK_DO_STATS);
    in->out[0] = p->stats;
    in->out[1] = squares;
    in->training = e->training;
    int noise = e->training ? e->noise : -1;
    bool local = sk_layout_any_local(e->l) && e->training;
    int beside = exact ? -1 : noise; /* exact ones are integers too */
    if (local) reduce_replica(e, p->stats, beside, "loss and norm");
    else if (p->n_ranks > 1 && !timed) reduce_over(e, p->world, p->stats, beside, "loss and norm");
    if (exact) reduce_replica(e, squares, noise, "squares");
    int all = local ? reduce_all(e, p->stats, "stats of all", "loss and norm of all") : -1;
    int exact_all =
        local && exact ? reduce_all(e, squares, "squares of all", "squares of all") : -1;
    in = sk_lower_inst(e, SK_DO_CLIP);
    in->in[0] = p->stats;
    in->in[1] = squares;
    in->in[2] = noise;
    in->in[3] = all;
    in->in[4] = exact_all;
    in->together = local ? sk_replicas_from(e->l) : 0;
    in->training = e->training;
}

sk_inst *sk_lower_pass(sk_lowering *e, int param, int pass)
{
    const sk_program *p = e->p;
    const sk_param_plan *q = &p->params.v[param];
    const sk_extent *box = &p->bufs.v[q->shard].box;
    sk_inst *in = sk_lower_inst(e, SK_DO_UPDATE);
    in->param = param;
    in->pass = pass;
    in->in[0] = q->grad_shard;
    for (int s = 0; s < q->n_state; s++) in->in[2 + s] = q->state[s];
    if (q->scalars >= 0) in->in[SK_IN_SCALARS] = q->scalars;
    in->out[0] = q->shard;
    in->out[2] = q->master;
    in->layer = q->tensor->layer;
    in->flops = 10.0 * (double)sk_box_count(box, 0, box->n);
    return in;
}

bool sk_lower_is_late(const sk_lowering *e, int param)
{
    return e->p->late && sk_lower_hosted(e, e->p->params.v[param].tensor);
}

static bool has_pass(const sk_param_plan *q, int pass)
{
    if (q->tensor->bias_update != 0) return pass == 0;
    if (sk_param_matrix_update(q) && (pass || !q->optim->n_sums))
        return false; /* matrix_update.c */
    for (int i = 0; i <= pass; i++)
        if (!q->optim->pass[i]) return false;
    return true;
}

static bool has(const sk_optim *o, int pass)
{
    int n = 0;
    while (o->pass[n]) n++;
    return n > pass;
}

/* Does such a pass over any parameter of the graph, on any rank, leave totals?  Bit 1: maxima among
 * them. */
static unsigned totals_of(const sk_compile_opts *o, int pass)
{
    unsigned are = 0;
    for (int g = 0; g <= o->n_groups; g++) {
        const sk_optim *x = g ? o->groups[g - 1].optim : o->optim;
        if (has(x, pass) && sk_optim_totals(x, pass)) are |= x->maxima ? 3 : 1;
    }
    return are;
}

static bool any_pass(const sk_compile_opts *o, int pass)
{
    bool any = false;
    for (int g = 0; g <= o->n_groups; g++) any |= has(g ? o->groups[g - 1].optim : o->optim, pass);
    return any;
}

/* A buffer of the totals of a pass: an entry for every one of n parameters.  Maxima lie behind the
 * sums, in f64 in any order. */
static int totals(sk_lowering *e, unsigned are, int64_t n)
{
    int64_t sums = n * SK_MAX_SUM * (e->l->canonical ? 2 : 1);
    if (!are) return -1;
    return numbers(e, "sums", e->l->canonical ? SK_I64 : SK_F64,
                   sums + (are & 2 ? n * SK_MAX_SUM : 0));
}

static int part_of_totals(sk_lowering *e, int all, sk_dtype type, int64_t from, int64_t n)
{
    int part = numbers(e, e->p->bufs.v[all].name, type, n);
    e->p->bufs.v[part].within = all;
    e->p->bufs.v[part].part_at = from * 8;
    return part;
}

/* Totals of a replica, over its ranks. */
static void join_totals(sk_lowering *e, int all, bool maxima)
{
    if (all < 0 || sk_layout_timed(e->l)) return; /* there each rank counts all by itself */
    if (!maxima) {
        reduce_replica(e, all, -1, "sums of the optimizer");
        return;
    }
    const sk_buffer b = e->p->bufs.v[all];
    int64_t most = b.box.size[0] / (e->l->canonical ? 3 : 2), sums = b.box.size[0] - most;
    if (e->p->n_ranks == 1) return;
    reduce_replica(e, part_of_totals(e, all, b.type, 0, sums), -1, "sums of the optimizer");
    e->totals_by = SK_MAXIMUM;
    reduce_replica(e, part_of_totals(e, all, SK_F64, sums, most), -1, "maxima of the optimizer");
    e->totals_by = SK_SUM;
}

/* A pass reads the totals of the pass before in[1] and leaves its own in out[1].  The bias of a
 * router is updated in the first pass. */
static void one_pass(sk_lowering *e, int pass, int before, int after, bool maxima)
{
    sk_program *p = e->p;
    int sends = e->opts->optim->sends ? e->opts->optim->n_first : -1;
    e->at.sync = sk_sent_due(e, pass);
    if (after >= 0) sk_lower_inst(e, SK_DO_ZERO)->out[0] = after;
    for (int group = 0; group <= e->opts->n_groups; group++) /* a launch takes those of one group */
        for (int i = 0; i < p->params.n; i++) {
            const sk_param_plan *q = &p->params.v[i];
            if (q->group != group || !has_pass(q, pass) || sk_lower_is_late(e, i)) continue;
            sk_inst *in = sk_lower_pass(e, i, pass);
            in->in[1] = pass && sk_optim_totals(q->optim, pass - 1) ? before : -1;
            in->out[1] = sk_optim_totals(q->optim, pass) ? after : -1;
            if (sends >= 0 && pass > sends && sk_optim_kind(q->optim, pass) == SK_STEP_SENT)
                in->in[2 + q->n_state] = e->sums_sent[i];
        }
    if (pass == sends) sk_lower_sent(e);
    join_totals(e, after, maxima);
    e->at.sync = (sk_step_due){0};
}

/* Those of one width that are gathered here: a call moves elements of one type. */
static bool is_whole_here(const sk_lowering *e, const sk_param_plan *q, int narrow)
{
    return q->shard != q->stored && q->lazy != e->training && sk_narrow(q->tensor) == narrow &&
           !sk_lower_averaged(e, q);
}

static void start_both(sk_lowering *e, sk_level_calls *calls)
{
    for (int level = 0; level < SK_SHARD_LEVELS; level++)
        sk_lower_start_level(e, calls, level, SK_FLIES_NOT);
}

static void whole_weights(sk_lowering *e, int narrow)
{
    sk_program *p = e->p;
    int64_t bytes = 0;
    sk_level_calls calls = {0};
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan q = p->params.v[i];
        bool common = p->bufs.v[q.stored].common;
        if (!is_whole_here(e, &q, narrow)) continue;
        sk_lower_join_levels(e, &calls, &q, q.shard, q.stored, 0,
                             sk_print(p->arena, "weights from %s", q.tensor->name));
        if (common) p->calls.v[calls.call[0][e->l->shard_axis] - 1].common = true;
        bytes += sk_lower_logical(e, q.tensor);
        if (bytes < sk_lower_bucket(e) || common) continue; /* one synchronisation is enough */
        start_both(e, &calls);
        bytes = 0;
    }
    start_both(e, &calls);
}

/* After the update each rank has its shard; kernels need all of the weight.  Lazy ones wait for the
 * next step. */
void sk_lower_whole_weights(sk_lowering *e)
{
    for (int w = 0; w < SK_WIDTHS; w++) whole_weights(e, w);
}

void sk_lower_validated_weights(sk_lowering *e)
{
    e->at.task = e->at.micro = -1;
    e->at.layer = 0;
    e->at.mean = true;
    sk_lower_whole_weights(e);
    e->at.mean = false;
}

/* --- delayed updates --- */

static sk_status may_be_late(const sk_optim *o)
{
    if (o->pass[1] || o->n_sums || !o->n_state || o->n_state >= SK_MAX_STATE)
        return sk_fail(SK_ECONF,
                       "optim.late is for optimizers of one pass with state, like adamw; %s %s",
                       o->name, o->pass[1] ? "has more" : "has none, or no room for more");
    return SK_OK;
}

sk_status sk_lower_late(sk_lowering *e)
{
    sk_program *p = e->p;
    p->late = e->opts->late;
    if (!p->late) return SK_OK;
    for (int i = 0; i < p->params.n; i++)
        if (sk_lower_is_late(e, i)) SK_TRY(may_be_late(p->params.v[i].optim));
    e->at.phase = SK_FORWARD;
    e->at.micro = -1;
    for (int i = 0; i < p->params.n; i++) {
        if (!sk_lower_is_late(e, i)) continue;
        const sk_param_plan *q = &p->params.v[i];
        sk_inst *in = sk_lower_pass(e, i, 0);
        in->in[0] = q->state[q->n_state - 1];
        in->in[2 + q->n_state - 1] = -1;
        in->out[0] = -1;
        in->scale = 1;
        in->background = true;
    }
    return SK_OK;
}

/* The results of delayed updates become the weights; the gradient is kept for the next step. */
static void take_late(sk_lowering *e)
{
    sk_program *p = e->p;
    sk_lower_inst(e, SK_DO_JOIN);
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        if (!sk_lower_is_late(e, i)) continue;
        sk_inst *in = sk_lower_inst(e, SK_DO_NARROW);
        in->in[0] = q->master;
        in->out[0] = q->shard;
        in->param = i;
        in->layer = q->tensor->layer;
        in = sk_lower_inst(e, SK_DO_PEND);
        in->in[0] = q->grad_shard;
        in->out[0] = q->state[q->n_state - 1];
        in->param = i;
        in->layer = q->tensor->layer;
    }
    e->at.layer = 0;
}

void sk_lower_update(sk_lowering *e)
{
    sk_program *p = e->p;
    e->at.phase = SK_BACKWARD;
    e->at.micro = -1;
    e->at.layer = 0;
    stats(e);
    if (p->async) return; /* tasks have updated already */
    sk_lower_push(e);
    sk_lower_keep_factors(e);
    int64_t n = 0; /* an entry for every parameter of the graph, so that ranks agree on it */
    for (int i = 0; i < e->g->tensors.n; i++) n += e->g->tensors.v[i]->role == SK_PARAM;
    int first = -1;
    for (int pass = 0, before = -1; any_pass(e->opts, pass); pass++) {
        unsigned are = totals_of(e->opts, pass);
        int after = totals(e, are, n);
        one_pass(e, pass, before, after, are & 2);
        before = after;
        if (!pass) first = after;
    }
    sk_lower_matrix_updates(e, first);
    if (p->late) take_late(e);
    sk_lower_replica_sync(e);
    sk_lower_whole_weights(e);
    sk_lower_averages(e);
}

void sk_lower_update_task(sk_lowering *e, sk_task t)
{
    e->at.work = t.work;
    e->at.micro = t.micro;
    e->at.layer = 0;
    e->at.phase = SK_BACKWARD;
    for (int i = 0; i < e->p->params.n; i++) sk_lower_pass(e, i, 0);
    sk_lower_whole_weights(e);
}

void sk_lower_report(sk_lowering *e)
{
    e->at.task = -1;
    e->at.micro = -1;
    e->at.layer = 0;
    stats(e);
}
