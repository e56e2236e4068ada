/* call_times.h - what the collectives of a job take on this host, measured for a simulation.
 *
 * The calls of all programs, each kind, group size and number of bytes once, are timed between
 * processes of this host on data that were just written (coll_timing.h: fresh).  Where a kind has
 * very many sizes only a few are timed, from the least to the most; the others are interpolated. */
#ifndef SK_PLAN_CALL_TIMES_H
#define SK_PLAN_CALL_TIMES_H

#include "program/program.h"

typedef struct sk_timed_call {
    sk_coll_kind kind;
    int n; /* members */
    int64_t bytes;
    double seconds;
} sk_timed_call;

typedef struct sk_call_times {
    sk_timed_call *v; /* by kind, members and bytes */
    int n, cap;
} sk_call_times;

/* Times calls in shared memory; not those of very large groups, nor of very many bytes. */
sk_status sk_time_calls(sk_arena *a, const sk_program *const *programs, int n, sk_call_times *out);
/* Seconds, or -1: no such call was timed. */
double sk_call_seconds(const sk_call_times *t, sk_coll_kind kind, int n, int64_t bytes);

#endif
