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

#include "base/rng.h" /* SK_BOTH: what a GPU computes too */

#include <math.h>
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

#ifdef __cplusplus
extern "C" {
#endif

void sk_exact_add_squares(sk_exact *acc, const float *x, int64_t n);
void sk_exact_merge(sk_exact *acc, const sk_exact *other);

#ifdef __cplusplus
}
#endif

/* ---- the steps of it, which a GPU takes too */

/* Of a float's bits: its exponent, and the square of its mantissa. */
SK_BOTH uint32_t sk_exact_exponent(uint32_t u) { return u >> 23 & 255u; }

SK_BOTH uint64_t sk_exact_square(uint32_t u)
{
    uint64_t m = (u & 0x7fffffu) | (uint32_t)(sk_exact_exponent(u) != 0) << 23;
    return m * m;
}

/* Many squares of exponent e: 64 bits, moved by up to 30, lie over three digits. */
SK_BOTH void sk_exact_at(sk_exact *acc, uint32_t e, uint64_t squares)
{
    uint32_t place = e ? 2 * e - 2 : 0, move = place % 32;
    int64_t *limb = acc->limb + place / 32;
    uint64_t low = squares << move, high = move ? squares >> (64 - move) : 0;
    limb[0] += (int64_t)(uint32_t)low;
    limb[1] += (int64_t)(low >> 32);
    limb[2] += (int64_t)high;
}

/* Digits of 32 bits again. */
SK_BOTH void sk_exact_carry(sk_exact *acc)
{
    for (int k = 0; k + 1 < SK_EXACT_DIGITS; k++) {
        acc->limb[k + 1] += acc->limb[k] >> 32;
        acc->limb[k] = (int64_t)(uint32_t)acc->limb[k];
    }
}

/* Bits [from, from + 32) of the number, zeros below its first. */
SK_BOTH uint64_t sk_exact_digit(const uint32_t *d, int from)
{
    int k = from / 32, move = from % 32;
    uint64_t low = d[k], high = d[k + 1];
    return (uint32_t)((high << 32 | low) >> move);
}

/* Its top 64 bits, the last of which also stands for all below, are rounded by the conversion. */
SK_BOTH double sk_exact_rounded(const uint32_t *d, int top)
{
    int from = top - 63 > 0 ? top - 63 : 0;
    uint64_t high = sk_exact_digit(d, from) | sk_exact_digit(d, from + 32) << 32;
    for (int k = 0; k < from; k += 32) {
        uint32_t mask = from - k < 32 ? (1u << (from - k)) - 1 : UINT32_MAX;
        high |= (d[k / 32] & mask) != 0;
    }
    return ldexp((double)high, from - 298);
}

/* The sum, rounded once, to nearest and even; NaN if there was one, infinity if there was one. */
SK_BOTH double sk_exact_value(const sk_exact *acc)
{
    sk_exact a = *acc;
    uint32_t d[SK_EXACT_DIGITS + 4] = {0}; /* zeros on top, for windows that reach over it */
    int top = -1;
    if (a.limb[SK_EXACT_NAN]) return NAN;
    if (a.limb[SK_EXACT_INF]) return INFINITY;
    sk_exact_carry(&a);
    for (int k = 0; k < SK_EXACT_DIGITS; k++) d[k] = (uint32_t)a.limb[k];
    d[SK_EXACT_DIGITS] = (uint32_t)(a.limb[SK_EXACT_DIGITS - 1] >> 32);
    for (int k = 0; k < 32 * (SK_EXACT_DIGITS + 1); k++)
        if (d[k / 32] >> k % 32 & 1) top = k;
    return top < 0 ? 0 : sk_exact_rounded(d, top);
}

#endif
