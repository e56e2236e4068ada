/* average.h - weights of a running average: `old` for what there was, `fresh` for what comes.
 *
 * attr: beta, mode, first, interval.  t counts the averages so far, this one too; before the first
 * one (t below 1) nothing changes.
 *
 *     0 plain       beta old + (1 - beta) new
 *     1 unbiased    the same with Adam's correction, of what is read and of what is written:
 *                   b = beta (1 - beta^(t-1)) / (1 - beta^t); beta 1: the mean of all
 *     2 decreasing  b = 1 - t^(-beta): Adafactor
 *     3 sum         old + new: Adagrad, the first Shampoo */
#ifndef SK_KERNEL_AVERAGE_H
#define SK_KERNEL_AVERAGE_H

#include "kernel/args.h"

#include <math.h>

enum { SK_AVERAGE_PLAIN, SK_AVERAGE_UNBIASED, SK_AVERAGE_DECREASING, SK_AVERAGE_SUM };

typedef struct sk_average {
    float old, fresh;
} sk_average;

/* t, if there is one in every `interval`-th update from update `first` on. */
SK_BOTH double sk_average_count(int64_t updates, double first, double interval)
{
    return floor(((double)updates - first) / (interval > 1 ? interval : 1)) + 1;
}

SK_BOTH sk_average sk_average_of(double beta, int mode, double t)
{
    sk_average same = {1, 0}, sum = {1, 1}, out;
    double b = beta;
    if (t < 1) return same;
    if (mode == SK_AVERAGE_SUM) return sum;
    if (mode == SK_AVERAGE_UNBIASED && beta < 1)
        b = beta * (1 - pow(beta, t - 1)) / (1 - pow(beta, t));
    else if (mode == SK_AVERAGE_UNBIASED) b = (t - 1) / t;
    else if (mode == SK_AVERAGE_DECREASING) b = 1 - pow(t, -beta);
    out.old = (float)b;
    out.fresh = (float)(1 - b);
    return out;
}

/* A weight of 0 takes nothing, of NaN neither.  Which product is fused with the sum is said here: a
 * compiler that chose would choose otherwise at the end of a vector loop. */
SK_BOTH real sk_average_one(sk_average w, real old, real fresh)
{
    if (w.fresh == 0) return old;
    if (w.old == 0) return w.fresh * fresh;
    if (sizeof(real) == sizeof(double)) return (real)fma(w.old, old, w.fresh * fresh);
    return (real)fmaf(w.old, (float)old, w.fresh * (float)fresh);
}

#endif
