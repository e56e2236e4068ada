/* step_timing.h - how long training steps (sk_run_step) really take on this host. */
#ifndef SK_PLAN_STEP_TIMING_H
#define SK_PLAN_STEP_TIMING_H

#include "run/run.h"

enum { SK_TIMED_STEPS = 256, SK_TIMED_WARM = 2, SK_TIMED_WORDS = 1024 };

typedef struct sk_step_timing {
    double seconds; /* a step: for each step of an interval the median over intervals, and of
                       these the mean */
    double waited;  /* of a step, as a fraction: mean over steps and ranks */
    double tokens;  /* of a step, of all replicas */
    double cores;   /* seconds of cores that all ranks took for a step, mean over steps */
    int64_t wire;   /* bytes that left all ranks in a step, as counted, mean over steps */
    double peak[2]; /* of all GPUs that are used, as in sk_device_facts; 0: not known */
    char slow[SK_TIMED_WORDS]; /* of rank 0: run/slow_kernels.h; "": nothing */
    int interval;              /* sk_steps_interval */
    int n;                     /* steps, with those to warm up */
    double loss[SK_TIMED_STEPS];
} sk_step_timing;

/* Steps after which instructions that do not run in every one (a synchronisation of replicas, an
 * inverse of K-FAC) have all run as often as ever. */
int sk_steps_interval(const sk_program *const *programs);
/* `steps`, or what makes whole intervals of them, as long as these are SK_TIMED_STEPS at most. */
int sk_steps_whole(int steps, int interval);

/* sk_steps_whole of `steps`, after SK_TIMED_WARM more; losses are of all. */
sk_status sk_time_steps(const sk_program *const *programs, const sk_run_opts *o, double lr,
                        int steps, sk_step_timing *out);

#endif
