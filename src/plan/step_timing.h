/* step_timing.h - how long training steps (sk_run_step) really take on this host. */
#ifndef SK_PLAN_STEP_TIMING_H
#define SK_PLAN_STEP_TIMING_H

#include "run/run.h"

enum { SK_TIMED_STEPS = 256, SK_TIMED_WORDS = 1024 };

typedef struct sk_step_timing {
    double seconds; /* median step */
    double waited;  /* of a step, as a fraction: mean over steps and ranks */
    double tokens;  /* of a step */
    double cores;   /* seconds of cores that all ranks took for a step, mean over steps */
    int64_t wire;   /* bytes that left all ranks in the last step, as counted */
    double peak[2]; /* of all GPUs that are used, as in sk_device_facts; 0: not known */
    char slow[SK_TIMED_WORDS]; /* of rank 0: run/slow_kernels.h; "": nothing */
    int n;
    double loss[SK_TIMED_STEPS];
} sk_step_timing;

/* `steps` after two more to warm up; losses are of all. */
sk_status sk_time_steps(const sk_program *const *programs, const sk_run_opts *o, double lr,
                        int steps, sk_step_timing *out);

#endif
