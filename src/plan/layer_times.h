/* layer_times.h - how long each layer takes on the rank that has it, from a simulated step.
 *
 * Of a micro-batch, forward and backward with all that is recomputed: instructions of its tasks,
 * and bytes under way that the rank waits for (tensor parallelism, gathered weights).  Messages
 * between stages, and waiting for other ranks, belong to no layer. */
#ifndef SK_PLAN_LAYER_TIMES_H
#define SK_PLAN_LAYER_TIMES_H

#include "plan/simulator.h"

/* seconds[graph.n_layers], of a simulation with .trace; of ranks with the same layer the slowest.
 */
void sk_layer_times(const sk_simulation *sim, double *seconds);

#endif
