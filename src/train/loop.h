/* loop.h - training as one rank sees it.
 *
 *     open the run -> init, load weights, or resume -> steps -> final checkpoint and model
 *
 * Between steps come validation, saving, and exports for samples, each due by the number of steps
 * done, so that all ranks reach them together.  Ranks write checkpoints together; rank 0 alone
 * writes metrics, models for sampling and the final model, reading the heaps of the others while
 * they wait at a barrier.  Ranks of other hosts send it what it cannot read; decisions reach them
 * over the wire, and the run directory must be visible on all hosts.
 *
 * With train.dropless a step in which an expert was full changes nothing and is run once more, with
 * the same data and random numbers, by the fallback program (fallback.h), which has room for all.
 *
 * A save that fails is a warning and training goes on; several in a row end it.  Numbers that are
 * not finite end it too, before the weights are changed; or the step is skipped, or all ranks roll
 * back to the newest checkpoint and skip its batch (train.nonfinite).  State that is not finite is
 * never saved.  loop_state.h lists the files. */
#ifndef SK_TRAIN_LOOP_H
#define SK_TRAIN_LOOP_H

#include "comm/comm.h"
#include "train/batch_schedule.h"
#include "train/launcher_channel.h"
#include "train/noise_scale.h"
#include "train/setup.h"
#include "train/skipped_batches.h"
#include "train/validation.h"

/* After the channel in shared memory: steps that ran the fallback program (fallback.h). */
typedef struct sk_fallback_stats {
    atomic_llong steps, again; /* by rank 0: done; of them run again by the fallback program */
    atomic_int fallback[];     /* by rank: does it run the fallback program now? */
} sk_fallback_stats;

enum { SK_VAL_TIMES = 8 }; /* validations of a run that does not say how often */

/* What the launcher made and the ranks inherit. */
typedef struct sk_training {
    const sk_setup *setup;
    sk_heaps *heaps;
    sk_channel *channel;
    sk_fallback_stats *fallback_stats;
    sk_ckpt_dir *ckpt_dir; /* rank 0 uses it once the ranks run */
    char dir[PATH_MAX];    /* the run directory */
    char ckpt[PATH_MAX];   /* its folder of checkpoints */
    char from[PATH_MAX];   /* the checkpoint to resume; "": none */
    int64_t step, tokens;  /* done before, when resuming */
    double scale;          /* of the loss, when resuming (loss_scale.h); 0: not known */
    int64_t good, skipped;
    sk_noise_scale noise; /* when resuming */
    double progress;      /* of the schedule, when resuming; 0: not known */
    bool pending;         /* a gradient waits for a late optimizer, when resuming */
    sk_validation val;    /* behind `step`, when resuming */
    bool owed;            /* what was due behind `step` was not done, when resuming */
    sk_skipped_batches skipped_batches;
    sk_batch_state next;  /* what the next step reads, when resuming */
    int64_t updates;      /* of the optimizer, in these steps */
    int64_t steps;        /* of the whole training; 0: chosen after some steps (train.time) */
    const char *config;   /* the text of config.yaml, for checkpoints */
    char data[SK_DIGEST]; /* of data.train; rank 0 */
    int64_t windows;      /* of it to train on; rank 0 */
    sk_wire *wire;        /* to ranks of other hosts; NULL: there are none */
    const int *host_of;   /* rank -> host; NULL: one host */
} sk_training;

/* SK_ESTOP: asked to stop, and everything is saved. */
sk_status sk_loop_rank(const sk_training *t, int rank);

/* Is something that happens `every` so many steps due after `done` of `steps`?  0: never.
 * -1: as often as makes `times` in all; the last step is not among them. */
bool sk_loop_due(int64_t every, int64_t times, int64_t done, int64_t steps);

#endif
