/* crew.h - a few ranks as processes for a short while: benchmarks.
 *
 * Training has its own launcher with a console, signals and saving (train/launch.h);
 * this one only forks, waits, and brings back the one story of a failure.  Ranks
 * talk to the caller through the heaps and their extra memory. */
#ifndef SK_PLAN_WORKERS_H
#define SK_PLAN_WORKERS_H

#include "comm/comm.h"

typedef sk_status sk_worker_task(void *ctx, int rank);

/* Heaps must be shared ones.  Returns when all ranks are over. */
sk_status sk_workers_run(sk_heaps *h, int n_ranks, sk_worker_task *task, void *ctx);

/* This process stays on one core: the place-th of those it may use, counted round. */
void sk_worker_pin(int place);

#endif
