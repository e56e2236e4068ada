/* workers.h - a few ranks as worker processes for a short while: for benchmarks.
 *
 * Training has its own launcher with a console, signals and saving (train/launch.h); this one only
 * forks, waits, and returns the error report of the first failure.  Workers give their results to
 * the caller in the heaps and their extra memory. */
#ifndef SK_PLAN_WORKERS_H
#define SK_PLAN_WORKERS_H

#include "comm/comm.h"

typedef sk_status sk_worker_task(void *ctx, int rank);

/* Heaps must be shared ones.  Returns when all ranks are over. */
sk_status sk_workers_run(sk_heaps *h, int n_ranks, sk_worker_task *task, void *ctx);

/* Binds this process to one core: the place-th, modulo their number, of those it may use. */
void sk_worker_pin(int place);

#endif
