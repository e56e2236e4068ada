/* bench_choice.h - the algorithm that would be chosen, beside the fastest one by the clock. */
#ifndef SK_CLI_BENCH_CHOICE_H
#define SK_CLI_BENCH_CHOICE_H

#include "coll/choose.h"
#include "plan/coll_timing.h"

enum { SK_CHOICE_TURNS = 5 }; /* all points are timed so many times, one after the other */

typedef struct sk_choice_times {
    const sk_coll_spec *spec;   /* [n] points of a turn */
    const sk_coll_timing *time; /* [SK_CHOICE_TURNS * n] */
    int n;
    const int *host_of; /* NULL: one host */
    const sk_costs *costs;
    bool any_order; /* sums may be in an order of their own */
} sk_choice_times;

/* A row for each kind and size: the choice, the best of those that may be chosen without being
 * asked for, the fastest of all; then how far the choice is from the best. */
sk_status sk_choice_show(sk_arena *a, const sk_choice_times *t, const char *format);

#endif
