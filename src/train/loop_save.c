/* loop_save.c - saving a checkpoint: phases with barriers between them, see checkpoint.h. */
#include "train/loop_state.h"
#include "base/clock.h"
#include "run/run.h"
#include "train/model_export.h"
#include "train/relayout.h"
#include "train/save_interval.h"

#include <stdio.h>
#include <string.h>

enum { MAX_BAD_SAVES = 3 };

typedef struct sk_rank_report { /* of a rank, on its part of a save */
    sk_ckpt_report report;
    char why[SK_WHY];
} sk_rank_report;

static sk_status write_share(sk_loop *l)
{
    sk_ckpt_share share = {.model = l->boxes,
                           .n_model = l->n_model,
                           .state = l->boxes + l->n_model,
                           .n_state = l->n_boxes - l->n_model};
    sk_rank_report mine = {0};
    if (!l->reports) l->reports = sk_loop_gather_buffer(l, sizeof *l->reports);
    bool bad = l->channel->save.begun &&
               sk_ckpt_write_rank(l->t->ckpt, l->channel->save.name, l->rank, &share, &mine.report);
    if (bad) snprintf(mine.why, SK_WHY, "%s", sk_error_line());
    return sk_comm_small_gather(sk_run_comm(l->run), &mine, sizeof mine, l->reports);
}

/* The name of the checkpoint, or that there is none, from rank 0 to all; each host has a channel of
 * its own. */
static sk_status share_name(sk_loop *l)
{
    struct {
        char name[SK_CKPT_NAME];
        bool begun;
    } w = {0};
    if (!l->rank) { /* which may still be writing it when others come here */
        w.begun = l->channel->save.begun;
        memcpy(w.name, l->channel->save.name, sizeof w.name);
    }
    SK_TRY(sk_comm_small_bcast(sk_run_comm(l->run), &w, sizeof w));
    if (sk_loop_place_on_host(l) || !l->rank) return sk_run_barrier(l->run);
    memcpy(l->channel->save.name, w.name, sizeof w.name);
    l->channel->save.begun = w.begun;
    return sk_run_barrier(l->run);
}

/* A change of the batch that comes next is made again by a run that goes on from here. */
static sk_batch_state next_batch(const sk_loop *l)
{
    sk_batch_state x = {.samples = sk_loop_samples(l), .changed = l->changed};
    x.batch = sk_relayout_setup(l->t->setup, sk_loop_next_phase(l))->job->batch;
    if (x.batch != l->s->job->batch) x.changed = l->done;
    return x;
}

static sk_status commit(sk_loop *l)
{
    sk_channel *channel = l->channel;
    for (int r = 0; r < l->s->n_ranks; r++) {
        const sk_rank_report *w = &l->reports[r];
        if (!w->report.status) continue;
        sk_ckpt_abandon(l->t->ckpt_dir, channel->save.name);
        return sk_fail((sk_status)w->report.status, "%s", w->why);
    }
    sk_mark m = sk_arena_mark(&l->arena);
    sk_batch_state next = next_batch(l);
    sk_extra extra = {.steps = l->lr_schedule.steps,
                      .updates = l->updates,
                      .scale = l->scale.moves ? l->scale.value : 0,
                      .good = l->scale.good,
                      .noise = l->noise,
                      .progress = l->progress,
                      .skipped = l->scale.skipped,
                      .pending = sk_run_pending(l->run),
                      .skipped_batches = l->skipped_batches,
                      .data = l->t->data,
                      .val = l->val.step == l->done ? l->val : (sk_validation){0},
                      .owed = l->owed,
                      .batch = next.batch,
                      .next = next,
                      .seq = l->s->job->seq,
                      .windows = l->s->feed.n_windows,
                      .order = l->s->job->data_order,
                      .tokenizer = l->s->tokenizer ? l->s->job->data_tokenizer : ""};
    sk_ckpt_state st = {.step = l->done,
                        .tokens = (int64_t)l->tokens,
                        .seed = l->s->job->seed,
                        .program = sk_program_hash(l->s->programs[0]),
                        .hyper = l->s->job->hyper,
                        .config = l->t->config,
                        .layout = sk_layout_print(&l->arena, &l->s->layout),
                        .extra = sk_extra_print(&l->arena, &extra)};
    sk_status status = sk_ckpt_commit(l->t->ckpt_dir, channel->save.name, l->s->n_ranks, &st);
    sk_arena_back(&l->arena, m);
    return status;
}

/* Rank 0, after a save with this status: a failure is a warning, MAX_BAD_SAVES in a row end the
 * run. */
static sk_status after_commit(sk_loop *l, sk_status st)
{
    char text[SK_WHY];
    if (!st) {
        l->bad_saves = 0;
        l->saved = l->done;
        snprintf(text, sizeof text, "step-%010lld", (long long)l->done);
        sk_loop_note(l, SK_REC_SAVED, text);
        if (!sk_ckpt_retain(l->t->ckpt_dir, l->s->job->ckpt_keep)) return SK_OK;
        sk_loop_note(l, SK_REC_WARN, sk_error_line());
        return SK_OK;
    }
    snprintf(l->why_not, sizeof l->why_not, "%s", sk_error_line());
    snprintf(text, sizeof text, "checkpoint of step %lld was not saved: %s", (long long)l->done,
             sk_error_line());
    sk_loop_note(l, SK_REC_WARN, text);
    if (++l->bad_saves < MAX_BAD_SAVES) return SK_OK;
    return sk_fail(SK_EIO, "%d checkpoints in a row could not be saved, the last at step %lld: %s",
                   l->bad_saves, (long long)l->done, sk_error_line());
}

/* The loss and the gradients of a step can be finite and the weights after its update not.  `why`
 * names the first tensor that is not, of those that would be saved, alike on all ranks; "": all
 * are. */
static sk_status check_state(sk_loop *l, sk_rank_report *w)
{
    sk_mark m = sk_arena_mark(&l->arena);
    sk_rank_report *all = sk_loop_gather_buffer(l, sizeof *all);
    *w = (sk_rank_report){0};
    for (int i = 0; i < l->n_boxes && !*w->why; i++)
        if (!sk_loop_all_finite(&l->boxes[i]))
            snprintf(w->why, SK_WHY, "after step %lld '%.128s' is not finite any more",
                     (long long)l->done, l->boxes[i].name);
    SK_TRY(sk_comm_small_gather(sk_run_comm(l->run), w, sizeof *w, all));
    for (int r = 0; !l->rank && !*w->why && r < l->s->n_ranks; r++) *w = all[r];
    sk_arena_back(&l->arena, m);
    return sk_comm_small_bcast(sk_run_comm(l->run), w, sizeof *w);
}

sk_status sk_loop_save(sk_loop *l)
{
    sk_assert(l->n_model <= l->n_boxes && l->tried <= l->done);
    sk_channel *channel = l->channel;
    sk_status st = SK_OK;
    sk_rank_report w;
    SK_TRY(sk_loop_settle(l));
    SK_TRY(sk_loop_tell(l));
    SK_TRY(sk_run_pull(l->run));
    SK_TRY(check_state(l, &w));
    if (*w.why) return sk_loop_bad_state(l, w.why);
    l->tried = l->done;
    if (!l->rank) {
        memset(&channel->save, 0, sizeof channel->save);
        st = sk_ckpt_begin(l->t->ckpt_dir, l->done, l->save_bytes, channel->save.name);
        channel->save.begun = !st;
    }
    SK_TRY(share_name(l));
    SK_TRY(write_share(l));
    if (l->rank) return SK_OK;
    if (!st) st = commit(l);
    return after_commit(l, st);
}

double sk_loop_clock(const sk_loop *l) { return l->clock_rate * sk_now(); }

/* After a save that began at `began`.  The warning about late saves is given once. */
void sk_loop_after_save(sk_loop *l, double began)
{
    sk_save_interval *p = &l->save_interval;
    sk_save_interval_saved(p, sk_loop_clock(l), sk_now() - began);
    double wait = sk_save_interval_next(p) - p->last;
    if (p->every <= 0 || l->told_late || wait < 1.01 * p->every) return;
    l->told_late = true;
    sk_loop_note(l, SK_REC_WARN,
                 sk_print(&l->arena,
                          "training stopped for %.2f s to save step %lld: the next checkpoint "
                          "comes in %.2f s, not %g s, so that saving takes at most %g %% of the "
                          "time; ckpt.every=STEPS saves at any cost",
                          p->stall, (long long)l->done, wait, p->every,
                          100 * SK_SAVE_INTERVAL_COST));
}
