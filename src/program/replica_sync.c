/* replica_sync.c - synchronisations of replicas (sync.h): instructions behind the update, which run
 * in every so-many-th step.
 *
 * What is synchronised is what the optimizer changes: the master of a narrow weight, else the
 * weight, as the shard that this rank updates.  So under ZeRO inside of a replica each rank sends
 * only its shard, and the gather of updated weights that follows brings the results to all.
 *
 * A part with an outer step keeps the anchor, the weights of the last synchronisation, which is
 * alike in all replicas, and perhaps a momentum.  Its replicas send their difference from the
 * anchor.  Fragments are sent where a step begins and taken where it ends: the call is in flight
 * while the step computes, and the difference is that of the step before.  Where a codec is said
 * (replica_codec.c) its sums are sent on halfway through the step. */
#include "base/strings.h"
#include "program/lowering.h"
#include "program/sync.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

const char *sk_sync_timed_name(const sk_layout *l)
{
    sk_sync_kind kind = sk_layout_backup(l) >= 0 ? SK_SYNC_BACKUP : SK_SYNC_STALE;
    const sk_sync *const *s = sk_sync_parts;
    while (*s && (*s)->kind != kind) s++;
    sk_assert(*s);
    return (*s)->name;
}

const sk_sync *sk_sync_find(const char *name)
{
    for (const sk_sync *const *s = sk_sync_parts; *s; s++)
        if (!strcmp((*s)->name, name)) return *s;
    return NULL;
}

bool sk_sync_meant(const char *name, char to[SK_SYNC_MEANT])
{
    for (const sk_sync *const *s = sk_sync_parts; *s; s++) {
        const char *ours = sk_alias_find((*s)->alias, 2, name);
        bool same = !strcasecmp((*s)->name, name);
        if (ours) snprintf(to, SK_SYNC_MEANT, "%s", ours);
        else if (same)
            snprintf(to, SK_SYNC_MEANT, "%s:%d%s", (*s)->name, (*s)->usual ? (*s)->usual : 8,
                     (*s)->after ? "@100" : "");
        if (ours || same) return true;
    }
    return false;
}

const sk_sync *sk_sync_of(const sk_layout *l, int axis)
{
    return sk_layout_local(l, axis) ? sk_sync_find(l->sync[axis].name) : NULL;
}

int sk_outer_axis(const sk_layout *l)
{
    for (int a = 0; a < l->mesh.n; a++) {
        const sk_sync *s = sk_sync_of(l, a);
        if (s && s->outer) return a;
    }
    return -1;
}

static int optimized(const sk_param_plan *q) { return q->master >= 0 ? q->master : q->shard; }

/* --- partners --- */

int sk_partner_rounds(int n)
{
    int bits = 0;
    while (1 << bits < n) bits++;
    return n < 2 ? 0 : 1 << bits == n ? bits : 2;
}

int sk_partner(int n, int round, int i)
{
    int other = (n & (n - 1)) == 0 ? i ^ 1 << round : round ? ((i + n - 1) % n ^ 1) + 1 : i ^ 1;
    if (n & (n - 1) && round && n % 2 == 0) return other % n;
    if (n & (n - 1) && round && !i) return -1; /* an odd number: one has none */
    return other < n ? other : -1;
}

/* The axis whose replicas have partners; -1: none. */
int sk_pair_axis(const sk_layout *l)
{
    for (int a = 0; a < l->mesh.n; a++) {
        const sk_sync *s = sk_sync_of(l, a);
        if (s && s->pairs) return a;
    }
    return -1;
}

/* --- what is kept --- */

void sk_plan_replica(sk_lowering *e, sk_param_plan *q)
{
    int axis = sk_outer_axis(e->l);
    const char *name = q->tensor->name;
    if (!sk_layout_any_local(e->l) || sk_layout_alike(e->l)) return;
    q->mean = q->grad_shard;
    if (axis < 0) return;
    sk_plan_change_error(e, q);
    q->anchor = sk_lower_kept_state(e, sk_print(e->p->arena, "%s.anchor", name), q, SK_F32);
    if (!sk_sync_of(e->l, axis)->momentum) return;
    name = sk_print(e->p->arena, "%s.outer_momentum", name);
    q->outer_momentum = sk_lower_kept_state(e, name, q, SK_F32);
    e->p->bufs.v[q->outer_momentum].zero = true;
}

/* --- calls --- */

typedef struct sending { /* a call with one buffer of each of many parameters, in buckets */
    sk_lowering *e;
    int group, call;
    int64_t bytes;
    sk_flies flies;
} sending;

static void flush(sending *s)
{
    if (s->call >= 0) sk_lower_start(s->e, s->call, s->flies);
    s->call = -1;
    s->bytes = 0;
}

/* Becomes the mean over the replicas of the group. */
static void send(sending *s, const sk_param_plan *q, int buf)
{
    const sk_buffer b = s->e->p->bufs.v[buf];
    if (s->call < 0)
        s->call = sk_lower_call(s->e, SK_ALLREDUCE, SK_MEAN, b.type, s->group,
                                sk_print(s->e->p->arena, "replicas from %s", q->tensor->name));
    sk_lower_seg(s->e, s->call, buf, buf, 1, sk_box_count(&b.box, 0, b.box.n), 1);
    s->bytes += sk_lower_logical(s->e, q->tensor);
    if (s->bytes >= sk_lower_bucket(s->e)) flush(s);
}

/* --- outer steps --- */

static sk_inst *combine(sk_lowering *e, int param, const sk_combine *by)
{
    sk_inst *in = sk_lower_inst(e, SK_DO_COMBINE);
    const sk_param_plan *q = &e->p->params.v[param];
    const sk_extent *box = &e->p->bufs.v[q->anchor].box;
    in->param = param;
    in->layer = q->tensor->layer;
    in->combine = by;
    in->flops = 2.0 * by->n_in * by->n_out * (double)sk_box_count(box, 0, box->n);
    return in;
}

/* A buffer with the anchor less the weights of this replica. */
static int difference(sk_lowering *e, int param)
{
    static const sk_combine less = {.n_in = 2, .n_out = 1, .by = {{1, -1}}};
    const sk_param_plan q = e->p->params.v[param];
    const sk_buffer a = e->p->bufs.v[q.anchor];
    const char *name = sk_print(e->p->arena, "%s.change", q.tensor->name);
    int to = sk_lower_buffer(e, name, q.tensor, SK_WIRE, SK_F32, a.box);
    sk_inst *in = combine(e, param, &less);
    in->in[0] = q.anchor;
    in->in[1] = optimized(&q);
    in->out[0] = to;
    return to;
}

/* Of a sum instead of a mean: what was sent encoded is summed. */
static const sk_combine *of_sum(sk_lowering *e, const sk_combine *mean, int replicas)
{
    sk_combine *c = sk_new(e->p->arena, sk_combine);
    *c = *mean;
    for (int o = 0; o < c->n_out; o++) c->by[o][SK_OUTER_MEAN] /= (float)replicas;
    return c;
}

static const sk_combine *outer_step(sk_lowering *e, int axis)
{
    const sk_sync *s = sk_sync_of(e->l, axis);
    sk_combine *c = sk_new(e->p->arena, sk_combine);
    sk_outer_step by = {0};
    s->outer(e->l->sync[axis].knob, e->l->mesh.size[axis], &by);
    *c = (sk_combine){.n_in = s->momentum ? 4 : 3, .n_out = s->momentum ? 3 : 2};
    memcpy(c->by[SK_OUTER_TO_WEIGHT], by.weight, sizeof by.weight);
    memcpy(c->by[SK_OUTER_TO_ANCHOR], by.anchor, sizeof by.anchor);
    memcpy(c->by[SK_OUTER_TO_MOMENTUM], by.momentum, sizeof by.momentum);
    return c;
}

/* Kernels read narrow weights: rounded anew from the masters. */
static void narrow(sk_lowering *e, int param)
{
    const sk_param_plan q = e->p->params.v[param];
    if (q.master < 0) return;
    sk_lower_move(e, SK_DO_NARROW, q.master, q.shard);
    sk_inst *in = &e->p->insts.v[e->p->insts.n - 1];
    in->param = param;
    in->layer = q.tensor->layer;
}

static void take(sk_lowering *e, int param, int mean, const sk_combine *by)
{
    const sk_param_plan q = e->p->params.v[param];
    sk_inst *in = combine(e, param, by);
    in->in[SK_OUTER_WEIGHT] = in->out[SK_OUTER_TO_WEIGHT] = optimized(&q);
    in->in[SK_OUTER_MEAN] = mean;
    in->in[SK_OUTER_ANCHOR] = in->out[SK_OUTER_TO_ANCHOR] = q.anchor;
    in->in[SK_OUTER_MOMENTUM] = in->out[SK_OUTER_TO_MOMENTUM] = q.outer_momentum;
    narrow(e, param);
}

/* --- one synchronisation --- */

static int fragments_of(const sk_layout *l, int axis)
{
    const sk_sync *s = sk_sync_of(l, axis);
    return s->fragments ? s->fragments(l->sync[axis].knob) : 1;
}

/* The steps of a fragment: the last behind `every` steps, the others evenly before it. */
static sk_step_due due(const sk_layout *l, int axis, int fragment)
{
    int every = l->sync[axis].every, n = fragments_of(l, axis);
    int64_t from = l->sync[axis].from, at = from + (int64_t)every * (fragment + 1) / n - 1;
    return (sk_step_due){.steps = every, .at = (int)(at % every), .from = from};
}

static bool in_fragment(const sk_lowering *e, int param, int fragment, int n)
{
    return e->p->params.v[param].tensor->layer % n == fragment;
}

static void average(sk_lowering *e, int group)
{
    sending s = {.e = e, .group = group, .call = -1};
    for (int i = 0; i < e->p->params.n; i++) {
        const sk_param_plan q = e->p->params.v[i];
        send(&s, &q, optimized(&q));
    }
    flush(&s);
    for (int i = 0; i < e->p->params.n; i++) narrow(e, i);
}

/* Parameters of a fragment whose changes are sent encoded. */
static int list_coded(sk_lowering *e, int fragment, int n, int *params)
{
    int count = 0;
    for (int i = 0; i < e->p->params.n; i++)
        if (in_fragment(e, i, fragment, n) && sk_lower_changes_as(e, &e->p->params.v[i]))
            params[count++] = i;
    return count;
}

static void send_changes(sk_lowering *e, int axis, int fragment, sk_flies flies)
{
    int n = fragments_of(e->l, axis), *coded = sk_many(e->tmp, int, e->p->params.n + 1);
    sending s = {.e = e, .group = axis, .call = -1, .flies = flies};
    for (int i = 0; i < e->p->params.n; i++) {
        if (!in_fragment(e, i, fragment, n)) continue;
        e->changes[i] = difference(e, i);
        if (!sk_lower_changes_as(e, &e->p->params.v[i]))
            send(&s, &e->p->params.v[i], e->changes[i]);
    }
    flush(&s);
    sk_lower_sum_changes(e, coded, list_coded(e, fragment, n, coded), flies);
}

static void share_sums(sk_lowering *e, int axis, int fragment, sk_flies flies)
{
    int n = fragments_of(e->l, axis), *coded = sk_many(e->tmp, int, e->p->params.n + 1);
    sk_lower_share_changes(e, coded, list_coded(e, fragment, n, coded), flies);
}

static void take_means(sk_lowering *e, int axis, int fragment)
{
    const sk_combine *mean = outer_step(e, axis), *sum = of_sum(e, mean, e->l->mesh.size[axis]);
    for (int i = 0; i < e->p->params.n; i++)
        if (in_fragment(e, i, fragment, fragments_of(e->l, axis)))
            take(e, i, e->changes[i], sk_lower_changes_as(e, &e->p->params.v[i]) ? sum : mean);
}

static bool streams(const sk_layout *l)
{
    int axis = sk_outer_axis(l);
    return axis >= 0 && sk_sync_of(l, axis)->fragments;
}

static void begin_changes(sk_lowering *e)
{
    e->changes = sk_many(e->tmp, int, e->p->params.n + 1);
    e->change_parts = sk_many(e->tmp, int, e->p->params.n + 1);
}

/* Where a step begins: fragments that are due in it are on their way. */
void sk_lower_replica_begin(sk_lowering *e)
{
    int axis = sk_outer_axis(e->l);
    if (!streams(e->l)) return;
    begin_changes(e);
    e->at.task = 0;
    e->at.micro = -1;
    e->at.layer = 0;
    for (int f = 0; f < fragments_of(e->l, axis); f++) {
        e->at.sync = due(e->l, axis, f);
        send_changes(e, axis, f, SK_FLIES_ON);
    }
    e->at.sync = (sk_step_due){0};
}

void sk_lower_replica_middle(sk_lowering *e)
{
    int axis = sk_outer_axis(e->l);
    if (!streams(e->l) || !e->plan.changes_as) return;
    e->at.micro = -1;
    e->at.layer = 0;
    for (int f = 0; f < fragments_of(e->l, axis); f++) {
        e->at.sync = due(e->l, axis, f);
        share_sums(e, axis, f, SK_FLIES_ON);
    }
    e->at.sync = (sk_step_due){0};
}

static void outer(sk_lowering *e, int axis)
{
    bool streamed = e->changes != NULL;
    if (!streamed) begin_changes(e);
    for (int f = 0; f < fragments_of(e->l, axis); f++) {
        e->at.sync = due(e->l, axis, f);
        if (!streamed) send_changes(e, axis, f, SK_FLIES_NOT);
        if (!streamed) share_sums(e, axis, f, SK_FLIES_NOT);
        take_means(e, axis, f);
    }
}

static void with_partners(sk_lowering *e, int axis)
{
    int every = e->l->sync[axis].every, rounds = e->p->n_pairs;
    for (int k = 0; k < rounds; k++) {
        e->at.sync = (sk_step_due){.steps = every * rounds, .at = every * (k + 1) - 1};
        if (e->p->groups[e->p->pairs + k].n > 1) average(e, e->p->pairs + k);
    }
}

/* Of several axes the one with an anchor comes last: then replicas along the others are alike. */
void sk_lower_replica_sync(sk_lowering *e)
{
    for (int k = 0; k < 2 * e->l->mesh.n; k++) {
        int a = k % e->l->mesh.n;
        const sk_sync *s = sk_sync_of(e->l, a);
        if (!s || (s->outer != NULL) != (k >= e->l->mesh.n)) continue;
        e->at.sync = due(e->l, a, 0);
        if (s->outer) outer(e, a);
        else if (s->pairs) with_partners(e, a);
        else average(e, a);
        e->at.sync = (sk_step_due){0};
    }
}

/* --- the mean, for validation --- */

/* Between steps the gradient of a weight is not needed: its buffer takes the mean over replicas of
 * the weights, or of their averages where the optimizer keeps some. */
static void copy_to_mean(sk_lowering *e, int param)
{
    sk_program *p = e->p;
    const sk_param_plan *q = &p->params.v[param];
    int own = sk_param_own_average(q), from = own >= 0 ? own : q->shard;
    bool narrows = p->bufs.v[from].type != p->bufs.v[q->mean].type;
    sk_lower_move(e, narrows ? SK_DO_NARROW : SK_DO_SLICE, from, q->mean);
    p->insts.v[p->insts.n - 1].param = narrows ? param : -1;
}

void sk_lower_replica_mean(sk_lowering *e)
{
    sk_program *p = e->p;
    if (!p->optim || !sk_layout_any_local(e->l) || sk_layout_alike(e->l)) return;
    e->at.task = e->at.micro = -1;
    e->at.layer = 0;
    e->at.mean = true;
    for (int i = 0; i < p->params.n; i++) copy_to_mean(e, i);
    for (int a = 0; a < e->l->mesh.n; a++)
        for (int narrow = 0; sk_layout_local(e->l, a) && narrow < 2; narrow++) {
            sending s = {.e = e, .group = a, .call = -1};
            for (int i = 0; i < p->params.n; i++) { /* a call has elements of one type */
                const sk_param_plan q = p->params.v[i];
                if ((p->bufs.v[q.mean].type != SK_F32) == narrow) send(&s, &q, q.mean);
            }
            flush(&s);
        }
    e->at.mean = false;
}

/* --- refusals --- */

/* A sum over the batch that is not one of a gradient would make replicas wait for each other. */
static sk_status crosses(const sk_lowering *e, const sk_inst *in)
{
    const sk_call_plan *c = &e->p->calls.v[in->call];
    if (c->group >= e->l->mesh.n || !sk_layout_local(e->l, c->group) || in->sync.until ||
        in->sync.by)
        return SK_OK;
    return sk_fail(SK_ECONF,
                   "layout: '%s' is over '%s' in every step, and sync makes replicas of its ranks; "
                   "leave out sync, or take another axis",
                   c->what, e->l->mesh.name[c->group]);
}

/* In deterministic order ranks have whole reduction blocks of the batch, which need not be their
 * share of it.  That is fine for a sum, and not for replicas, each of which learns from its own. */
static sk_status even_shares(const sk_lowering *e)
{
    const char batch[] = {e->g->batch, 0};
    sk_layout plain = *e->l;
    sk_state s = {0};
    plain.canonical = false;
    for (int a = 0; a < SK_MAX_AXES; a++)
        if (a < plain.mesh.n && sk_layout_local(&plain, a)) s.how[a] = SK_SPLIT;
    for (int r = 0, n = sk_mesh_ranks(&plain.mesh); e->l->canonical && r < n; r++) {
        int coord[SK_MAX_AXES];
        sk_mesh_coords(&plain.mesh, r, coord);
        sk_extent has = sk_shard_of(e->g, e->l, batch, &s, coord, -1, 1),
                  share = sk_shard_of(e->g, &plain, batch, &s, coord, -1, 1);
        if (has.size[0] == share.size[0]) continue;
        return sk_fail(SK_ECONF,
                       "layout: order=canonical would deal %lld of %lld samples to replica %d, "
                       "whose share is %lld; take 2, 4, 8 ... replicas that divide train.batch, or "
                       "order=fast",
                       (long long)has.size[0], (long long)has.full[0],
                       sk_layout_replica_of(&plain, coord), (long long)share.size[0]);
    }
    return SK_OK;
}

static int first_local(const sk_layout *l)
{
    int a = 0;
    while (a < l->mesh.n && !sk_layout_local(l, a)) a++;
    sk_assert(a < l->mesh.n);
    return a;
}

/* A mean over replicas counts each of them once, also one that has learned from nothing. */
static sk_status has_samples(const sk_lowering *e)
{
    const sk_layout *l = e->l;
    int64_t batch = e->g->size[(int)e->g->batch & 127], n = sk_layout_replicas(l);
    const char *name = l->own_grads ? e->opts->optim->name : l->sync[first_local(l)].name;
    if (batch >= n) return SK_OK;
    return sk_fail(SK_ECONF,
                   "layout: %lld of %lld replicas have no samples in a batch of %lld, and %s%s "
                   "counts what each replica has as much as what the others learned; take a "
                   "train.batch of %lld or more, or at most %lld replica%s",
                   (long long)(n - batch), (long long)n, (long long)batch,
                   l->own_grads ? "optim.name=" : "sync=", name, (long long)n, (long long)batch,
                   sk_plural(batch));
}

/* A step that the learning rate decides is known in a training only. */
static sk_status begin_known(const sk_lowering *e)
{
    const sk_layout *l = e->l;
    int a = 0;
    if (e->p->replicas_from >= 0) return SK_OK;
    while (a < l->mesh.n && (!sk_layout_local(l, a) || sk_layout_local_from(l, a) >= 0)) a++;
    sk_assert(a < l->mesh.n);
    return sk_fail(SK_ECONF,
                   "layout: sync=%s:H@decay needs the learning rates of a training; say a step, as "
                   "in %s:8@2000",
                   l->sync[a].name, l->sync[a].name);
}

static sk_status replicas_fit(const sk_lowering *e)
{
    const sk_program *p = e->p;
    SK_TRY(begin_known(e));
    SK_TRY(even_shares(e));
    if (e->opts->noise)
        return sk_fail(SK_ECONF,
                       "layout: sync gives replicas weights of their own, and train.noise "
                       "compares gradients of one point; leave out one of them");
    for (int pc = 0; pc < p->n_train; pc++)
        if (p->insts.v[pc].act == SK_DO_START && p->insts.v[pc].micro >= 0)
            SK_TRY(crosses(e, &p->insts.v[pc]));
    return SK_OK;
}

int64_t sk_replicas_from(const sk_layout *l)
{
    int64_t from = l->own_grads_from;
    for (int a = 0; a < l->mesh.n; a++)
        if (sk_layout_local(l, a) && (from == 0 || sk_layout_local_from(l, a) > from))
            from = sk_layout_local_from(l, a);
    return from;
}

/* The loss scale moves with what all replicas find.  Where ranks only send something in place of
 * gradients (own_grads) a step is skipped by all, also one of local steps. */
bool sk_replicas_apart(const sk_lowering *e)
{
    bool scaled = false;
    for (int i = 0; i < e->p->params.n; i++) scaled |= e->p->params.v[i].tensor->type == SK_F16;
    return sk_layout_any_local(e->l) && !e->l->own_grads && !scaled && !e->opts->all_told;
}

sk_status sk_check_replicas(sk_lowering *e)
{
    sk_program *p = e->p;
    p->replicas_from = sk_replicas_from(e->l);
    p->apart = p->optim && sk_replicas_apart(e);
    if (p->optim && sk_layout_any_local(e->l)) SK_TRY(has_samples(e));
    if (p->optim && sk_layout_any_local(e->l) && !sk_layout_alike(e->l)) SK_TRY(replicas_fit(e));
    if (p->optim) SK_TRY(sk_check_timed(e));
    p->n_mean = p->n_train;
    while (p->n_mean < p->insts.n && p->insts.v[p->n_mean].mean) p->n_mean++;
    return SK_OK;
}
