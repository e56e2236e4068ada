/* step_jitter.h - steps in which ranks are not equally fast, drawn at random.
 *
 * `jitter: 0.02` in a machine's file: in each step the work of each rank takes exp(0.02 z) times as
 * long, z normal and of that rank and step alone: a median of 1.  `0.02,0.001@1.5`: and once in a
 * thousand steps of a rank 1.5 times that, so that there is a tail.  A class of n ranks
 * (rank_classes.h) gets the slowest of n such factors in one draw,
 *
 *     u^(1/n) = (1 - p) Phi(z) + p Phi(z - ln f / sigma)      u uniform
 *
 * which is exact where the ranks of a class wait for each other, and an upper bound where they
 * do not: stages of a pipeline then have slow ranks of different replicas. */
#ifndef SK_PLAN_STEP_JITTER_H
#define SK_PLAN_STEP_JITTER_H

#include "plan/simulator.h"

typedef struct sk_jitter_result {
    double median, p99, worst; /* seconds of a step */
} sk_jitter_result;

/* How much longer the slowest of n ranks takes, `rank` the first of them, in a step. */
double sk_jitter_slowest(const sk_jitter *j, uint64_t seed, int64_t step, int rank, int n);
/* As many steps as the machine's jitter says, each with factors of its own. */
sk_status sk_jitter_steps(sk_arena *a, const sk_simulate_in *in, uint64_t seed,
                          sk_jitter_result *out);

#endif
