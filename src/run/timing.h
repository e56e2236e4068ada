/* timing.h - how long collectives and steps really take on this host.
 *
 * Ranks are processes (crew.h).  A collective is timed from a barrier to its end
 * on the slowest rank, many times; one more run over poisoned memory is compared
 * with the known result, element by element.  Steps are those of sk_run_step. */
#ifndef SK_RUN_TIMING_H
#define SK_RUN_TIMING_H

#include "run/run.h"

typedef struct sk_coll_timing {
    double median, p10, p90; /* seconds */
    int64_t wrong;           /* elements, over all ranks */
    int times;
} sk_coll_timing;

/* bytes: of the whole buffer (what nccl-tests calls size), in f32. */
sk_status sk_time_coll(sk_coll_kind kind, int64_t bytes, int n_ranks, sk_coll_timing *out);

enum { SK_TIMED_STEPS = 256 };

typedef struct sk_step_timing {
    double seconds; /* median step */
    double waited;  /* of a step, as a fraction: mean over steps and ranks */
    double tokens;  /* of a step */
    int n;
    double loss[SK_TIMED_STEPS];
} sk_step_timing;

/* `steps` after two more to warm up; losses are of all. */
sk_status sk_time_steps(const sk_program *const *programs, const sk_run_opts *o, double lr,
                        int steps, sk_step_timing *out);

#endif
