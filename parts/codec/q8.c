/* q8.c - whole numbers of 8 bits with a scale for 256 of them, rounded up or down at random so that
 * the mean is right (QSGD, Alistarh et al. 2017).  258 bytes for 256 elements; what is lost is up
 * to a step, 1/127 of the largest of a block, and 0 on average. */
#include "coll/codec.h"

enum { BLOCK = 256, MOST = 127 };

static void encode(const float *x, int n, const uint16_t *random, uint8_t *to)
{
    float by = sk_scale_put(x, n, MOST, to);
    for (int i = 0; i < n; i++)
        to[SK_SCALE_BYTES + i] =
            (uint8_t)(int8_t)(by == 0 ? 0 : sk_quantum(x[i], by, random[i], MOST));
}

static void decode(const uint8_t *from, int n, float *to)
{
    float scale = sk_scale_get(from);
    const int8_t *q = (const int8_t *)from + SK_SCALE_BYTES;
    for (int i = 0; i < n; i++) to[i] = scale * (float)q[i];
}

const sk_codec sk_codec_q8 = {
    .name = "q8",
    .doc = "8 bits rounded at random, a scale for 256 elements: 1.008 bytes an element",
    .block = BLOCK,
    .head = SK_SCALE_BYTES,
    .bits = 8,
    .encode_random = encode,
    .decode = decode,
    .encode_flops = 175,
    .decode_flops = 20,
    .sums_only = true};
