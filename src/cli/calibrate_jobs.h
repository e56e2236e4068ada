/* calibrate_jobs.h - training jobs that a machine is measured by, for `skein calibrate`.
 *
 * They are small models of every kind (dense, rotary, with experts) in several widths, lengths and
 * types: their steps launch the kernels that jobs launch, in the same surroundings.  What is
 * measured is the program that `skein train` runs with these words. */
#ifndef SK_CLI_CALIBRATE_JOBS_H
#define SK_CLI_CALIBRATE_JOBS_H

#include "plan/launch_times.h"
#include "train/setup.h"

typedef struct sk_calibrate_job {
    const char *words;
    sk_job job;
    sk_setup *setup;
    sk_run_opts opts;
    sk_launch_times times;
} sk_calibrate_job;

/* Words of jobs for a processor or a GPU, what matters most first; NULL ends the list. */
extern const char *const sk_calibrate_on_cpu[], *const sk_calibrate_on_gpu[];

/* Jobs of 16 ranks, on a processor of fewer cores. */
extern const char *const sk_calibrate_crowd[];

/* `more`: further words, such as device=cuda:1; they count last. */
sk_status sk_calibrate_open(sk_arena *a, const char *words, const char *more,
                            sk_calibrate_job *out);

#endif
