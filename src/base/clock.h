/* clock.h - seconds that never go back. */
#ifndef SK_BASE_CLOCK_H
#define SK_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline double sk_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
