/* int8.c - whole numbers of 8 bits with a scale for 256 of them (Wang et al. 2023, qwZ).
 * 258 bytes for 256 elements; what is lost is half a step: 1/254 of the largest of a block, or
 * a little more since the scale is rounded up to bf16. */
#include "coll/codec.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256, MOST = 127 };

static void encode(const float *x, int n, uint8_t *to)
{
    float by = sk_scale_put(x, n, MOST, to);
    int8_t *q = (int8_t *)to + SK_SCALE_BYTES;
    if (by == 0) {
        memset(q, 0, (size_t)n);
        return;
    }
#pragma omp simd
    for (int i = 0; i < n; i++) q[i] = (int8_t)(int)fmaf(x[i], by, copysignf(0.5F, x[i]));
}

static void decode(const uint8_t *from, int n, float *to)
{
    float scale = sk_scale_get(from);
    const int8_t *q = (const int8_t *)from + SK_SCALE_BYTES;
#pragma omp simd
    for (int i = 0; i < n; i++) to[i] = scale * (float)q[i];
}

const sk_codec sk_codec_int8 = {.name = "int8",
                                .doc = "8 bits, a scale for 256 elements: 1.008 bytes an element",
                                .block = BLOCK,
                                .head = SK_SCALE_BYTES,
                                .bits = 8,
                                .encode = encode,
                                .decode = decode,
                                .encode_flops = 55,
                                .decode_flops = 18};
