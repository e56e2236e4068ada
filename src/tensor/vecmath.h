/* vecmath.h - exp and tanh that the compiler can vectorise.
 *
 * Branch-free polynomials in plain C: gcc and clang turn a loop around them into
 * AVX2 code.  sk_exp is within 2 ulp over [-87, 88], 0 below and infinity above; the limits are
 * put on the result because gcc carries a limit on x through the whole formula as a second,
 * constant copy of it, whose denormal quotients cost 150 cycles each.  In the
 * float64 build they are libm's. */
#ifndef SK_TENSOR_VECMATH_H
#define SK_TENSOR_VECMATH_H

#include "tensor/dtype.h"

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

/* tanh(x) = 1 - 2 / (exp(2x) + 1): absolute error of a few ulp of 1 */
static inline real sk_tanh(real x) { return 1 - 2 / (sk_exp(2 * x) + 1); }

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

#endif
