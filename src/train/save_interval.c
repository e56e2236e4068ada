/* save_interval.c - when to save a checkpoint, by the clock. */
#include "train/save_interval.h"
#include "base/status.h"

#include <math.h>

double sk_save_interval_next(const sk_save_interval *p)
{
    if (p->every <= 0) return INFINITY;
    return fmax(p->last + p->every, p->began + (p->spent + p->stall) / SK_SAVE_INTERVAL_COST);
}

void sk_save_interval_saved(sk_save_interval *p, double now, double stall)
{
    sk_assert(now >= p->began && stall >= 0);
    p->last = now;
    p->stall = stall;
    p->spent += stall;
}
