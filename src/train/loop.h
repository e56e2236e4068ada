/* loop.h - training as one rank lives it.
 *
 *     open the run -> init, load weights, or resume -> steps -> final checkpoint and model
 *
 * Between steps come validation, saving, and exports for samples, each due by the
 * number of steps done, so that all ranks come to them together.  Ranks write
 * checkpoints together; rank 0 alone writes metrics, models for sampling and the
 * final model, reading the others' heaps while they wait at a barrier.  Ranks of
 * other hosts send it what it cannot read; decisions reach them over the wire, and
 * the run directory must be one that all hosts see.
 *
 * With train.dropless a step whose experts were full changed nothing and is run once
 * more, with the same data and random numbers, by the program with room for all.
 *
 * A save that fails is a warning and training goes on; MAX_BAD_SAVES in a row end
 * it.  Numbers that are not finite end it too, before the weights are touched; or the
 * step is skipped, or all ranks go back to the newest checkpoint and leave its batch out
 * (train.nonfinite).  State that is not finite is never saved. */
#ifndef SK_TRAIN_LOOP_H
#define SK_TRAIN_LOOP_H

#include "comm/comm.h"
#include "train/launcher_channel.h"
#include "train/skipped_batches.h"
#include "train/setup.h"

/* Behind the desk in shared memory: how steps went in a run with experts (train.dropless). */
typedef struct sk_fallback_stats {
    atomic_llong steps, again; /* by rank 0: done; of them run again with room for all */
    atomic_int roomy[];        /* by rank: is it in the program with room for all? */
} sk_fallback_stats;

enum { SK_VAL_TIMES = 8 }; /* validations of a run that does not say how often */

/* What the launcher made and the ranks inherit. */
typedef struct sk_training {
    const sk_setup *setup;
    sk_heaps *heaps;
    sk_channel *desk;
    sk_fallback_stats *tally;
    sk_ckpt_dir *home;    /* of rank 0 once the ranks run */
    char dir[PATH_MAX];   /* the run directory */
    char ckpt[PATH_MAX];  /* its folder of checkpoints */
    char from[PATH_MAX];  /* the checkpoint to resume; "": none */
    int64_t step, tokens; /* done before, when resuming */
    double scale;         /* of gradients, when resuming (scale.h); 0: not known */
    int64_t good, skipped;
    bool pending;            /* a gradient waits for a late optimizer, when resuming */
    sk_skipped_batches left; /* batches that are not used */
    int64_t updates;         /* of the optimizer, in these steps */
    int64_t steps;           /* of the whole training; 0: chosen after some steps (train.time) */
    const char *config;      /* the text of config.yaml, for checkpoints */
    char data[SK_DIGEST];    /* of data.train; rank 0 */
    int64_t windows;         /* of it to train on; rank 0 */
    sk_wire *wire;           /* to ranks of other hosts; NULL: there are none */
    const int *host_of;      /* rank -> host; NULL: one host */
} sk_training;

/* SK_ESTOP: asked to stop, and everything is saved. */
sk_status sk_loop_rank(const sk_training *t, int rank);

/* Is something that happens `every` so many steps due after `done` of `steps`?  0: never.
 * -1: as often as makes `times` in all; the last step is not among them. */
bool sk_loop_due(int64_t every, int64_t times, int64_t done, int64_t steps);

#endif
