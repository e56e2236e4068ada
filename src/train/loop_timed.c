/* loop_timed.c - training where time decides whose gradients make a step (sync=backup:B), or the
 * order of updates (sync=ssp:S): the log of these choices, their replay, and a rank that was late.
 *
 * The decision of a step (launcher_channel.h) is written by the rank that completes its set, since
 * rank 0 may be late itself: rank 0 only wishes for a checkpoint.  A rank that was late accounts
 * for the steps that it missed from their results, as if it had made them; it cannot have missed
 * one behind which all ranks meet, for validation or a checkpoint, since the others wait there.
 *
 * With sync=ssp ranks are at different steps.  Where all of them have something to do they settle:
 * they wait for each other and take the newest weights.  A checkpoint or a stop that is asked for
 * comes behind the step of the rank that is farthest.  A replay settles only where the ranks of its
 * run had all done a step before any began the next: elsewhere its turns would wait for each other.
 */
#include "train/loop_state.h"
#include "base/clock.h"
#include "base/shell_word.h"
#include "program/sync.h"
#include "run/run.h"

#include <math.h>
#include <string.h>

bool sk_loop_is_timed(const sk_loop *l) { return sk_layout_timed(&l->s->layout); }
bool sk_loop_is_stale(const sk_loop *l) { return sk_layout_stale(&l->s->layout) >= 0; }

/* By the rank that completes the set, before any rank acts on it. */
static sk_status seal(void *ctx, int64_t step, unsigned set)
{
    sk_loop *l = ctx;
    sk_decision d = {.steps = l->lr_schedule.steps,
                     .stop = sk_heaps_stop_asked(l->t->heaps),
                     .save = atomic_exchange(&l->channel->save_wished, 0) != 0};
    sk_channel_decide(l->channel, step, d);
    atomic_fetch_add(&l->channel->timed.n, 1);
    for (int r = 0; r < l->s->n_ranks && r < SK_CHANNEL_DROPPED; r++)
        atomic_fetch_add(&l->channel->timed.dropped[r], !(set >> r & 1));
    return sk_commit_log_step(&l->commit_log, step, set, l->s->n_ranks);
}

static unsigned imposed(void *ctx, int64_t step)
{
    const sk_loop *l = ctx;
    return l->replay.set && step < l->replay.n ? l->replay.set[step] : 0;
}

/* By the rank whose turn it is, so that no other counts. */
static void count_update(sk_channel *c, int64_t behind)
{
    atomic_fetch_add(&c->timed.n, 1);
    if (behind <= 0) return;
    atomic_fetch_add(&c->timed.behind, behind);
    if (behind > atomic_load(&c->timed.most_behind)) atomic_store(&c->timed.most_behind, behind);
}

/* By the rank whose turn it is.  Who finishes a step first may have all ranks meet behind it: none
 * has gone on.  A replay meets where its run could have. */
static sk_status updated(void *ctx, int64_t step, const int64_t turn[SK_N_TURNS], int64_t ahead)
{
    sk_loop *l = ctx;
    sk_channel *c = l->channel;
    bool first = step + 1 > ahead, may = sk_loop_may_meet(l, step + 1);
    bool stop = sk_heaps_stop_asked(l->t->heaps), save = atomic_load(&c->save_wished) != 0;
    if (first && may && (stop || save)) {
        atomic_store(&c->meeting.stop, stop);
        atomic_store(&c->meeting.save, save);
        atomic_store(&c->save_wished, 0);
        atomic_store(&c->meeting.at, step + 1);
    }
    count_update(c, ahead - (step + 1));
    return sk_commit_log_turns(&l->commit_log, step, l->rank, turn);
}

static bool imposed_turns(void *ctx, int64_t step, int64_t turn[SK_N_TURNS])
{
    const sk_loop *l = ctx;
    if (step >= l->replay.n) return false;
    memcpy(turn, l->replay.turn[step * l->replay.n_ranks + l->rank], sizeof *l->replay.turn);
    return true;
}

sk_decision sk_loop_meeting(const sk_loop *l)
{
    const sk_channel *c = l->channel;
    sk_decision d = {.steps = l->lr_schedule.steps};
    if (atomic_load(&c->meeting.at) != l->done) return d;
    d.stop = atomic_load(&c->meeting.stop) != 0;
    d.save = atomic_load(&c->meeting.save) != 0;
    return d;
}

sk_commit_opts sk_loop_commit_opts(sk_loop *l)
{
    if (!sk_loop_is_timed(l)) return (sk_commit_opts){0};
    return (sk_commit_opts){.seal = seal,
                            .imposed = imposed,
                            .updated = updated,
                            .imposed_turns = imposed_turns,
                            .ctx = l};
}

bool sk_loop_may_meet(const sk_loop *l, int64_t done)
{
    return !l->replay.n || sk_commits_together(&l->replay, done);
}

sk_status sk_loop_settle(sk_loop *l)
{
    double tokens = 0;
    if (!sk_loop_is_stale(l)) return SK_OK;
    sk_assert(sk_loop_may_meet(l, l->done));
    SK_TRY(sk_run_settle(l->run, &l->updates, &tokens));
    l->tokens += tokens;
    return SK_OK;
}

/* In a replay whose val.every, ckpt.every or sample.every are not those of the run. */
static void tell_left_out(sk_loop *l)
{
    int64_t n = 0, first = 0;
    for (int64_t k = l->t->step + 1; k < l->t->steps; k++) {
        if (!sk_loop_meets_at(l, k) || sk_loop_may_meet(l, k)) continue;
        if (!n++) first = k;
    }
    if (n)
        sk_loop_note(l, SK_REC_WARN,
                     sk_print(&l->arena,
                              "all ranks would meet behind %lld step%s, from step %lld on, behind "
                              "which those of run %s did not: validations, checkpoints and samples "
                              "that are due there are left out",
                              (long long)n, sk_plural(n), (long long)first, l->s->job->replay));
}

/* A replay ends where its recording does, so it must be as long as the run. */
static sk_status read_replay(sk_loop *l)
{
    const sk_job *job = l->s->job;
    if (!*job->replay) return SK_OK;
    const sk_layout *layout = &l->s->layout;
    int backup = sk_layout_backup(layout), axis = sk_layout_stale(layout);
    int stale = axis < 0 ? SK_ANY_STALENESS : layout->sync[axis].stale;
    l->replay = (sk_commits){.n_ranks = l->s->n_ranks,
                             .from = l->t->step,
                             .stale = axis >= 0,
                             .way = sk_sync_timed_name(layout),
                             .n_dropped = backup < 0 ? 0 : layout->sync[backup].backup,
                             .most_ahead = stale == SK_ANY_STALENESS ? -1 : stale - 1};
    SK_TRY(sk_commits_read(&l->arena, job->replay, &l->replay));
    if (l->t->step < l->replay.changed_at)
        return sk_fail(
            SK_ECONF,
            "replay: run %s was resumed behind step %lld with another %s, and config.yaml "
            "has only the last; resume=CHECKPOINT of step %lld replays what it did since",
            job->replay, (long long)l->replay.changed_at, l->replay.changed,
            (long long)l->replay.changed_at);
    if (!sk_commits_together(&l->replay, l->t->step))
        return sk_fail(
            SK_EDATA,
            "replay: ranks of run %s did not meet behind step %lld; resume=CHECKPOINT of "
            "a step behind which they did (ckpt.every, val.every) is needed",
            job->replay, (long long)l->t->step);
    if (l->replay.n >= l->t->steps)
        return sk_commits_keep(&l->replay, &l->arena, job->replay, l->t->step, l->t->steps);
    return sk_fail(SK_EDATA,
                   "replay: run %s has recorded %lld step%s, and %lld are asked for; "
                   "train.steps=%lld replays what there is",
                   job->replay, (long long)l->replay.n, sk_plural(l->replay.n),
                   (long long)l->t->steps, (long long)l->replay.n);
}

sk_status sk_loop_open_log(sk_loop *l)
{
    const char *what = sk_loop_is_stale(l) ? "the order of updates" : "whose gradients count";
    if (!sk_loop_is_timed(l)) return SK_OK;
    SK_TRY(read_replay(l));
    SK_TRY(sk_commit_log_open(&l->commit_log, l->t->dir));
    if (sk_loop_is_stale(l)) SK_TRY(sk_loop_find_peak(l)); /* no meeting behind the first step */
    if (l->rank) return SK_OK;
    sk_loop_note(
        l, SK_REC_WARN,
        *l->s->job->replay
            ? sk_print(&l->arena, "%s is what run %s has recorded", what, l->s->job->replay)
            : sk_print(&l->arena,
                       "time decides %s: commits.jsonl records it, and skein train "
                       "--replay %s repeats it",
                       what, sk_shell_word(&l->arena, l->t->dir)));
    tell_left_out(l);
    return SK_OK;
}

sk_status sk_loop_catch_up(sk_loop *l, double start)
{
    sk_step_out missed[SK_MOST_MISSED];
    int n = 0;
    SK_TRY(sk_run_catch_up(l->run, missed, &n));
    double seconds = (sk_now() - start) / n;
    for (int i = 0; i < n; i++) {
        missed[i].late = true; /* its times are those of another rank */
        missed[i].waited = NAN;
        sk_loop_told x = {.in = sk_loop_step_in(l), .out = missed[i], .seconds = seconds};
        x.at = sk_now();
        SK_TRY(sk_loop_end_step(l, &x));
    }
    return SK_OK;
}
