/* default_layout.h - the layout of a job of several ranks whose user says none.
 *
 * It is data parallelism, dp=RANKS, unless that does not do: where it does not fit into the memory
 * of a rank, or another layout is predicted to be faster by more than a tenth, which is what prices
 * may be wrong by, the layout is searched for (train/auto_layout.h).  Nothing is searched for
 *
 *     - where a step of dp=RANKS takes less than a twentieth of a second: what a launch or a
 * wake-up takes, and no price knows well, decides there;
 *     - on CPUs of several hosts, for no preset knows what connects them;
 *     - where the job says something that goes with its replicas or its layout: budget,
 *       train.relayout, train.batch_schedule, train.noise, optim.adascale, train.backward,
 *       train.dropless, comm.links, comm.algorithm, order, and a replay.
 *
 * Where dp=RANKS fits, what is chosen takes no more memory.  The search ends after so many layouts
 * and so many instructions, never by the clock: jobs that are alike get the same layout.  Words
 * with other results (sk_word.lossy) are never chosen. */
#ifndef SK_TRAIN_DEFAULT_LAYOUT_H
#define SK_TRAIN_DEFAULT_LAYOUT_H

#include "comm/boot.h"
#include "train/job.h"

/* Writes job->layout, if nobody said one.  The result: a line for the user, or NULL where it stays
 * as it was.  Of ranks that another program started (`boot`, else NULL) rank 0 chooses for all. */
sk_status sk_default_layout(sk_arena *a, sk_job *job, sk_boot *boot, const char **line);

#endif
