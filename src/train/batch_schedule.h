/* batch_schedule.h - train.batch_schedule: a global batch that changes on the way.
 *
 *     train.batch_schedule="0: 32, 100: 64, 300: 256"   from these steps on
 *     train.batch_schedule=noise:8-512                   by the gradient noise scale
 *
 * Every size of the batch is a phase of the run (train/relayout.h): its programs are compiled and
 * verified before the start, and heaps have the bytes of the largest.  With `noise` the sizes are
 * 8, 16, 32 ... 512; the run begins with the first (train.batch, and up to 16 times that, where
 * none is said).  A noise scale of at least twice the batch doubles it, one of at most half of it
 * halves it, SK_BATCH_STEPS steps after the last change at the earliest.
 *
 * Samples are numbered: step after step takes the next ones, whatever their number.  So sample i
 * is the same one under any schedule, and a checkpoint has only how many were read. */
#ifndef SK_TRAIN_BATCH_SCHEDULE_H
#define SK_TRAIN_BATCH_SCHEDULE_H

#include "train/job.h"
#include "train/noise_scale.h"

enum { SK_BATCH_STEPS = 20, SK_BATCH_CHANGES = 64 };

typedef struct sk_batch_change {
    int64_t from, batch; /* steps done when it begins */
} sk_batch_change;

typedef struct sk_batch_list {
    int n;
    sk_batch_change v[SK_BATCH_CHANGES]; /* steps rise; by noise: sizes rise, `from` is 0 */
} sk_batch_list;

/* What a checkpoint has of it. */
typedef struct sk_batch_state {
    int64_t index;   /* of the batch that the next step reads, among all (skipped_batches.h) */
    int64_t samples; /* the first sample of it; -1: as if all batches had been of this size */
    int64_t batch;   /* samples of the next step; 0: not said */
    int64_t changed; /* steps that were done when the size last changed */
} sk_batch_state;

bool sk_batch_by_noise(const sk_job *job);
/* The changes that the job asks for.  By noise: all sizes, the first is job->batch. */
sk_status sk_batch_schedule_read(const sk_job *job, sk_batch_list *out);
/* Sets job->batch to the first size, and job->noise where the schedule needs it.  A schedule that
 * cannot be is refused. */
sk_status sk_batch_schedule_begin(sk_job *job);
/* The phase of n for the steps to come, from the noise scale; `since` steps after a change. */
int sk_batch_next(const sk_noise_scale *x, int64_t batch, int64_t since, int phase, int n);
/* The rate of a step with so many samples, over the rate of one with job->batch. */
double sk_batch_rate(const sk_job *job, int64_t batch);

#endif
