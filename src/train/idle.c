/* idle.c - what a layout leaves without work, or does twice: how many, and why. */
#include "train/idle.h"
#include "base/strings.h"
#include "program/sync.h"
#include "train/lr_schedule.h"
#include "train/owed.h"
#include "train/relayout.h"

#include <math.h>
#include <string.h>

bool sk_idle(const sk_program *p)
{
    for (int i = 0; i < p->n_train; i++)
        if (p->insts.v[i].act == SK_DO_OP && p->insts.v[i].flops > 0) return false;
    return true;
}

/* Places of a letter, in the largest micro-batch. */
static int64_t places(const sk_setup *s, char letter)
{
    int64_t n = s->graph.size[(int)letter & 127], m = letter == s->graph.batch ? s->n_micro : 1;
    return (n + m - 1) / m;
}

/* Shards that all axes together cut a letter in. */
static int64_t shards(const sk_layout *l, char letter)
{
    int64_t n = 1;
    for (int i = 0; i < l->mesh.n; i++)
        if (sk_layout_splits(l, i, letter)) n *= l->mesh.size[i];
    return n;
}

/* The key that says how many places a letter has, where there is one. */
static const char *key_of(const sk_setup *s, char letter)
{
    if (letter == s->graph.batch)
        return s->n_micro > 1 ? " (train.batch over micro-batches)" : " (train.batch)";
    return letter == 't' ? " (train.seq)" : "";
}

/* Does this axis cut a letter in more shards than it has places?  Says so. */
static char *short_letter(sk_arena *a, const sk_setup *s, int axis)
{
    const sk_mesh *m = &s->layout.mesh;
    for (const char *c = s->layout.split[axis]; *c; c++) {
        int64_t has = places(s, *c), cut = shards(&s->layout, *c);
        if (m->size[axis] < 2 || has < 1 || has >= cut) continue;
        int64_t rest = cut / m->size[axis], fits = has / rest;
        return sk_print(
            a,
            "%s=%d splits letter %c%s in %lld, and its size is %lld; take %lld or more, or %s=%lld",
            m->name[axis], m->size[axis], *c, key_of(s, *c), (long long)cut, (long long)has,
            (long long)cut, m->name[axis], (long long)(fits > 1 ? fits : 1));
    }
    return NULL;
}

static char *short_stages(sk_arena *a, const sk_setup *s)
{
    const sk_mesh *m = &s->layout.mesh;
    int axis = s->layout.stage_axis;
    long long layers = (long long)s->job->hyper.num_hidden_layers;
    if (axis < 0 || m->size[axis] <= layers) return NULL;
    return sk_print(a,
                    "%s=%d makes %d stages, and the model has %lld layer%s to put there; take a "
                    "deeper model, or %s=%lld",
                    m->name[axis], m->size[axis], m->size[axis], layers, sk_plural(layers),
                    m->name[axis], layers > 1 ? layers : 1);
}

static void say_ranks(sk_out *o, const sk_setup *s, int n)
{
    char *why = NULL;
    if (!n) return;
    for (int i = 0; i < s->layout.mesh.n && !why; i++) why = short_letter(o->arena, s, i);
    if (!why) why = short_stages(o->arena, s);
    sk_out_add(o, "%d of %d ranks %s nothing to do: %s", n, s->n_ranks, n == 1 ? "has" : "have",
               why ? why : "the layout has more ranks than the model has parts; take fewer");
}

static void say_axes(sk_out *o, const sk_setup *s)
{
    const sk_layout *l = &s->layout;
    for (int i = 0; i < l->mesh.n; i++) {
        if (l->mesh.size[i] < 2 || *l->split[i] || sk_layout_shards(l, i) || i == l->stage_axis)
            continue;
        sk_out_add(o, "%saxis %s of %d splits nothing: its ranks repeat the same work",
                   o->n ? "; " : "", l->mesh.name[i], l->mesh.size[i]);
    }
}

static void say_micro(sk_out *o, const sk_setup *s)
{
    long long batch = (long long)s->job->batch;
    if (s->n_micro <= batch) return;
    sk_out_add(o, "%s%lld of %d micro-batches %s empty: train.batch is %lld", o->n ? "; " : "",
               s->n_micro - batch, s->n_micro, s->n_micro - batch == 1 ? "is" : "are", batch);
}

/* Words of the layout that have nothing to do. */
static void say_words(sk_out *o, const sk_setup *s)
{
    const char *idle = sk_layout_idle(o->arena, &s->layout);
    if (idle) sk_out_add(o, "%s%s", o->n ? "; " : "", idle);
}

/* Fragments of a sync are dealt layers. */
static void say_fragments(sk_out *o, const sk_setup *s)
{
    for (int i = 0; i < s->layout.mesh.n; i++) {
        const sk_sync *by = sk_sync_of(&s->layout, i);
        int n = by && by->fragments ? by->fragments(s->layout.sync[i].knob) : 0;
        if (n > s->graph.n_layers)
            sk_out_add(o,
                       "%s%d of %d fragments of sync=%s are empty: the model has %d layers, "
                       "embeddings and head among them",
                       o->n ? "; " : "", n - s->graph.n_layers, n, by->name, s->graph.n_layers);
    }
}

static bool sends(const sk_setup *s)
{
    if (!s->optim || !s->optim->sends) return false;
    for (int i = 0; i < s->layout.mesh.n; i++)
        if (s->layout.mesh.size[i] > 1 && sk_layout_splits(&s->layout, i, s->graph.batch))
            return true;
    return false;
}

/* Counts steps of each kind, unless all kinds that go on for ever are among them. */
static bool lacks_kind(const sk_setup *s, int64_t steps, int64_t n[SK_STEP_KINDS])
{
    double share[SK_STEP_KINDS];
    int wanted = 0;
    s->optim->kind_shares(s->job->knob, share);
    for (int k = 0; k < SK_STEP_KINDS; k++) wanted += share[k] > 0;
    for (int64_t t = 1; t <= steps && wanted; t++) {
        int k = s->optim->step_kind(s->job->knob, t);
        wanted -= !n[k]++ && share[k] > 0;
    }
    return wanted;
}

static const char counted[] = "skein plan and simulate show the steps after these";

/* Ranks that would send something else than gradients (program/sent_state.c) in later steps than
 * there are.  Prices are those of these steps. */
static void say_sent(sk_out *o, const sk_setup *s, const char *of, int64_t steps)
{
    const sk_optim *x = s->optim;
    int64_t n[SK_STEP_KINDS] = {0};
    if (steps <= 0 || !sends(s)) return;
    if (x->first_steps && s->job->knob[x->first_steps - 1] >= (double)steps)
        sk_out_add(o,
                   "%soptim.%s is %.0f and %s %lld: every step sends gradients, and none "
                   "the momentum in their place; %s",
                   o->n ? "; " : "", sk_knob_key(&x->knobs[x->first_steps - 1]),
                   s->job->knob[x->first_steps - 1], of, (long long)steps, counted);
    else if (x->step_kind && lacks_kind(s, steps, n))
        sk_out_add(o,
                   "%sin %s=%lld of %s gradients are sent %lld times, momentum %lld "
                   "times, and %lld steps are local; %s",
                   o->n ? "; " : "", of, (long long)steps, x->name, (long long)n[SK_STEP_DENSE],
                   (long long)n[SK_STEP_SENT], (long long)n[SK_STEP_LOCAL], counted);
}

/* The first step behind which replicas of the axis synchronise, all of them or a fragment; and the
 * one behind which all fragments have. */
static int64_t first_sync(const sk_layout *l, int axis, int64_t *last)
{
    const sk_axis_sync *x = &l->sync[axis];
    const sk_sync *by = sk_sync_of(l, axis);
    int n = by->fragments ? by->fragments(x->knob) : 1;
    *last = x->from + x->every;
    return x->from + x->every / n;
}

static void say_late_sync(sk_out *o, const sk_layout *l, int axis, int64_t steps)
{
    const sk_axis_sync *x = &l->sync[axis];
    int64_t last, first = first_sync(l, axis, &last);
    const char *gap = o->n ? "; " : "";
    if (x->from >= steps)
        sk_out_add(o,
                   "%ssync=%s:%d begins behind step %lld and train.steps is %lld: every step sums "
                   "gradients, as the plain program",
                   gap, x->name, x->every, (long long)x->from, (long long)steps);
    else if (first > steps)
        sk_out_add(o,
                   "%ssync=%s:%d is first behind step %lld and train.steps is %lld: each replica "
                   "learns from its part of the batches alone, and final/ is their mean",
                   gap, x->name, x->every, (long long)first, (long long)steps);
    else if (last > steps)
        sk_out_add(o,
                   "%ssync=%s:%d sends its last fragment behind step %lld and train.steps is %lld: "
                   "some are never synchronised",
                   gap, x->name, x->every, (long long)last, (long long)steps);
    else return;
    sk_out_add(o, "; %s", counted);
}

/* Synchronisations behind the last step. */
static void say_sync(sk_out *o, const sk_layout *l, int64_t steps)
{
    for (int a = 0; steps > 0 && a < l->mesh.n; a++)
        if (sk_sync_of(l, a)) say_late_sync(o, l, a, steps);
}

char *sk_idle_sent(sk_arena *a, const sk_setup *s, const char *of, int64_t steps)
{
    sk_out o = {.arena = a};
    say_sent(&o, s, of, steps);
    return o.s;
}

char *sk_idle_text(sk_arena *a, const sk_setup *s, int n)
{
    sk_out o = {.arena = a};
    say_ranks(&o, s, n);
    say_axes(&o, s);
    say_micro(&o, s);
    say_words(&o, s);
    say_fragments(&o, s);
    sk_setup_group_warnings(&o, s);
    if (!(s->job->time_limit > 0)) say_sent(&o, s, "train.steps", s->job->steps);
    if (!(s->job->time_limit > 0)) say_sync(&o, &s->layout, s->job->steps);
    return o.s;
}

char *sk_idle_setup(sk_arena *a, const sk_setup *s)
{
    int n = 0;
    bool *idle = sk_many(a, bool, s->n_classes);
    for (int k = 0; k < s->n_classes; k++) idle[k] = sk_idle(s->programs[s->first_of[k]]);
    for (int r = 0; r < s->n_ranks; r++) n += idle[s->class_of[r]];
    return sk_idle_text(a, s, n);
}

/* Has some program a call of the kind, along the axis (-1: any)? */
static bool calls(const sk_setup *s, int kind, int axis)
{
    for (int k = 0; k < s->n_classes; k++) {
        const sk_program *p = s->programs[s->first_of[k]];
        for (int i = 0; i < p->calls.n; i++)
            if ((kind < 0 || (int)p->calls.v[i].kind == kind) &&
                (axis < 0 || p->calls.v[i].group == axis))
                return true;
    }
    return false;
}

/* Entries of comm.algorithm that no call asks. */
static void say_pins(sk_out *o, const sk_setup *s)
{
    const sk_mesh *m = &s->layout.mesh;
    const char *algorithm = s->job->algorithm;
    if (!s->n_classes || !s->programs[s->first_of[0]] || !sk_pins_any(&s->pins)) return;
    if (!calls(s, -1, -1)) {
        sk_out_add(o, "comm.algorithm is \"%s\" and has no effect: %s", algorithm,
                   s->n_ranks == 1 ? "one rank calls no collective" : "no rank calls a collective");
        return;
    }
    for (int k = 0; k < SK_N_COLLS; k++)
        for (int x = -1; x < m->n; x++) {
            bool said = x < 0 ? s->pins.kind[k].said : s->pins.kind[k].axis_said[x];
            if (!said || calls(s, k, x)) continue;
            sk_out_add(
                o, "%scomm.algorithm: the entry for %s%s%s has no effect: there is no such call",
                o->n ? "\n" : "", sk_coll_names[k], x < 0 ? "" : " over ", x < 0 ? "" : m->name[x]);
        }
}

/* Where time decides, gradients do not travel by collectives. */
static void say_timed(sk_out *o, const sk_setup *s)
{
    static const int64_t bucket = 8 << 20; /* the default */
    if (!sk_layout_timed(&s->layout)) return;
    const char *way = sk_sync_timed_name(&s->layout);
    if (sk_pins_any(&s->pins) && !o->n)
        sk_out_add(
            o,
            "%scomm.algorithm is \"%s\" and is for validation alone: with sync=%s ranks read "
            "each other's memory in a step, and call no collective",
            o->n ? "\n" : "", s->job->algorithm, way);
    if (s->job->bucket && s->job->bucket != bucket)
        sk_out_add(o,
                   "%scomm.bucket has no effect: with sync=%s ranks read each other's gradients "
                   "or weights, and none are reduced together",
                   o->n ? "\n" : "", way);
}

char *sk_idle_comm(sk_arena *a, const sk_setup *s, bool far)
{
    sk_out o = {.arena = a};
    bool pinned = sk_pins_any(&s->pins);
    if (pinned && sk_setup_on_gpu(s->job))
        sk_out_add(&o,
                   "comm.algorithm is \"%s\" and has no effect with device=%s: between GPUs NCCL "
                   "chooses; leave it out, or say NCCL_ALGO=Ring or the like in the environment "
                   "of the run",
                   s->job->algorithm, s->job->device);
    if (s->links && !far && !pinned)
        sk_out_add(&o,
                   "comm.links is %s and has no effect: it prices links between hosts, and all "
                   "ranks are on one, where they read each other's memory; leave it out",
                   s->job->links);
    if (sk_setup_on_gpu(s->job)) return o.s;
    say_pins(&o, s);
    say_timed(&o, s);
    return o.s;
}

/* Files of train.backward fall into steps that are multiples of train.backward_every. */
static void say_backward(sk_out *o, const sk_job *job, int64_t steps)
{
    if (job->backward_every <= steps || !*job->backward) return;
    sk_out_add(o,
               "%strain.backward_every is %lld and train.steps %lld: no file of train.backward is "
               "written",
               o->n ? "\n" : "", (long long)job->backward_every, (long long)steps);
}

static int knob_named(const sk_knob *knobs, const char *name)
{
    int i = 0;
    while (knobs[i].name && strcmp(knobs[i].name, name) != 0) i++;
    return knobs[i].name ? i : -1;
}

/* Drops of the schedule past the end. */
static void say_late_drops(sk_out *o, const sk_job *job, const sk_lr *part, int64_t steps)
{
    sk_out late = {.arena = o->arena};
    const char *key = "";
    for (int i = 0; part->knobs[i].name; i++) {
        if (!part->knobs[i].at_step || job->lr_knob[i] < fmax(1, (double)steps)) continue;
        key = sk_knob_key(&part->knobs[i]);
        sk_out_add(&late, "%s%.0f", late.n ? ", " : "", job->lr_knob[i]);
    }
    if (late.n)
        sk_out_add(o, "%soptim.%s: the learning rate never drops at %s: train.steps is %lld",
                   o->n ? "\n" : "", key, late.s, (long long)steps);
}

/* Numbers of the schedule that are past the end, or without effect beside another one. */
static void say_schedule(sk_out *o, const sk_job *job, int64_t steps)
{
    const sk_lr *part = sk_lr_named(job->schedule);
    if (!part) return;
    say_late_drops(o, job, part, steps);
    for (int i = 0; part->knobs[i].name; i++) {
        const sk_knob *k = &part->knobs[i];
        int other = k->unless ? knob_named(part->knobs, k->unless) : -1;
        if (other < 0 || job->lr_knob[i] <= 0 || job->lr_knob[other] <= 0) continue;
        sk_out_add(o, "%soptim.%s is %.0f and has no effect beside optim.%s; leave one of them out",
                   o->n ? "\n" : "", sk_knob_key(k), job->lr_knob[i],
                   sk_knob_key(&part->knobs[other]));
    }
}

/* A number of the schedule that is 0 and leaves the rate where it is: a decay of no length. */
static void say_level(sk_out *o, const sk_job *job, int64_t steps)
{
    sk_lr_schedule r = {.part = sk_lr_named(job->schedule),
                        .lr = job->lr,
                        .min_lr = job->min_lr,
                        .warmup = job->warmup,
                        .steps = steps};
    if (!r.part || r.part->level || job->warmup >= steps || job->min_lr >= job->lr) return;
    memcpy(r.knob, job->lr_knob, sizeof r.knob);
    for (int i = 0; r.part->knobs[i].name; i++) {
        const sk_knob *k = &r.part->knobs[i];
        if (r.knob[i] != 0 || k->usual == 0 || k->words || sk_lr_at(&r, steps - 1) < job->lr)
            continue;
        sk_out_add(o,
                   "%soptim.%s is 0, and the learning rate stays at optim.lr=%.3g: "
                   "optim.schedule=%s has nothing left to do; leave optim.%s out",
                   o->n ? "\n" : "", sk_knob_key(k), job->lr, r.part->name, sk_knob_key(k));
    }
}

/* Error feedback for which the next layout has no place. */
static void say_owed(sk_out *o, const sk_run_phase *p)
{
    const char *owed = sk_owed_print(o->arena, sk_owed_dropped(p[-1].setup, p->setup));
    if (owed)
        sk_out_add(o,
                   "%strain.relayout: the layout \"%s\" from step %lld on has no use for what "
                   "encoding lost %s (error feedback): dropped",
                   o->n ? "\n" : "", p->setup->job->layout, (long long)p->from, owed);
}

char *sk_idle_steps(sk_arena *a, const sk_setup *s, int64_t steps)
{
    sk_out o = {.arena = a};
    const sk_job *job = s->job;
    if (steps && job->lr <= 0) sk_out_add(&o, "optim.lr is 0: nothing is trained");
    else if (steps && job->warmup > steps)
        sk_out_add(&o,
                   "optim.warmup is %lld and train.steps %lld: the learning rate ends at %.3g and "
                   "never comes to optim.lr=%.3g",
                   (long long)job->warmup, (long long)steps,
                   job->lr * (double)steps / (double)job->warmup, job->lr);
    if (steps) say_backward(&o, job, steps);
    if (steps) say_schedule(&o, job, steps);
    if (steps > 1) say_level(&o, job, steps);
    if (job->time_limit > 0) say_sent(&o, s, "train.steps", steps);
    if (job->time_limit > 0) say_sync(&o, &s->layout, steps);
    for (int i = 1; steps && s->relayout && i < s->relayout->n; i++) {
        const sk_run_phase *p = &s->relayout->v[i];
        if (p->from < steps) {
            say_owed(&o, p);
            continue;
        }
        if (p->setup->job->batch != p[-1].setup->job->batch)
            sk_out_add(&o,
                       "%strain.batch_schedule: the batch of %lld from step %lld on is never used: "
                       "train.steps is %lld",
                       o.n ? "\n" : "", (long long)p->setup->job->batch, (long long)p->from,
                       (long long)steps);
        else
            sk_out_add(&o,
                       "%strain.relayout: the layout \"%s\" from step %lld on is never used: "
                       "train.steps is %lld",
                       o.n ? "\n" : "", p->setup->job->layout, (long long)p->from,
                       (long long)steps);
    }
    return o.s;
}

char *sk_idle_plan(sk_arena *a, const sk_setup *s, const char *idle, bool far)
{
    const sk_job *job = s->job;
    bool known = !sk_job_validates_only(job) && !(job->time_limit > 0);
    const char *more[] = {idle, sk_idle_comm(a, s, far),
                          sk_idle_steps(a, s, known ? job->steps : 0)};
    sk_out o = {.arena = a};
    for (int i = 0; i < 3; i++)
        if (more[i]) sk_out_add(&o, "%s%s", o.n ? "\n" : "", more[i]);
    return o.s;
}

void sk_idle_print(const char *before, const char *text, FILE *to)
{
    for (size_t n; text && *text; text += n + (text[n] != 0)) {
        n = strcspn(text, "\n");
        if (n) fprintf(to, "%s%.*s\n", before, (int)n, text);
    }
}
