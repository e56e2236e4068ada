/* setup_simulate.h - a training step of a job on a machine, simulated with a rank of each class
 * (plan/simulator.h).  Needs no more than sk_setup_layout(). */
#ifndef SK_TRAIN_SETUP_SIMULATE_H
#define SK_TRAIN_SETUP_SIMULATE_H

#include "plan/simulator.h"
#include "train/setup.h"

typedef struct sk_simulated_step {
    const sk_program *const *programs; /* by shape */
    int *shape_of;                     /* by rank */
    sk_simulation sim;
    int64_t bytes; /* of the device memory of the rank that needs the most */
} sk_simulated_step;

sk_status sk_setup_simulate(sk_arena *a, const sk_setup *s, const sk_machine *m,
                            sk_simulated_step *out);
/* The same with the times of every instruction. */
sk_status sk_setup_trace(sk_arena *a, const sk_setup *s, const sk_machine *m,
                         sk_simulated_step *out);

/* Device memory of rank 0 alone, which is quicker: other ranks may need more.  Adds to *insts the
 * instructions of its program. */
sk_status sk_setup_first_bytes(sk_arena *a, const sk_setup *s, const sk_machine *m, int64_t *bytes,
                               int64_t *insts);

#endif
