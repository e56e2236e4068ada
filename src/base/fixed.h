/* fixed.h - a sum of numbers as two integers, which no order can change.
 *
 * One counts units of 2^-20, the other those of 2^-60, of which 2^40 are carried: numbers under
 * 2^40 are added to the nearest 2^-60.  What is larger, or no number, stays huge in every sum.
 * Integers of several ranks are added one by one, as an all-reduce of int64 does it; the value of
 * the sum is then the same, with or without carries. */
#ifndef SK_BASE_FIXED_H
#define SK_BASE_FIXED_H

#include "base/rng.h" /* SK_BOTH: what a GPU computes too */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct sk_fixed {
    int64_t high, low;
} sk_fixed;

#define SK_FIXED_HUGE ((int64_t)1 << 61)
#define SK_FIXED_UNIT ((int64_t)1 << 40)

SK_BOTH void sk_fixed_carry(sk_fixed *x)
{
    int64_t more = x->low >> 40; /* down, also below 0 */
    x->low -= more * SK_FIXED_UNIT;
    x->high += more;
}

SK_BOTH void sk_fixed_join(sk_fixed *to, sk_fixed x)
{
    bool huge = to->high >= SK_FIXED_HUGE || x.high >= SK_FIXED_HUGE;
    to->high = huge ? SK_FIXED_HUGE : to->high + x.high;
    to->low = huge ? 0 : to->low + x.low;
    sk_fixed_carry(to);
}

SK_BOTH void sk_fixed_add(sk_fixed *to, double x)
{
    double high = floor(ldexp(x, 20)), rest = x - ldexp(high, -20);
    if (!(fabs(high) < 0x1p61)) high = 0x1p61, rest = 0;
    sk_fixed_join(to, (sk_fixed){(int64_t)high, (int64_t)nearbyint(ldexp(rest, 60))});
}

SK_BOTH double sk_fixed_value(const sk_fixed *sum)
{
    sk_fixed x = *sum;
    sk_fixed_carry(&x);
    if (x.high >= SK_FIXED_HUGE || x.high < 0) return INFINITY;
    return ldexp((double)x.high, -20) + ldexp((double)x.low, -60);
}

#endif
