/* profile.h - what every instruction takes on this host, measured for a simulation.
 *
 * The ranks of a job get slots on the cores of this host, rank r on core r mod cores: as many as
 * memory and time allow, and at least one of every shape.  Each core is one process.  Its ranks
 * take turns: one goes on until it would wait for others, as ranks do that share a core.  So caches
 * are as full and neighbours as busy as in the job itself; only bytes between ranks do not move,
 * and synthetic data stands for them (sk_run_opts.alone).  After one step to warm up, the median of
 * a few steps is taken, over all ranks of a shape. */
#ifndef SK_PLAN_PROFILE_H
#define SK_PLAN_PROFILE_H

#include "plan/machine.h"
#include "run/run.h"

typedef struct sk_profile_in {
    const sk_program *const *programs; /* by shape */
    const int *shape_of;               /* by rank */
    int n_ranks;
    const sk_machine *machine; /* to know beforehand how long a step may take */
    const sk_run_opts *opts;   /* fill, seed and knobs */
    int64_t memory;            /* bytes that may be taken */
    double seconds;            /* that all of it may take, by the machine's prices */
} sk_profile_in;

typedef struct sk_profile {
    double **seconds; /* by shape, then by instruction; NULL: not measured, price it */
    int n_shapes, measured;
    int slots;       /* ranks that were run */
    const char *why; /* some are not measured; NULL: all are */
} sk_profile;

sk_status sk_profile_ranks(sk_arena *a, const sk_profile_in *in, sk_profile *out);

#endif
