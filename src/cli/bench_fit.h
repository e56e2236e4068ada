/* bench_fit.h - links of a machine fitted to timed collectives, by two models, with the error of
 * each.
 */
#ifndef SK_CLI_BENCH_FIT_H
#define SK_CLI_BENCH_FIT_H

#include "plan/coll_timing.h"
#include "plan/machine.h"

typedef struct sk_fit_times {
    const sk_coll_spec *spec;   /* [n]; lists that have a price, with `starts` */
    const sk_coll_timing *time; /* [n] */
    int n;
    bool between; /* every rank is on a host of its own; else all are on one */
} sk_fit_times;

/* A row for each point, what either model says of it, then its numbers.  Those of LogGP become the
 * machine's; sums (gamma) too, and how far off it is (m->doc).  Warns where that is far. */
sk_status sk_fit_show(sk_arena *a, const sk_fit_times *t, const char *format, sk_machine *m);

#endif
