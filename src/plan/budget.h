/* budget.h - options to run a layout in so many bytes a rank: recomputation, sharding, offload.
 *
 * Every level of sharding from the layout's own on is combined with no recomputation, the core of
 * attention, the first 1, 2, 4 ... blocks of each stage, or all of them, and with wide results
 * whole, in 4 slices or in 16.  If none of these options fits, optimizer state, gradients,
 * activations and weights are offloaded to the host, one after the other, with no or full
 * recomputation and wide results whole or in 16 slices.  An option is compiled, so its bytes are
 * those that a run maps, and simulated for its time if it fits.  What the layout says itself stays.
 *
 * Weights, gradients and optimizer state that are kept from step to step are the same, however much
 * is recomputed or sliced.  Where these alone are too many, options with the same sharding and
 * offload are not compiled. */
#ifndef SK_PLAN_BUDGET_H
#define SK_PLAN_BUDGET_H

#include "plan/machine.h"
#include "program/program.h"

typedef struct sk_budget_in {
    const sk_graph *graph;
    const sk_layout *layout;
    const sk_compile_opts *opts;
    const sk_machine *machine;
    int64_t bytes; /* that a rank may use of its device */
    bool
        may_offload; /* the job can run with offloaded buffers, and the layout does not forbid it */
} sk_budget_in;

typedef struct sk_budget_option {
    sk_layout layout;
    int64_t bytes;  /* of the rank that needs the most */
    int64_t kept;   /* of these, what is kept from step to step */
    bool at_least;  /* not compiled: `bytes` is `kept` */
    double seconds; /* of a step, simulated; infinite: it does not fit */
} sk_budget_option;

/* All options, the fastest first, whether they fit or not; those that offload are among them only
 * if no other one fits. */
sk_status sk_budget_options(sk_arena *a, const sk_budget_in *in, sk_budget_option **out, int *n);
/* The option that needs the fewest bytes; compiles what may be that one. */
sk_status sk_budget_least(const sk_budget_in *in, sk_budget_option *v, int n,
                          const sk_budget_option **least);

#endif
