/* exact.c - see exact.h.
 *
 * Adding straight into the wide integer would cost a chain of carries per element.  Instead the
 * squares of the mantissas, 48 bits each, are added up in one 64-bit bin for each of the 256
 * exponents, which 2^16 elements cannot overflow; then the bins go to the limbs, once per block.
 * Neighbours mostly have like exponents, and an addition to memory waits for the one before it in
 * the same place: so neighbours go to WAYS sets of bins.
 * The value of a float with the bits (exponent e, mantissa m) is m 2^(e - 150), m with its hidden
 * bit, and e = 0 means 1 without the hidden bit; hence the square of m counts
 * 2^(2e - 2) units of 2^-298. */
#include "base/exact.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { BINS = 256, WAYS = 4, ROW = 64, BLOCK = 1 << 16, FEW = 128 };

typedef struct bins {
    uint64_t bin[BINS][WAYS];
} bins;

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline uint32_t exponent(uint32_t u) { return u >> 23 & 255u; }

static inline uint64_t square(uint32_t u)
{
    uint64_t m = (u & 0x7fffffu) | (uint32_t)(exponent(u) != 0) << 23;
    return m * m;
}

/* Infinities and NaNs of a block: no part of the sum. */
static void count_odd(sk_exact *acc, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i])) acc->limb[SK_EXACT_NAN]++;
        else if (isinf(x[i])) acc->limb[SK_EXACT_INF]++;
    }
}

/* Many squares of exponent e: 64 bits, moved by up to 30, lie over three digits. */
static void add_at(sk_exact *acc, uint32_t e, uint64_t squares)
{
    uint32_t place = e ? 2 * e - 2 : 0, move = place % 32;
    int64_t *limb = acc->limb + place / 32;
    uint64_t low = squares << move, high = move ? squares >> (64 - move) : 0;
    limb[0] += (int64_t)(uint32_t)low;
    limb[1] += (int64_t)(low >> 32);
    limb[2] += (int64_t)high;
}

/* Digits of 32 bits again. */
static void carry(sk_exact *acc)
{
    for (int k = 0; k + 1 < SK_EXACT_DIGITS; k++) {
        acc->limb[k + 1] += acc->limb[k] >> 32;
        acc->limb[k] = (int64_t)(uint32_t)acc->limb[k];
    }
}

/* Exponents and squares in vectors first; then only additions are left. */
static void fill_row(bins *b, const float *x)
{
    uint32_t e[ROW];
    uint64_t s[ROW];
#pragma omp simd
    for (int i = 0; i < ROW; i++) {
        uint32_t u = bits_of(x[i]);
        e[i] = exponent(u);
        s[i] = square(u);
    }
    for (int i = 0; i < ROW; i += WAYS)
        for (int k = 0; k < WAYS; k++) b->bin[e[i + k]][k] += s[i + k];
}

static void fill(bins *b, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + ROW <= n; i += ROW) fill_row(b, x + i);
    for (; i < n; i++) b->bin[exponent(bits_of(x[i]))][i % WAYS] += square(bits_of(x[i]));
}

static void empty(const bins *b, sk_exact *acc)
{
    for (uint32_t e = 0; e < BINS - 1; e++) {
        uint64_t sum = 0;
        for (int k = 0; k < WAYS; k++) sum += b->bin[e][k];
        if (sum) add_at(acc, e, sum);
    }
}

/* A few: straight to the limbs. */
static void add_few(sk_exact *acc, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = bits_of(x[i]);
        if (exponent(u) == BINS - 1) count_odd(acc, x + i, 1);
        else add_at(acc, exponent(u), square(u));
    }
}

static void add_block(sk_exact *acc, const float *x, int64_t n)
{
    bins b = {0};
    uint64_t odd = 0;
    fill(&b, x, n);
    empty(&b, acc);
    for (int k = 0; k < WAYS; k++) odd |= b.bin[BINS - 1][k];
    if (odd) count_odd(acc, x, n);
}

void sk_exact_add_squares(sk_exact *acc, const float *x, int64_t n)
{
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t len = n - at < BLOCK ? n - at : BLOCK;
        if (len <= FEW) add_few(acc, x + at, len);
        else add_block(acc, x + at, len);
        carry(acc);
    }
}

void sk_exact_merge(sk_exact *acc, const sk_exact *other)
{
    for (int k = 0; k < SK_EXACT_LIMBS; k++) acc->limb[k] += other->limb[k];
    carry(acc);
}

/* Bits [from, from + 32) of the number, zeros below its first. */
static uint64_t digit(const uint32_t *d, int from)
{
    int k = from / 32, move = from % 32;
    uint64_t low = d[k], high = d[k + 1];
    return (uint32_t)((high << 32 | low) >> move);
}

/* Its top 64 bits, the last of which also stands for all below, are rounded by the conversion. */
static double rounded(const uint32_t *d, int top)
{
    int from = top - 63 > 0 ? top - 63 : 0;
    uint64_t high = digit(d, from) | digit(d, from + 32) << 32;
    for (int k = 0; k < from; k += 32) {
        uint32_t mask = from - k < 32 ? (1u << (from - k)) - 1 : UINT32_MAX;
        high |= (d[k / 32] & mask) != 0;
    }
    return ldexp((double)high, from - 298);
}

double sk_exact_value(const sk_exact *acc)
{
    sk_exact a = *acc;
    uint32_t d[SK_EXACT_DIGITS + 4] = {0}; /* zeros on top, for windows that reach over it */
    int top = -1;
    if (a.limb[SK_EXACT_NAN]) return NAN;
    if (a.limb[SK_EXACT_INF]) return INFINITY;
    carry(&a);
    for (int k = 0; k < SK_EXACT_DIGITS; k++) d[k] = (uint32_t)a.limb[k];
    d[SK_EXACT_DIGITS] = (uint32_t)(a.limb[SK_EXACT_DIGITS - 1] >> 32);
    for (int k = 0; k < 32 * (SK_EXACT_DIGITS + 1); k++)
        if (d[k / 32] >> k % 32 & 1) top = k;
    return top < 0 ? 0 : rounded(d, top);
}
