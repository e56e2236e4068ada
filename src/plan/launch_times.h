/* launch_times.h - what each launch of a program takes on this machine, in training steps.
 *
 * A worker runs the program of the only rank: first without a trace, then with one.  Times of
 * launches are those of a step whose every launch is timed; on a GPU by its own clock, between
 * marks in its stream, on a processor by the clock of the thread, which does not count what other
 * processes do.  Medians over the steps. */
#ifndef SK_PLAN_LAUNCH_TIMES_H
#define SK_PLAN_LAUNCH_TIMES_H

#include "run/run.h"

typedef struct sk_launch_times {
    double *seconds;      /* by instruction; where it is part of another launch: 0 */
    double plain, traced; /* seconds of a step without marks and with them, by the host's clock */
    double outside;       /* seconds of a traced step before its first launch and after the last */
    int steps;            /* that were timed, of each */
    sk_device_facts device; /* of a GPU */
} sk_launch_times;

/* In about `seconds`, and at least three steps of each.  p is the program of one rank alone. */
sk_status sk_time_launches(sk_arena *a, const sk_program *p, const sk_run_opts *o, double lr,
                           double seconds, sk_launch_times *out);
/* Seconds of a step after the device was idle, and behind `seconds` of work without a break: where
 * they differ the device lowers its clocks to keep to its power. */
sk_status sk_time_droop(const sk_program *p, const sk_run_opts *o, double lr, double seconds,
                        double *burst, double *sustained);

#endif
