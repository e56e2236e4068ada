/* loop.c - training on one rank: the order of steps, validation, saves and exports. */
#include "train/loop.h"
#include "base/clock.h"
#include "run/run.h"
#include "train/fault.h"
#include "train/loop_state.h"
#include "train/metrics.h"
#include "train/relayout.h"
#include "train/trace_file.h"

#include <stdio.h>

enum { SAMPLE_TIMES = 4 }; /* samples of a run that does not say how often */

bool sk_loop_due(int64_t every, int64_t times, int64_t done, int64_t steps)
{
    if (!every || !steps || done >= steps) return false;
    if (every > 0) return done % every == 0;
    return done * times / steps != (done - 1) * times / steps;
}

/* A validation ended the run, or all steps are done; with AdaScale the schedule may come to its end
 * before the steps do. */
static bool is_over(const sk_loop *l)
{
    int64_t steps = l->lr_schedule.steps;
    return l->ended || (steps && (l->done >= steps || l->progress >= (double)steps));
}

static bool val_at(const sk_loop *l, int64_t done)
{
    return l->s->has_val &&
           sk_loop_due(l->s->job->val_every, SK_VAL_TIMES, done, l->lr_schedule.steps);
}

static bool sample_at(const sk_loop *l, int64_t done)
{
    return l->s->tokenizer &&
           sk_loop_due(l->s->job->sample_every, SAMPLE_TIMES, done, l->lr_schedule.steps);
}

static bool save_at(const sk_loop *l, int64_t done)
{
    int64_t steps = l->lr_schedule.steps ? l->lr_schedule.steps : done + 1;
    return sk_loop_due(l->s->job->ckpt_every.steps, 0, done, steps);
}

bool sk_loop_meets_at(const sk_loop *l, int64_t done)
{
    return val_at(l, done) || sample_at(l, done) || save_at(l, done);
}

/* A save after the last step is the save at the end: finish(). */
static bool save_due(const sk_loop *l, const sk_decision *d)
{
    int64_t steps = l->lr_schedule.steps;
    if (is_over(l)) return false;
    return (save_at(l, l->done) && sk_loop_may_meet(l, l->done)) ||
           (d->save && (!steps || l->done < steps));
}

static bool val_due(const sk_loop *l) { return val_at(l, l->done) && sk_loop_may_meet(l, l->done); }

static bool sample_due(const sk_loop *l)
{
    return !is_over(l) && sample_at(l, l->done) && sk_loop_may_meet(l, l->done);
}

static sk_status sample(sk_loop *l)
{
    char name[64];
    snprintf(name, sizeof name, "sample-%010lld", (long long)l->done);
    return sk_loop_export(l, name, SK_REC_SAMPLE);
}

static sk_status after_step(sk_loop *l, const sk_decision *d)
{
    int rollbacks = l->rollbacks;
    if (val_due(l)) SK_TRY(sk_loop_validate(l));
    if (save_due(l, d)) {
        double began = sk_now();
        SK_TRY(sk_loop_save(l));
        if (!l->rank) sk_loop_after_save(l, began);
    }
    if (l->rollbacks != rollbacks) return SK_OK;
    return sample_due(l) ? sample(l) : SK_OK;
}

/* The run that this one goes on from was stopped before it came to that. */
static sk_status after_step_before(sk_loop *l)
{
    if (!l->t->owed || is_over(l)) return SK_OK;
    if (val_due(l)) SK_TRY(sk_loop_validate(l));
    return sample_due(l) ? sample(l) : SK_OK;
}

/* At once: a validation may take longer than whoever asks for a stop waits. */
static sk_status stopped(sk_loop *l)
{
    l->owed = val_due(l) || sample_due(l);
    SK_TRY(sk_loop_save(l));
    SK_TRY(sk_run_barrier(l->run));
    if (!l->rank && l->saved != l->done)
        return sk_fail(SK_EIO, "stopped at step %lld, but it could not be saved: %s",
                       (long long)l->done, l->why_not);
    return SK_ESTOP;
}

static sk_status write_trace(sk_loop *l)
{
    sk_status st = sk_trace_file_rank(l->run, l->own, l->t->dir);
    SK_TRY(sk_run_barrier(l->run)); /* rank 0 reports a file that is missing */
    if (st && !l->rank) sk_loop_note(l, SK_REC_WARN, sk_error_line());
    if (l->rank) return SK_OK;
    if (sk_trace_file_merge(&l->arena, l->s->n_ranks, l->t->dir))
        sk_loop_note(l, SK_REC_WARN, sk_error_line());
    return SK_OK;
}

/* The run may have rolled back afterwards. */
static sk_status finish(sk_loop *l)
{
    SK_TRY(sk_loop_tell(l));
    if (l->s->job->trace && l->done > l->t->step) SK_TRY(write_trace(l));
    if (l->s->has_val && l->s->job->val_every && l->val.step != l->done)
        SK_TRY(sk_loop_validate(l));
    if (l->tried != l->done) SK_TRY(sk_loop_save(l));
    return SK_OK;
}

static sk_status run_steps(sk_loop *l)
{
    while (!is_over(l)) {
        sk_decision d;
        int64_t before = l->done;
        SK_TRY(sk_loop_change_layout(l));
        SK_TRY(sk_loop_step(l));
        if (l->done <= before) continue; /* the run rolled back */
        SK_TRY(sk_loop_decision(l, &d));
        if (d.stop && !is_over(l)) return stopped(l);
        if (!is_over(l)) SK_TRY(after_step(l, &d));
    }
    return SK_OK;
}

static sk_status train(sk_loop *l)
{
    l->want = sk_relayout_with(l->t->setup, *l->t->from ? l->t->step : 0, l->t->next.batch);
    sk_loop_enter_phase(l, l->want);
    SK_TRY(sk_loop_open_run(l));
    SK_TRY(sk_loop_detect_gpus(l));
    SK_TRY(sk_setup_rates(l->s->job, l->t->steps, &l->lr_schedule));
    SK_TRY(sk_loop_first_weights(l));
    SK_TRY(sk_loop_open_log(l));
    if (!l->rank) l->channel->began = sk_now();
    l->started = sk_now();
    l->clock_rate = sk_fault_clock();
    l->save_interval.every = l->s->job->ckpt_every.seconds;
    l->save_interval.began = l->save_interval.last = sk_loop_clock(l);
    if (sk_job_validates_only(l->s->job)) return sk_loop_validate(l);
    SK_TRY(after_step_before(l));
    do {
        SK_TRY(run_steps(l));
        SK_TRY(finish(l));
    } while (!is_over(l));
    SK_TRY(sk_loop_export(l, "final", SK_REC_FINAL));
    if (l->rank || l->saved == l->done) return SK_OK;
    return sk_fail(SK_EIO,
                   "all %lld steps are done and the model is in %s/final, but the last checkpoint "
                   "was not saved: %s",
                   (long long)l->done, l->t->dir, l->why_not);
}

/* Before anything is closed: closing may wait for other ranks, and those for this one. */
static void report_failure(const sk_loop *l, sk_status st)
{
    if (sk_heaps_abort(l->t->heaps, st, l->rank, sk_error_line()))
        fprintf(stderr, "rank %d: %s\n", l->rank, sk_error());
}

sk_status sk_loop_rank(const sk_training *t, int rank)
{
    sk_loop l = {.t = t,
                 .channel = t->channel,
                 .rank = rank,
                 .tried = -1,
                 .saved = -1,
                 .rollback_step = -1,
                 .commit_log.fd = -1,
                 .metrics.fd = -1};
    sk_status st = train(&l);
    if (st && st != SK_ESTOP) report_failure(&l, st);
    sk_metrics_close(&l.metrics);
    sk_commit_log_close(&l.commit_log);
    sk_loop_close_run(&l);
    sk_arena_end(&l.arena);
    return st;
}
