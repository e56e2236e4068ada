/* clock.h - seconds that never go back; and those in which this thread, or all of the
 * process, really ran. */
#ifndef SK_BASE_CLOCK_H
#define SK_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline double sk_clock(clockid_t which)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline double sk_now(void) { return sk_clock(CLOCK_MONOTONIC); }
static inline double sk_worked(void) { return sk_clock(CLOCK_THREAD_CPUTIME_ID); }
static inline double sk_worked_all(void) { return sk_clock(CLOCK_PROCESS_CPUTIME_ID); }

#endif
