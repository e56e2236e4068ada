/* fp8.c - floats of 8 bits (e4m3: 4 of exponent, 3 of fraction, up to 448) with a scale for 128 of
 * them.  130 bytes for 128 elements; what is lost is 1/16 of an element at most, and of those
 * below 1/28672 of the largest of a block half as much as that. */
#include "coll/codec.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 128, BIAS = 7, TOP = 0x7e, FRACTION = 3 };
static const float most = 448, least = 0x1p-6F; /* least with all bits of its fraction */

static uint8_t to_fp8(float x)
{
    uint32_t u, sign;
    memcpy(&u, &x, sizeof u);
    sign = u >> 24 & 0x80;
    x = fabsf(x);
    if (x < least) return (uint8_t)(sign | (uint32_t)(x * 0x1p9F + 0.5F));
    u &= 0x7fffffff;
    u += (1u << (22 - FRACTION)) - 1 + (u >> (23 - FRACTION) & 1); /* to nearest, ties to even */
    u = (u >> (23 - FRACTION)) - ((127 - BIAS) << FRACTION);
    return (uint8_t)(sign | (u > TOP ? TOP : u));
}

static float from_fp8(uint8_t q)
{
    uint32_t u = q & 0x7f, sign = (uint32_t)(q & 0x80) << 24;
    float x;
    if (u < 1 << FRACTION) {
        x = (float)u * 0x1p-9F;
        return sign ? -x : x;
    }
    u = sign | (u + ((127 - BIAS) << FRACTION)) << (23 - FRACTION);
    memcpy(&x, &u, sizeof x);
    return x;
}

static void encode(const float *x, int n, uint8_t *to)
{
    float by = sk_scale_put(x, n, most, to);
    for (int i = 0; i < n; i++) to[SK_SCALE_BYTES + i] = by == 0 ? 0 : to_fp8(x[i] * by);
}

static void decode(const uint8_t *from, int n, float *to)
{
    float scale = sk_scale_get(from);
    for (int i = 0; i < n; i++) to[i] = scale * from_fp8(from[SK_SCALE_BYTES + i]);
}

const sk_codec sk_codec_fp8 = {.name = "fp8",
                               .doc = "e4m3, a scale for 128 elements: 1.016 bytes an element",
                               .block = BLOCK,
                               .head = SK_SCALE_BYTES,
                               .bits = 8,
                               .encode = encode,
                               .decode = decode,
                               .encode_flops = 100,
                               .decode_flops = 55};
