/* q4.c - whole numbers of 4 bits, -7 to 7, with a scale for 128 of them, rounded up or down at
 * random so that the mean is right (QSGD, Alistarh et al. 2017).  66 bytes for 128 elements; what
 * is lost is up to a step, 1/7 of the largest of a block, and 0 on average.  The first half of a
 * block is in the low bits, the second in the high ones. */
#include "coll/codec.h"

#include <string.h>

enum { BLOCK = 128, MOST = 7, BIAS = 8 };

static void encode(const float *x, int n, const uint16_t *random, uint8_t *to)
{
    float by = sk_scale_put(x, n, MOST, to);
    uint8_t q[BLOCK];
    int half = (n + 1) / 2;
    memset(q, BIAS, sizeof q);
    for (int i = 0; by != 0 && i < n; i++)
        q[i] = (uint8_t)(sk_quantum(x[i], by, random[i], MOST) + BIAS);
    for (int i = 0; i < half; i++)
        to[SK_SCALE_BYTES + i] = (uint8_t)(q[i] | (half + i < n ? q[half + i] : BIAS) << 4);
}

static void decode(const uint8_t *from, int n, float *to)
{
    float scale = sk_scale_get(from);
    int half = (n + 1) / 2;
    from += SK_SCALE_BYTES;
    for (int i = 0; i < half; i++) to[i] = scale * (float)((from[i] & 15) - BIAS);
    for (int i = half; i < n; i++) to[i] = scale * (float)((from[i - half] >> 4) - BIAS);
}

const sk_codec sk_codec_q4 = {
    .name = "q4",
    .also = "qsgd",
    .doc = "4 bits rounded at random, a scale for 128 elements: 0.516 bytes an element",
    .block = BLOCK,
    .head = SK_SCALE_BYTES,
    .bits = 4,
    .encode_random = encode,
    .decode = decode,
    .encode_flops = 200,
    .decode_flops = 20,
    .sums_only = true};
