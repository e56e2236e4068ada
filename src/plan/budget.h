/* budget.h - what fits into so many bytes a rank: recomputation and sharding, chosen before the
 * start.
 *
 * A job with a budget gets the fastest of all ways that fit: every level of sharding from the
 * layout's own on, with nothing made again, the core of attention, the first 1, 2, 4 ... blocks of
 * each stage, or all, and with wide results whole, in 4 slices or in 16.  If none fits, optimizer
 * state, gradients, activations and weights are offloaded to the host, one after the other, with
 * nothing or all made again and wide results whole or in 16 slices.  Each way is compiled, so
 * its bytes are those that a run maps, and walked on paper for its time.  What the layout says
 * itself is not taken back. */
#ifndef SK_PLAN_BUDGET_H
#define SK_PLAN_BUDGET_H

#include "plan/machine.h"
#include "train/setup.h"

typedef struct sk_way {
    sk_layout layout;
    int64_t bytes;  /* of the fullest rank */
    double seconds; /* of a step, on paper */
} sk_way;

/* All ways to run the job of a setup that has a layout and a graph, the fastest first; those that
 * offload are among them only if no other one fits into `bytes`. */
sk_status sk_budget_ways(sk_setup *s, const sk_machine *m, int64_t bytes, sk_way **ways, int *n);
/* Takes the first that fits into job->budget for its layout; a story if none does. */
sk_status sk_budget_choose(sk_setup *s);

#endif
