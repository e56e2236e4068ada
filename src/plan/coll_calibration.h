/* coll_calibration.h - the numbers of coll/choose.h, measured on this host.
 *
 * Ranks are processes (coll_timing.h).  Measured are: small calls in the heaps between two
 * ranks, between as many as there are cores, and between more than that; sums and
 * copies in the heaps, in cache and out of it, and where the cache ends; and step lists
 * played between two ranks, for alpha, beta and gamma.  A line a + S b is laid through each by
 * least squares of relative errors, so that small and large sizes count alike.
 *
 * Two things cannot be measured on one host: links to other hosts, and how alpha of
 * a message divides into way and work (`each`).  The first stays as preset (or as
 * the machine file says it), the second is taken as half of alpha. */
#ifndef SK_PLAN_COLL_CALIBRATION_H
#define SK_PLAN_COLL_CALIBRATION_H

#include "plan/machine.h"

/* In about `seconds` (20 is enough, 5 shows the way). */
sk_status sk_calibrate(sk_arena *a, double seconds, sk_costs *out);
/* `cpu` with these costs, for sk_machine_write(a, sk_machine_path(a), &m); flops and memory_rate
 * are still those of the preset. */
sk_status sk_calibrate_machine(sk_arena *a, const sk_costs *c, sk_machine *out);

/* The line a + size b through n points by least squares of relative errors; at least two sizes
 * must differ.  Neither comes out negative. */
void sk_fit_line(const double *size, const double *seconds, int n, double *a, double *b);

#endif
