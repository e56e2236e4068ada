/* sign.c - signs, and the mean magnitude of 256 elements in bf16 (Karimireddy et al. 2019).
 * 34 bytes for 256 elements, which become +mean or -mean; 0 becomes +mean.
 *
 * The mean is summed in the order in which a warp of a GPU sums it: 32 sums of pairs, then a tree.
 */
#include "coll/codec.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256, LANES = 32, NONE = 0x7fc0 /* no number */ };

static float mean(const float *x, int n)
{
    float sum[LANES] = {0}, by = 1 / (float)n;
    for (int i = 0; i < n; i++) {
        float *s = &sum[i / 2 % LANES];
        *s = fmaf(fabsf(x[i]), by, *s);
    }
    for (int step = LANES / 2; step > 0; step /= 2)
        for (int i = 0; i < step; i++) sum[i] += sum[i + step];
    return sum[0];
}

static void encode(const float *x, int n, uint8_t *to)
{
    float m = mean(x, n);
    uint16_t scale = isfinite(m) ? sk_to_bf16(m) : NONE;
    memcpy(to, &scale, sizeof scale);
    memset(to + SK_SCALE_BYTES, 0, (size_t)(n + 7) / 8);
    for (int i = 0; i < n; i++)
        to[SK_SCALE_BYTES + i / 8] |= (uint8_t)((x[i] < 0 ? 1 : 0) << i % 8);
}

/* A sign is moved to where a float has it: signs of gradients follow no pattern, and a branch for
 * each was half the time of a training step. */
static void decode(const uint8_t *from, int n, float *to)
{
    float scale = sk_scale_get(from);
    uint32_t bits, one;
    memcpy(&bits, &scale, sizeof bits);
    from += SK_SCALE_BYTES;
    for (int i = 0; i < n; i++) {
        one = bits ^ (uint32_t)(from[i / 8] >> i % 8 & 1) << 31;
        memcpy(&to[i], &one, sizeof one);
    }
}

const sk_codec sk_codec_sign = {
    .name = "sign",
    .doc = "signs, the mean magnitude of 256 elements: 0.133 bytes an element",
    .block = BLOCK,
    .head = SK_SCALE_BYTES,
    .bits = 1,
    .encode = encode,
    .decode = decode,
    .sums_only = true,
    .needs_feedback = true};
