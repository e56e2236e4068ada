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

/* Infinities and NaNs of a block: no part of the sum. */
static void count_odd(sk_exact *acc, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i])) acc->limb[SK_EXACT_NAN]++;
        else if (isinf(x[i])) acc->limb[SK_EXACT_INF]++;
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
        e[i] = sk_exact_exponent(u);
        s[i] = sk_exact_square(u);
    }
    for (int i = 0; i < ROW; i += WAYS)
        for (int k = 0; k < WAYS; k++) b->bin[e[i + k]][k] += s[i + k];
}

static void fill(bins *b, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + ROW <= n; i += ROW) fill_row(b, x + i);
    for (; i < n; i++)
        b->bin[sk_exact_exponent(bits_of(x[i]))][i % WAYS] += sk_exact_square(bits_of(x[i]));
}

static void empty(const bins *b, sk_exact *acc)
{
    for (uint32_t e = 0; e < BINS - 1; e++) {
        uint64_t sum = 0;
        for (int k = 0; k < WAYS; k++) sum += b->bin[e][k];
        if (sum) sk_exact_at(acc, e, sum);
    }
}

/* A few: straight to the limbs. */
static void add_few(sk_exact *acc, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = bits_of(x[i]);
        if (sk_exact_exponent(u) == BINS - 1) count_odd(acc, x + i, 1);
        else sk_exact_at(acc, sk_exact_exponent(u), sk_exact_square(u));
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
        sk_exact_carry(acc);
    }
}

void sk_exact_merge(sk_exact *acc, const sk_exact *other)
{
    for (int k = 0; k < SK_EXACT_LIMBS; k++) acc->limb[k] += other->limb[k];
    sk_exact_carry(acc);
}
