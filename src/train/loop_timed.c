/* loop_timed.c - training where time decides whose gradients make a step (sync=backup:B): the log
 * of these choices, their replay, and a rank that was late.
 *
 * The decision of a step (launcher_channel.h) is written by the rank that completes its set, since
 * rank 0 may be late itself: rank 0 only wishes for a checkpoint.  A rank that was late accounts
 * for the steps that it missed from their results, as if it had made them; it cannot have missed
 * one behind which all ranks meet, for validation or a checkpoint, since the others wait there. */
#include "train/loop_state.h"
#include "base/clock.h"
#include "run/run.h"

bool sk_loop_is_timed(const sk_loop *l) { return sk_layout_timed(&l->s->layout); }

/* By the rank that completes the set, before any rank acts on it. */
static sk_status seal(void *ctx, int64_t step, unsigned set)
{
    sk_loop *l = ctx;
    sk_decision d = {.steps = l->lr_schedule.steps,
                     .stop = sk_heaps_stop_asked(l->t->heaps),
                     .save = atomic_exchange(&l->channel->save_wished, 0) != 0};
    sk_channel_decide(l->channel, step, d);
    return sk_commit_log_step(&l->commit_log, step, set, l->s->n_ranks);
}

static unsigned imposed(void *ctx, int64_t step)
{
    const sk_loop *l = ctx;
    return step < l->replay.n ? l->replay.set[step] : 0;
}

sk_commit_opts sk_loop_commit_opts(sk_loop *l)
{
    if (!sk_loop_is_timed(l)) return (sk_commit_opts){0};
    return (sk_commit_opts){.seal = seal, .imposed = imposed, .ctx = l};
}

/* A replay ends where its recording does, so it must be as long as the run. */
static sk_status read_replay(sk_loop *l)
{
    const sk_job *job = l->s->job;
    if (!*job->replay) return SK_OK;
    SK_TRY(sk_commits_read(&l->arena, job->replay, l->s->n_ranks, &l->replay));
    if (l->replay.first > l->t->step)
        return sk_fail(SK_EDATA,
                       "replay: run %s has recorded steps from %lld on; resume=CHECKPOINT of step "
                       "%lld begins there",
                       job->replay, (long long)l->replay.first + 1, (long long)l->replay.first);
    if (l->replay.n >= l->t->steps) return SK_OK;
    return sk_fail(SK_EDATA,
                   "replay: run %s has recorded %lld step%s, and %lld are asked for; "
                   "train.steps=%lld replays what there is",
                   job->replay, (long long)l->replay.n, sk_plural(l->replay.n),
                   (long long)l->t->steps, (long long)l->replay.n);
}

sk_status sk_loop_open_log(sk_loop *l)
{
    if (!sk_loop_is_timed(l)) return SK_OK;
    SK_TRY(read_replay(l));
    SK_TRY(sk_commit_log_open(&l->commit_log, l->t->dir));
    if (l->rank) return SK_OK;
    sk_loop_note(l, SK_REC_WARN,
                 *l->s->job->replay
                     ? sk_print(&l->arena, "whose gradients count is what run %s has recorded",
                                l->s->job->replay)
                     : sk_print(&l->arena,
                                "time decides whose gradients count: commits.jsonl records it, and "
                                "skein train --replay %s repeats it",
                                l->t->dir));
    return SK_OK;
}

sk_status sk_loop_catch_up(sk_loop *l, double start)
{
    sk_step_out missed[SK_MOST_MISSED];
    int n = 0;
    SK_TRY(sk_run_catch_up(l->run, missed, &n));
    double seconds = (sk_now() - start) / n;
    for (int i = 0; i < n; i++) {
        sk_step_in in = sk_loop_step_in(l);
        SK_TRY(sk_loop_account(l, &in, &missed[i], seconds));
    }
    return SK_OK;
}
