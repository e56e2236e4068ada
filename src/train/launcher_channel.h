/* launcher_channel.h - shared memory through which the ranks of a run and their launcher talk.
 *
 * It lies beside the heaps (sk_heaps_extra) and holds three things:
 *
 * Decisions that must be alike on all ranks.  Rank 0 writes the decision for the end of step k
 * before it begins step k, into slot k mod 64; every rank reads it when it has done step k.  A step
 * contains a sum over all ranks, so the decision is there by then; and rank 0 cannot begin step
 * k + 2 before all ranks have begun step k + 1.  So a decision costs no communication, and takes
 * effect one step late.  Where time decides who makes a step, who completes it decides
 * (loop_timed.c), and no rank is 64 steps behind (comm/quorum.h).
 *
 * The phases of a save: the name of the checkpoint, and whether it was begun.
 *
 * Records for the console: a ring buffer with one writer (rank 0) and one reader (the launcher).
 * Records of steps are dropped when the reader is slow; metrics.jsonl, which rank 0 writes itself,
 * has them all. */
#ifndef SK_TRAIN_LAUNCHER_CHANNEL_H
#define SK_TRAIN_LAUNCHER_CHANNEL_H

#include "comm/quorum.h"
#include "device/nvml.h"
#include "train/backward_outputs.h"
#include "train/checkpoint.h"
#include "train/setup.h"

#include <stdatomic.h>

enum {
    SK_CHANNEL_RECORDS = 1024,
    SK_CHANNEL_DECISIONS = 64,
    SK_CHANNEL_DROPPED = SK_QUORUM_RANKS,
    SK_WHY = 256
};

typedef struct sk_decision {
    int64_t steps; /* of the whole training; 0: not known yet */
    bool stop;     /* save, then end the run */
    bool save;     /* a checkpoint is due by the clock: save_interval.h */
    int phase;     /* of the next step, where the noise scale says it: batch_schedule.h */
} sk_decision;

typedef enum sk_record_kind {
    SK_REC_STEP,
    SK_REC_VAL,    /* loss is that of the validation data */
    SK_REC_STEPS,  /* the number of steps was chosen: step */
    SK_REC_DEVICE, /* text: the GPU of rank 0, once it is open */
    SK_REC_SAVED,  /* text: the checkpoint */
    SK_REC_WARN,   /* text: what went wrong; training goes on */
    SK_REC_SAMPLE, /* text: a model directory to sample from, and to remove */
    SK_REC_FINAL   /* text: the model directory that stays */
} sk_record_kind;

typedef struct sk_record {
    sk_record_kind kind;
    int64_t step; /* steps done, so the first is 1 */
    double loss, grad_norm, lr, tokens;
    double momentum;              /* that the schedule set; 0: the optimizer's own */
    double seconds;               /* from the end of the step before to the end of this one */
    double at;                    /* when it was over: sk_now() of rank 0's host */
    double waited;                /* part of `seconds`: waiting for other ranks or moving bytes;
                                     NAN: not measured, the step was made without rank 0 */
    double copied, uncovered;     /* seconds of copies between memories; the exposed part of them */
    double mfu;                   /* of the peak; 0: not known */
    double scale;                 /* of the loss in this step: loss_scale.h */
    double grad_var, noise_scale; /* as metrics.h has them */
    double accuracy;              /* of a validation; NAN: the model is no classifier */
    double gain;                  /* of AdaScale; 0: off */
    bool noise;                   /* these were measured: train.noise */
    sk_backward_sums backward;    /* train.backward */
    int dropped;                  /* ranks whose gradients the step was made without */
    int64_t skipped, left_out;    /* so far: steps that changed nothing, skipped batches */
    int64_t batch;                /* samples of this step; 0: it never changes */
    sk_nvml gpu;                  /* of rank 0, at most a few seconds old; bytes 0: not known */
    char text[SK_WHY];
} sk_record;

typedef struct sk_channel {
    struct {
        atomic_llong steps;
        atomic_int stop, save, phase;
    } decision[SK_CHANNEL_DECISIONS];
    atomic_int save_wished; /* by rank 0, where another rank decides: loop_timed.c */
    struct {                /* sync=ssp: behind so many steps all ranks meet, to save or to stop */
        atomic_llong at;
        atomic_int stop, save;
    } meeting;
    struct {
        char name[SK_CKPT_NAME];
        bool begun;
    } save;
    struct {                              /* what time has decided so far: loop_timed.c */
        atomic_llong n;                   /* sync=backup: steps; sync=ssp: updates */
        atomic_llong behind, most_behind; /* ssp: steps behind the farthest rank, sum and most */
        atomic_llong dropped[SK_CHANNEL_DROPPED]; /* backup: steps made without a rank */
    } timed;
    double peak; /* flops per second of all ranks, as rank 0 collected them: of their hosts
                    (host_peak.h) or GPUs */
    struct {     /* rank 0's, after its first step: sk_gpu_usage */
        atomic_llong pool; /* written last; 0: it has no GPU */
        int64_t before, taken, since;
    } gpu;
    double began;             /* when rank 0 began its first step: sk_now() */
    atomic_ullong head, tail; /* records written, records read */
    sk_record ring[SK_CHANNEL_RECORDS];
} sk_channel;

void sk_channel_decide(sk_channel *c, int64_t step, sk_decision d);
sk_decision sk_channel_decision(sk_channel *c, int64_t step);

/* Returns false if the record was dropped. */
bool sk_channel_put(sk_channel *c, const sk_record *r);
bool sk_channel_take(sk_channel *c, sk_record *out); /* false: none is waiting */

#endif
