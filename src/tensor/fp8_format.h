/* fp8_format.h - floats of 8 bits, and the scale that a tensor has in them.
 *
 *     e4m3   4 bits of exponent, 3 of fraction, up to 448: weights and what flows forward
 *     e5m2   5 and 2, up to 57344: gradients, whose sizes lie further apart
 *
 * A tensor is stored as x8 = round(x up) and read as x8 down, where up = most / amax and
 * down = amax / most: its largest element is the largest there is.  All of it is in f32, whatever
 * `real` is, so that a GPU rounds every element as the CPU does. */
#ifndef SK_TENSOR_FP8_FORMAT_H
#define SK_TENSOR_FP8_FORMAT_H

#include "base/rng.h" /* SK_BOTH */

#include <math.h>
#include <stdbool.h>
#include <string.h>

typedef struct sk_fp8_scale {
    float up, down;
} sk_fp8_scale;

SK_BOTH float sk_fp8_most(bool e5m2) { return e5m2 ? 57344.0F : 448.0F; }

/* amax: the largest magnitude.  From 2^-100 down it stays there: zeros have a scale too.  Where it
 * is infinite, all elements become NaN: a step that overflows must show. */
SK_BOTH sk_fp8_scale sk_fp8_scale_of(float amax, bool e5m2)
{
    const float least = 7.8886090522101181e-31F; /* 2^-100 */
    float most = sk_fp8_most(e5m2);
    sk_fp8_scale s;
    if (amax < least) amax = least;
    s.up = most / amax;
    s.down = amax / most;
    return s;
}

/* The nearest that 8 bits have, of two the even one; beyond the largest, the largest.  NaN stays.
 */
static inline float sk_fp8_round(float x, bool e5m2)
{
    uint32_t bits = e5m2 ? 2 : 3, least = e5m2 ? 127 - 14 : 127 - 6, u, e;
    float a = fabsf(x), most = sk_fp8_most(e5m2), step, per;
    if (a != a) return x;
    if (a >= most) return copysignf(most, x);
    memcpy(&u, &a, sizeof u);
    e = u >> 23 < least ? least : u >> 23;
    u = (e - bits) << 23; /* 2^(exponent - bits): between neighbours */
    memcpy(&step, &u, sizeof step);
    u = (254 - (e - bits)) << 23;
    memcpy(&per, &u, sizeof per);
    return copysignf(rintf(a * per) * step, x);
}

#endif
