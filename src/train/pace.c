/* pace.c - when to save a checkpoint, by the clock. */
#include "train/pace.h"

#include <math.h>

double sk_pace_next(const sk_pace *p)
{
    if (p->every <= 0) return INFINITY;
    return fmax(p->last + p->every, p->began + (p->spent + p->stall) / SK_PACE_COST);
}

void sk_pace_saved(sk_pace *p, double now, double stall)
{
    p->last = now;
    p->stall = stall;
    p->spent += stall;
}
