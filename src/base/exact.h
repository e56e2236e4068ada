/* exact.h - sums of squares of floats without any rounding, so that no order can change them.
 *
 * The square of a float is an integer of 48 bits times a power of two between 2^-298 and 2^208.
 * An accumulator is one wide integer in units of 2^-298: digits of 32 bits in limbs of 64, and the
 * last digit takes all that is above.  The upper half of a limb is head room: 2^20 accumulators
 * and more may be added limb by limb, without carries, as an all-reduce of int64 adds them.
 * Two limbs more count infinities and NaNs.
 *
 *     sk_exact norm = {0};
 *     sk_exact_add_squares(&norm, grad, n);      on every rank, any share of the elements
 *     sum norm.limb[0 .. SK_EXACT_LIMBS) over the ranks as 64-bit integers
 *     double squares = sk_exact_value(&norm);    the same bits for every way of sharing out
 *
 * Limits: 2^62 elements in all.  0.6 to 1.0 ns an element on one core of 2023, from cache. */
#ifndef SK_BASE_EXACT_H
#define SK_BASE_EXACT_H

#include <stdint.h>

enum {
    SK_EXACT_DIGITS = 19, /* 18 times 32 bits hold a square of any float */
    SK_EXACT_INF = SK_EXACT_DIGITS,
    SK_EXACT_NAN,
    SK_EXACT_LIMBS
};

typedef struct sk_exact {
    int64_t limb[SK_EXACT_LIMBS]; /* never negative; all 0 is an empty sum */
} sk_exact;

void sk_exact_add_squares(sk_exact *acc, const float *x, int64_t n);
void sk_exact_merge(sk_exact *acc, const sk_exact *other);

/* The sum, rounded once, to nearest and even; NaN if there was one, infinity if there was one. */
double sk_exact_value(const sk_exact *acc);

#endif
