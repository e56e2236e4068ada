/* resume_rate.c - does the learning rate jump where a run goes on?
 *
 * The last step's rate is that of metrics.jsonl, whatever the keys were then.  A jump is told where
 * keys differ, and both the rate that the new keys would have had in that step and that of the next
 * step are more than a fifth away: rises of a warmup and falls of a schedule are none. */
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

/* Of the next step, over that of the schedule: what groups, the batch and AdaScale make of it. */
static double factor(const sk_setup *s, const sk_training *t, double *gain)
{
    const sk_job *job = s->job;
    int phase = sk_relayout_with(s, t->step, t->next.batch);
    int64_t batch = sk_relayout_setup(s, phase)->job->batch;
    double scale = (double)job->adascale * (double)batch / (double)job->batch;
    *gain = job->adascale ? sk_noise_gain(&t->noise, (double)batch, scale) : 1;
    return s->shown_rate * *gain * sk_batch_rate(job, batch);
}

sk_status sk_resume_rate(sk_arena *a, const sk_setup *s, const sk_training *t, const char **note)
{
    const sk_job *job = s->job;
    sk_lr_schedule rates;
    sk_ckpt c;
    sk_extra x;
    double before, gain, shown = factor(s, t, &gain);
    double at = job->adascale && t->progress > 0 ? t->progress : (double)t->step;
    if (!t->steps || at >= (double)t->steps || at < gain) return SK_OK;
    SK_TRY(last_rate(a, t, &before));
    if (!isfinite(before)) return SK_OK;
    SK_TRY(sk_ckpt_read(a, t->from, &c));
    SK_TRY(sk_extra_read(a, t->from, c.state.extra, c.state.step, &x));
    SK_TRY(sk_setup_rates(job, t->steps, &rates));
    double other = shown * sk_lr_at(&rates, (int64_t)(at - gain));
    double next = shown * sk_lr_at(&rates, (int64_t)at);
    const char *why = changes(a, job, t, c.state.config, x.steps);
    if (why && is_jump(before, other) && is_jump(before, next))
        *note = sk_print(a, "%s\nthe learning rate jumps from %.3g to %.3g at step %lld: %s", *note,
                         before, next, (long long)t->step + 1, why);
    return SK_OK;
}
