/* vecmath.h - exp, tanh and erfc that the compiler can vectorise, and sums in canonical order.
 *
 * Branch-free polynomials in plain C: gcc and clang turn a loop around them into
 * AVX2 code.  sk_exp is within 2 ulp over [-87, 88], 0 below and infinity above; the limits are
 * put on the result because gcc carries a limit on x through the whole formula as a second,
 * constant copy of it, whose denormal quotients cost 150 cycles each.  In the
 * float64 build they are libm's.
 *
 * A loop around them gives an element the same bits in its vectors and in what is left over behind
 * them: no sum here has two products that a compiler could fuse with it, one way here and the other
 * there.  test/op/canonical.c watches over it. */
#ifndef SK_KERNEL_VECMATH_H
#define SK_KERNEL_VECMATH_H

#include "tensor/dtype.h"
#include "base/reduction_blocks.h"

#include <math.h>

static inline float sk_expf(float x)
{
    float z = x * 1.44269504f + 12582912.0f, n = z - 12582912.0f; /* round to nearest */
    float r = x - n * 0.693145752f - n * 1.42860677e-6f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &z, sizeof bits);
    uint32_t scale = (bits - 0x4B400000u + 127u) << 23;
    float s;
    memcpy(&s, &scale, sizeof s);
    float y = p * s;
    y = x < -87.0f ? 0 : y;
    return x > 88.0f ? INFINITY : y;
}

static inline real sk_exp(real x)
{
    return sizeof(real) == 8 ? (real)exp((double)x) : (real)sk_expf((float)x);
}

/* tanh(x) = 1 - 2 / (exp(2x) + 1), and near 0, where that cancels, a polynomial (Cephes): relative
 * error of a few ulp. */
static inline float sk_tanhf(float x)
{
    float z = x * x, p = -5.70498872745e-3f, large = x < 0 ? -x : x;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    float near = p * z * x + x, far = 1 - 2 / (sk_expf(2 * large) + 1);
    far = x < 0 ? -far : far;
    return large < 0.625f ? near : far;
}

static inline real sk_tanh(real x)
{
    return sizeof(real) == 8 ? (real)tanh((double)x) : (real)sk_tanhf((float)x);
}

/* 1 - erf(x) for x >= 0, relative error of 1e-6 down to 1e-30 (a fit by Chebyshev polynomials,
 * Press et al., Numerical Recipes 6.2). */
static inline float sk_erfcf(float x)
{
    float t = 1 / (1 + 0.5f * x), p = 0.17087277f;
    p = p * t - 0.82215223f;
    p = p * t + 1.48851587f;
    p = p * t - 1.13520398f;
    p = p * t + 0.27886807f;
    p = p * t - 0.18628806f;
    p = p * t + 0.09678418f;
    p = p * t + 0.37409196f;
    p = p * t + 1.00002368f;
    p = p * t - 1.26551223f;
    return t * sk_expf(p - x * x);
}

static inline real sk_erfc(real x)
{
    return sizeof(real) == 8 ? (real)erfc((double)x) : (real)sk_erfcf((float)x);
}

/* The largest of n numbers, -infinity of none.  In lanes of our own: compilers do not reorder a
 * maximum of floats unasked. */
static inline real sk_largest(const real *x, int64_t n)
{
    enum { LANES = 16 };
    real lane[LANES], top = (real)-INFINITY;
    int64_t i = 0;
    for (int k = 0; k < LANES; k++) lane[k] = top;
    for (; i + LANES <= n; i += LANES)
#pragma omp simd
        for (int k = 0; k < LANES; k++) lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
    for (; i < n; i++) top = x[i] > top ? x[i] : top;
    for (int k = 0; k < LANES; k++) top = lane[k] > top ? lane[k] : top;
    return top;
}

/* v[0] = the sum of n numbers as a tree of pairs; n is a power of two. */
static inline void sk_sum_pairs(real *v, int n)
{
    for (int step = 1; step < n; step *= 2)
        for (int i = 0; i < n; i += 2 * step) v[i] += v[i + step];
}

/* Writes to y the sums over places [from, to) of a dim, of as many columns as it knows of. */
typedef void sk_sum_block(const void *how, int64_t from, int64_t to, real *y);

enum { SK_SUM_COLUMNS = 1024 }; /* at most; a few buffers of them lie in L1 */

/* n columns summed over a dim whose reduction blocks have these borders, in the order of
 * base/reduction_blocks.h. */
static inline void sk_sum_blocks(sk_sum_block *one, const void *how, const int64_t *border,
                                 int cells, real *y, int64_t n)
{
    if (cells == 1) {
        one(how, border[0], border[1], y);
        return;
    }
    real right[SK_SUM_COLUMNS];
    sk_sum_blocks(one, how, border, cells / 2, y, n);
    sk_sum_blocks(one, how, border + cells / 2, cells / 2, right, n);
    for (int64_t c = 0; c < n; c++) y[c] += right[c];
}

/* What a sum is put into: written, or added to with one rounding more. */
static inline void sk_sum_put(real *y, const real *sum, int64_t n, bool add)
{
    for (int64_t c = 0; c < n; c++) y[c] = add ? y[c] + sum[c] : sum[c];
}

#endif
