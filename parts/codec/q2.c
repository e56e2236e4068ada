/* q2.c - -1, 0 or 1 times a scale for 128 elements, at random so that the mean is right (TernGrad,
 * Wen et al. 2017).  34 bytes for 128 elements; what is lost is up to the largest of a block, and 0
 * on average.  Its square is on average x (largest - x), more than that of most x: with error
 * feedback it would grow from step to step. */
#include "coll/codec.h"

#include <string.h>

enum { BLOCK = 128, MOST = 1, BIAS = 1 };

static void encode(const float *x, int n, const uint16_t *random, uint8_t *to)
{
    float by = sk_scale_put(x, n, MOST, to);
    to += SK_SCALE_BYTES;
    memset(to, 0, (size_t)(n + 3) / 4);
    for (int i = 0; i < n; i++) {
        int q = by == 0 ? 0 : sk_quantum(x[i], by, random[i], MOST);
        to[i / 4] |= (uint8_t)((q + BIAS) << 2 * (i % 4));
    }
}

static void decode(const uint8_t *from, int n, float *to)
{
    float scale = sk_scale_get(from);
    from += SK_SCALE_BYTES;
    for (int i = 0; i < n; i++) to[i] = scale * (float)((from[i / 4] >> 2 * (i % 4) & 3) - BIAS);
}

const sk_codec sk_codec_q2 = {
    .name = "q2",
    .also = "terngrad",
    .doc = "-1, 0 or 1 at random, a scale for 128 elements: 0.266 bytes an element",
    .block = BLOCK,
    .head = SK_SCALE_BYTES,
    .bits = 2,
    .encode_random = encode,
    .decode = decode,
    .encode_flops = 350,
    .decode_flops = 90,
    .sums_only = true,
    .no_feedback = true};
