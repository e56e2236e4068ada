/* resume_rate.c - does a learning rate jump where a run goes on?
 *
 * The last step's rate is that of metrics.jsonl, whatever the keys were then.  A jump is told where
 * keys differ, and both the rate that the new keys would have had in that step and that of the next
 * step are more than a fifth away: rises of a warmup and falls of a schedule are none.
 *
 * With groups of parameters (optim.groups) each has a rate of its own.  A parameter's rate is
 * compared with the one that the same parameter had in its group of the former job; metrics.jsonl
 * has the rate of one group (sk_setup_shown_rate), and the ratios of the others to it are those of
 * the former job. */
#include "program/param_groups.h"
#include "train/batch_schedule.h"
#include "train/lr_schedule.h"
#include "train/metrics_read.h"
#include "train/model_export.h"
#include "train/relayout.h"
#include "train/rundir_resume.h"

#include <math.h>
#include <string.h>

#define JUMP 0.2 /* of the larger rate */

static bool is_jump(double x, double y) { return fabs(x - y) > JUMP * fmax(x, y); }

/* Of the step in the metrics of the run that the checkpoint is of; NAN: they do not have it. */
static sk_status last_rate(sk_arena *a, const sk_training *t, double *out)
{
    sk_curve c;
    *out = NAN;
    SK_TRY(sk_curve_read(a, sk_print(a, "%s/../../metrics.jsonl", t->from), &c));
    for (int i = 0; i < c.train.n; i++)
        if (c.train.v[i].step == t->step) *out = c.train.v[i].lr;
    return SK_OK;
}

/* Keys that the rate goes by, where they differ. */
static const char *changes(sk_arena *a, const sk_job *job, const sk_training *t, const char *was,
                           int64_t steps)
{
    static const char *const keys[] = {"name",     "groups",        "lr",      "min_lr", "warmup",
                                       "schedule", "batch_scaling", "adascale"};
    const sk_lr *part = sk_lr_named(job->schedule);
    sk_out o = {.arena = a};
    if (steps && t->steps && steps != t->steps)
        sk_out_add(&o, "train.steps was %lld and is %lld", (long long)steps, (long long)t->steps);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        sk_resume_change(&o, was, t->config, "optim", keys[i]);
    sk_resume_change(&o, was, t->config, "train", "batch");
    sk_resume_change(&o, was, t->config, "train", "batch_schedule");
    for (const sk_knob *k = part->knobs; k->name; k += sk_knob_list(k))
        sk_resume_change(&o, was, t->config, "optim", sk_knob_key(k));
    const char *lr = sk_resume_value(a, was, "optim", "lr");
    const char *now = sk_resume_value(a, t->config, "optim", "lr");
    if (!lr != !now) /* beside groups it may be unsaid */
        sk_out_add(&o, "%soptim.lr was %s and is %s", o.n ? "; " : "", lr ? lr : "not set",
                   now ? now : "not set");
    return o.s;
}

/* Of the next step, over that of the schedule: what the batch and AdaScale make of it. */
static double factor(const sk_setup *s, const sk_training *t, double *gain)
{
    const sk_job *job = s->job;
    int phase = sk_relayout_with(s, t->step, t->next.batch);
    int64_t batch = sk_relayout_setup(s, phase)->job->batch;
    double scale = (double)job->adascale * (double)batch / (double)job->batch;
    *gain = job->adascale ? sk_noise_gain(&t->noise, (double)batch, scale) : 1;
    return *gain * sk_batch_rate(job, batch);
}

/* ---- groups */

/* Rates that parameters of one group had in the last step, would have had in it with the keys of
 * now, and have in the next. */
typedef struct change {
    int group; /* of now */
    double before, other, next;
    bool jumps;
} change;

typedef struct rates { /* of optim.lr, by schedule */
    double before, other, next;
} rates;

typedef struct changes_of {
    change *v;
    int n, cap;
    bool alike; /* all parameters had one rate, and have one */
} changes_of;

static double rate_of(const sk_job *job, int group)
{
    return group ? job->group[group - 1].rate : 1;
}

/* One for each pair of a group of the former job and one of this job that have parameters in common
 * and numbers of their own. */
static changes_of compare(sk_arena *a, const sk_setup *s, const sk_job *was, const rates *of)
{
    const sk_job *job = s->job;
    changes_of c = {.alike = true};
    for (int i = 0; i < s->graph.tensors.n; i++) {
        const sk_tensor *t = s->graph.tensors.v[i];
        if (t->role != SK_PARAM) continue;
        int old = sk_param_group_of(&s->graph, t, was->group, was->n_groups);
        int now = sk_param_group_of(&s->graph, t, job->group, job->n_groups);
        change x = {.group = now,
                    .before = of->before * rate_of(was, old),
                    .other = of->other * rate_of(job, now),
                    .next = of->next * rate_of(job, now)};
        x.jumps = is_jump(x.before, x.other) && is_jump(x.before, x.next);
        int k = 0;
        while (k < c.n && (c.v[k].group != now || c.v[k].before != x.before)) k++;
        if (k < c.n) continue;
        if (c.n) c.alike &= x.before == c.v[0].before && x.next == c.v[0].next;
        *(change *)sk_push(a, &c) = x;
    }
    return c;
}

static const char *group_name(sk_arena *a, const sk_setup *s, int group)
{
    const sk_param_group *g = group ? &s->job->group[group - 1] : NULL;
    return sk_print(a, "%s: %s", g ? g->match : "rest", (g ? g->optim : s->optim)->name);
}

/* "the learning rate of 'matrix: muon' jumps from 0.01 to 0.1"; NULL: none does.  In the order of
 * groups, with what is in none, group 0, as the last. */
static const char *jumps(sk_arena *a, const sk_setup *s, const changes_of *c)
{
    sk_out o = {.arena = a};
    int n = s->job->n_groups + 1;
    for (int k = 0; k < n * c->n; k++) {
        const change *x = &c->v[k % c->n];
        if (!x->jumps || x->group != (k / c->n + 1) % n) continue;
        if (c->alike)
            return sk_print(a, "the learning rate jumps from %.3g to %.3g", x->before, x->next);
        sk_out_add(&o,
                   o.n ? ", that of '%s' from %.3g to %.3g"
                       : "the learning rate of '%s' jumps from %.3g to %.3g",
                   group_name(a, s, x->group), x->before, x->next);
    }
    return o.s;
}

sk_status sk_resume_rate(sk_arena *a, const sk_setup *s, const sk_training *t, const sk_job *was,
                         const char **note)
{
    const sk_job *job = s->job;
    sk_lr_schedule rate;
    sk_ckpt c;
    sk_extra x;
    double before, gain, times = factor(s, t, &gain);
    double at = job->adascale && t->progress > 0 ? t->progress : (double)t->step;
    if (!was || !t->steps || at >= (double)t->steps || at < gain) return SK_OK;
    SK_TRY(last_rate(a, t, &before));
    double shown = sk_setup_shown_rate(&s->graph, was);
    if (!isfinite(before) || shown <= 0) return SK_OK;
    SK_TRY(sk_ckpt_read(a, t->from, &c));
    SK_TRY(sk_extra_read(a, t->from, c.state.extra, c.state.step, &x));
    SK_TRY(sk_setup_rates(job, t->steps, &rate));
    rates of = {.before = before / shown,
                .other = times * sk_lr_at(&rate, (int64_t)(at - gain)),
                .next = times * sk_lr_at(&rate, (int64_t)at)};
    changes_of of_groups = compare(a, s, was, &of);
    const char *what = jumps(a, s, &of_groups);
    const char *why = changes(a, job, t, c.state.config, x.steps);
    if (what && why)
        *note = sk_print(a, "%s\n%s at step %lld: %s", *note, what, (long long)t->step + 1, why);
    return SK_OK;
}
