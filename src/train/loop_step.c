/* loop_step.c - one step, its decision and its report; validation. */
#include "train/loop_state.h"
#include "base/clock.h"
#include "run/run.h"
#include "train/idle.h"
#include "train/lr_schedule.h"
#include "train/metrics.h"
#include "train/relayout.h"
#include "train/save_interval.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TRY_S 2.0 /* seconds of steps that train.time is judged by, and at least TRY_N of them */
#define TRY_N 6
#define SPARE 0.06 /* part of train.time for validation, samples and saves */

/* train.time: from the time of the steps so far, how many fit in all?  The first is slower and does
 * not count.  With AdaScale each of the schedule's is worth its gain, as it is now. */
static int64_t choose_steps(const sk_loop *l)
{
    int64_t n = l->done - l->t->step - 1;
    double now = sk_now(), spent = now - l->second_at, limit = l->s->job->time_limit;
    if (n < TRY_N || (spent < TRY_S && spent < 0.1 * limit)) return 0;
    double left = (1 - SPARE) * limit - (now - l->started);
    double more = fmax(0, floor(left * (double)n / spent));
    return (int64_t)ceil(l->progress + l->gain * (1 + more)); /* it is read one step from now */
}

/* A save that would become due while the step runs comes after it. */
sk_decision sk_loop_decide(const sk_loop *l)
{
    sk_decision d = {.steps = l->lr_schedule.steps, .stop = sk_heaps_stop_asked(l->t->heaps)};
    d.save =
        sk_loop_clock(l) + l->clock_rate * l->step_s >= sk_save_interval_next(&l->save_interval);
    if (!d.steps) d.steps = choose_steps(l);
    const sk_relayout *x = l->t->setup->relayout;
    if (x && x->by_noise)
        d.phase = sk_batch_next(&l->noise, l->s->job->batch, l->done - l->changed, l->phase, x->n);
    return d;
}

/* The decision on the step just done; a new number of steps is told to the console. */
sk_status sk_loop_decision(sk_loop *l, sk_decision *d)
{
    if (sk_loop_apart(l)) SK_TRY(sk_loop_meet(l, d));
    else if (sk_loop_is_stale(l)) *d = sk_loop_meeting(l);
    else *d = sk_channel_decision(l->channel, l->done - 1);
    if (l->t->wire && !sk_loop_apart(l))
        SK_TRY(sk_comm_small_bcast(sk_run_comm(l->run), d, sizeof *d));
    l->want = d->phase;
    if (l->lr_schedule.steps || !d->steps) return SK_OK;
    l->lr_schedule.steps = d->steps;
    sk_record r = {.kind = SK_REC_STEPS, .step = d->steps};
    if (!l->rank) sk_channel_put(l->channel, &r);
    return SK_OK;
}

/* The text after the row of the step: experts, loss scale, noise scale. */
static void describe_extras(const sk_loop *l, const sk_choices *c, sk_record *r)
{
    char experts[96] = "", scale[96] = "", noise[64] = "";
    if (c->all > 0)
        snprintf(experts, sizeof experts, "aux %.4f  drops %.1f %%%s", c->aux,
                 100 * c->drops / c->all, c->again ? ", run again" : "");
    if (l->scale.moves)
        snprintf(scale, sizeof scale, "scale %g, %lld skipped", r->scale, (long long)r->skipped);
    if (r->noise && isfinite(r->noise_scale))
        snprintf(noise, sizeof noise, "noise scale %.3g", r->noise_scale);
    else if (r->noise) snprintf(noise, sizeof noise, "noise scale –");
    if (r->gain > 0)
        snprintf(noise + strlen(noise), sizeof noise - strlen(noise), ", gain %.3g", r->gain);
    snprintf(r->text, sizeof r->text, "%s%s%s%s%s", experts, *experts && *scale ? "  " : "", scale,
             *noise && (*experts || *scale) ? "  " : "", noise);
}

/* All ranks see the same sums, and so have the same estimate. */
static void measure_noise(sk_loop *l, const sk_step_out *out)
{
    double batch = (double)l->s->job->batch;
    if (l->own->noise.part > 0) sk_noise_step(&l->noise, &l->own->noise, batch, out);
}

/* The batch that optim.lr is for stays the same under train.batch_schedule, so the scale follows
 * the batch of the step. */
static double gain(const sk_loop *l)
{
    const sk_job *job = l->s->job;
    if (!job->adascale) return 1;
    double batch = (double)job->batch, first = (double)l->t->setup->job->batch;
    return sk_noise_gain(&l->noise, batch, (double)job->adascale * batch / first);
}

static void report_noise(const sk_loop *l, sk_record *r)
{
    r->noise = l->own->noise.part > 0;
    if (!r->noise) return;
    r->grad_var = l->noise.now;
    r->noise_scale = sk_noise_ratio(&l->noise);
    if (l->s->job->adascale) r->gain = l->gain;
}

static bool changes_batch(const sk_loop *l)
{
    const sk_relayout *x = l->t->setup->relayout;
    return x && x->batches;
}

static void report(sk_loop *l, const sk_loop_told *x, const sk_backward_sums *sums)
{
    const sk_step_out *out = &x->out;
    const sk_step_in *in = &x->in;
    sk_choices c = {.aux = out->aux,
                    .drops = out->drops,
                    .all = l->s->choices,
                    .twice = l->fallback != NULL,
                    .again = out->again};
    double peak = l->channel->peak;
    bool works = !sk_idle(l->own) && !out->late; /* else its clock says nothing about a step */
    sk_loop_poll_gpu(l);
    sk_record r = {.kind = SK_REC_STEP,
                   .step = in->step + 1,
                   .loss = out->loss,
                   .grad_norm = out->grad_norm,
                   .lr = in->lr * l->s->shown_rate,
                   .momentum = in->momentum,
                   .scale = in->loss_scale,
                   .skipped = l->scale.skipped,
                   .left_out = l->skipped_batches.n,
                   .tokens = out->tokens,
                   .dropped = out->dropped,
                   .seconds = x->seconds,
                   .at = x->at,
                   .waited = out->waited,
                   .copied = out->copied,
                   .uncovered = out->uncovered,
                   .mfu = peak > 0 && works ? l->s->flops / x->seconds / peak : 0,
                   .batch = changes_batch(l) ? l->s->job->batch : 0,
                   .gpu = l->gpu};
    report_noise(l, &r);
    r.backward = *sums;
    describe_extras(l, &c, &r);
    bool ok = sk_metrics_step(&l->metrics, &r, l->tokens, &c);
    if (!ok) sk_loop_note(l, SK_REC_WARN, l->metrics.why);
    sk_channel_put(l->channel, &r);
}

static sk_status switch_program(sk_loop *l, sk_run *from, sk_run *to)
{
    sk_loop_clear_flight(l);
    atomic_store(&l->t->fallback_stats->fallback[l->rank], to == l->fallback);
    return sk_run_switch(from, to);
}

/* Run the step once more, with room for all: the first try has changed nothing.  The drops that are
 * reported are those of the first try. */
static sk_status run_fallback(sk_loop *l, const sk_step_in *in, sk_step_out *out)
{
    sk_step_out tried = *out;
    SK_TRY(switch_program(l, l->run, l->fallback));
    SK_TRY(sk_run_step(l->fallback, in, out));
    SK_TRY(switch_program(l, l->fallback, l->run));
    out->drops = tried.drops;
    out->waited += tried.waited;
    out->again = true;
    return SK_OK;
}

sk_status sk_loop_execute(sk_loop *l, const sk_step_in *in, sk_step_out *out)
{
    SK_TRY(sk_run_step(l->run, in, out));
    return out->again ? run_fallback(l, in, out) : SK_OK;
}

static void count(sk_loop *l, const sk_step_out *out)
{
    atomic_fetch_add(&l->t->fallback_stats->steps, 1);
    if (out->again) atomic_fetch_add(&l->t->fallback_stats->again, 1);
}

sk_status sk_loop_account(sk_loop *l, const sk_loop_told *x)
{
    sk_backward_sums sums;
    measure_noise(l, &x->out);
    l->tokens += x->out.tokens;
    SK_TRY(sk_loop_backward_file(l, &x->in, &x->out));
    SK_TRY(sk_loop_backward_sums(l, x, &sums));
    if (l->rank) return SK_OK;
    count(l, &x->out);
    report(l, x, &sums);
    return SK_OK;
}

/* Of the optimizer.  A replica that skips a step alone counts it like the others, so that all have
 * made as many. */
static void count_updates(sk_loop *l, const sk_step_out *out)
{
    if (out->finite || sk_loop_alone(l, l->done)) l->updates += l->own->n_updates;
}

sk_step_in sk_loop_step_in(sk_loop *l)
{
    int64_t at = (int64_t)l->progress;
    l->gain = gain(l);
    return (sk_step_in){.step = l->done,
                        .lr = l->gain * sk_lr_at(&l->lr_schedule, at) *
                              sk_batch_rate(l->t->setup->job, l->s->job->batch),
                        .momentum = l->s->has_momentum ? sk_lr_momentum(&l->lr_schedule, at) : 0,
                        .shift = l->updates - l->done * l->own->n_updates,
                        .loss_scale = l->scale.value,
                        .ahead = sk_batch_of_step(&l->skipped_batches, l->done) - l->done};
}

/* The run may have rolled back instead. */
sk_status sk_loop_end_step(sk_loop *l, const sk_loop_told *x)
{
    int rollbacks = l->rollbacks;
    bool alone = sk_loop_alone(l, l->done);
    if (alone) SK_TRY(sk_loop_own_numbers(l, &x->out));
    else SK_TRY(sk_loop_check_numbers(l, l->done, &x->out));
    if (l->rollbacks != rollbacks) return SK_OK;
    if (l->done == l->t->step && !sk_loop_is_stale(l)) {
        SK_TRY(sk_loop_find_peak(l));
        sk_loop_report_memory(l);
    }
    count_updates(l, &x->out);
    l->done++;
    l->progress += l->gain;
    /* The last row has the tokens of all: with sync=ssp others may still be at work. */
    if (l->done == l->lr_schedule.steps) SK_TRY(sk_loop_settle(l));
    return alone ? sk_loop_keep_step(l, x) : sk_loop_account(l, x);
}

/* Where time decides who makes a step, rank 0 may only wish for a checkpoint: loop_timed.c. */
static void decide(sk_loop *l)
{
    sk_decision d = sk_loop_decide(l);
    if (!sk_loop_is_timed(l)) sk_channel_decide(l->channel, l->done, d);
    else if (d.save) atomic_store(&l->channel->save_wished, 1);
}

sk_status sk_loop_step(sk_loop *l)
{
    sk_loop_told x = {.in = sk_loop_step_in(l)};
    if (l->done == l->t->step + 1) l->second_at = sk_now();
    if (!l->rank && !sk_loop_apart(l)) decide(l);
    double start = sk_now();
    SK_TRY(sk_loop_execute(l, &x.in, &x.out));
    if (x.out.late) return sk_loop_catch_up(l, start);
    x.at = sk_now();
    x.seconds = l->step_s = x.at - start;
    return sk_loop_end_step(l, &x);
}

/* Whether it ends the run is alike on all ranks, since each has the sums of all. */
sk_status sk_loop_validate(sk_loop *l)
{
    const sk_feed *f = &l->s->val_feed;
    int64_t n = (f->end + f->batch - 1) / f->batch;
    double loss = 0, tokens = 0, right = 0;
    SK_TRY(sk_loop_settle(l));
    SK_TRY(sk_loop_tell(l));
    SK_TRY(sk_run_mean(l->run));
    for (int64_t i = 0; i < n; i++) {
        sk_step_out out = {0};
        SK_TRY(sk_run_validate(l->run, i, &out));
        if (out.tokens > 0) loss += out.loss * out.tokens;
        tokens += out.tokens;
        right += out.right;
    }
    if (tokens <= 0) return SK_OK;
    bool classes = l->s->graph.right != NULL;
    sk_record r = {.kind = SK_REC_VAL,
                   .step = l->done,
                   .loss = loss / tokens,
                   .accuracy = classes ? right / tokens : NAN};
    l->val = (sk_validation){.step = l->done, .loss = r.loss, .accuracy = r.accuracy};
    l->ended |= sk_validation_ends(&l->val, l->s->job);
    if (l->rank) return SK_OK;
    sk_metrics_val(&l->metrics, &r);
    sk_channel_put(l->channel, &r);
    return SK_OK;
}
