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
    int i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES)
        for (int s = 0; s < LANES; s++) {
            sum[s] = fmaf(fabsf(x[i + 2 * s]), by, sum[s]);
            sum[s] = fmaf(fabsf(x[i + 2 * s + 1]), by, sum[s]);
        }
    for (; i < n; i++) {
        float *s = &sum[i / 2 % LANES];
        *s = fmaf(fabsf(x[i]), by, *s);
    }
    for (int step = LANES / 2; step > 0; step /= 2)
        for (int s = 0; s < step; s++) sum[s] += sum[s + step];
    return sum[0];
}

/* The lowest bits of eight bytes, that of the first one lowest: each product of a byte with a bit
 * of the factor that lands in the upper byte is one of them. */
static uint8_t gather(const uint8_t *bit)
{
    const uint64_t factor = 0x0102040810204080U;
    uint64_t all = 0;
    for (int k = 0; k < 8; k++) all |= (uint64_t)bit[k] << 8 * k;
    return (uint8_t)(all * factor >> 56);
}

static void encode(const float *x, int n, uint8_t *to)
{
    uint8_t negative[BLOCK] = {0};
    float m = mean(x, n);
    uint16_t scale = isfinite(m) ? sk_to_bf16(m) : NONE;
    memcpy(to, &scale, sizeof scale);
    for (int i = 0; i < n; i++) negative[i] = x[i] < 0;
    for (int i = 0; i < n; i += 8) to[SK_SCALE_BYTES + i / 8] = gather(negative + i);
}

/* A sign is moved to where a float has it: signs of gradients follow no pattern, and a branch for
 * each was half the time of a training step. */
static inline float signed_by(uint32_t scale, uint32_t negative)
{
    float x;
    scale ^= negative << 31;
    memcpy(&x, &scale, sizeof x);
    return x;
}

static void decode(const uint8_t *from, int n, float *to)
{
    float scale = sk_scale_get(from);
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    from += SK_SCALE_BYTES;
    int whole = n / 8;
    for (int b = 0; b < whole; b++)
        for (int k = 0; k < 8; k++) to[8 * b + k] = signed_by(bits, (uint32_t)from[b] >> k & 1);
    for (int i = 8 * whole; i < n; i++) to[i] = signed_by(bits, (uint32_t)from[i / 8] >> i % 8 & 1);
}

const sk_codec sk_codec_sign = {
    .name = "sign",
    .also = "signsgd sign_sgd ef_signsgd efsignsgd signum",
    .doc = "signs, the mean magnitude of 256 elements: 0.133 bytes an element",
    .block = BLOCK,
    .head = SK_SCALE_BYTES,
    .bits = 1,
    .encode = encode,
    .decode = decode,
    .encode_flops = 100,
    .decode_flops = 22,
    .sums_only = true,
    .needs_feedback = true};
