/* q8_format.h - optimizer state in 8 bits (Dettmers et al. 2022, "8-bit Optimizers via Block-wise
 * Quantization").
 *
 * A shard is cut into blocks of 256 elements.  A block has one f32 scale, its element of largest
 * magnitude, and a byte for each element: its place in a fixed map of 256 numbers from -1 to 1, or
 * from 0 to 1 for states that are never negative.  The map is the paper's dynamic tree: seven
 * decades from 1e-7 to 1, each with twice as many numbers as the one below, so that both the
 * largest and very small elements of a block are resolved.
 *
 *     decade         1e-6   1e-5   1e-4   1e-3   1e-2   1e-1   1
 *     signed            1      2      4      8     16     32   64      numbers of either sign
 *     unsigned          2      4      8     16     32     64   128
 *
 * Both have 0 and 1 in addition.  The largest element is always 1: the scale has its sign, so -1 is
 * never needed.  Elements are rounded to the nearest number; only, an element over 0 of an unsigned
 * block never becomes 0, since what Adam divides by must not vanish.  Rounding twice changes
 * nothing: the decoded numbers of a block have the same scale and the same codes, so a checkpoint
 * may hold decoded numbers.  A block with an element that is not finite is all NaN; one whose
 * largest magnitude is below the smallest normal f32 is all zeros.
 *
 * In memory: the scales of all blocks, then n bytes.  Zeros are zero bytes. */
#ifndef SK_TENSOR_Q8_FORMAT_H
#define SK_TENSOR_Q8_FORMAT_H

#include "base/rng.h" /* SK_BOTH */

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SK_Q8_BLOCK = 256,  /* elements with one scale */
    SK_Q8_LEAST = 4096, /* logical tensors with fewer elements stay f32 */
    SK_Q8_ONE_SIGNED = 128,
    SK_Q8_ONE_UNSIGNED = 255, /* codes of 1 */
};

typedef enum sk_q8 { SK_Q8_NONE, SK_Q8_SIGNED, SK_Q8_UNSIGNED } sk_q8;

SK_BOTH int64_t sk_q8_blocks(int64_t n) { return (n + SK_Q8_BLOCK - 1) / SK_Q8_BLOCK; }
/* Of a shard of n elements: n + 4 ceil(n / 256). */
SK_BOTH int64_t sk_q8_bytes(int64_t n) { return n + 4 * sk_q8_blocks(n); }

/* The k-th magnitude of a map, counted from 0; the last is 1 (SK_Q8_ONE_*).  One exact quotient of
 * integers, so that all compilers and devices have the same bits. */
SK_BOTH float sk_q8_magnitude(sk_q8 map, int k)
{
    int bottom = map == SK_Q8_SIGNED ? 1 : 2, n = bottom;
    double below = 20e6;
    if (!k) return 0;
    if (k == (map == SK_Q8_SIGNED ? SK_Q8_ONE_SIGNED : SK_Q8_ONE_UNSIGNED)) return 1;
    k += bottom - 1; /* in a decade of n numbers, k is n to 2 n - 1 */
    for (; k >= 2 * n; n *= 2) below /= 10;
    return (float)((double)(2 * n + 18 * (k - n) + 9) / (below * n));
}

/* Between magnitude k and the next. */
SK_BOTH float sk_q8_middle(const float *magnitude, int k)
{
    return 0.5F * (magnitude[k] + magnitude[k + 1]);
}

/* The number of the magnitude that is nearest to `a`, of two the smaller; `most`: the last that may
 * be taken. */
SK_BOTH int sk_q8_nearest(const float *magnitude, int most, float a)
{
    int k = 0;
    for (int step = 128; step; step /= 2) {
        int next = k + step;
        if (next <= most && a > sk_q8_middle(magnitude, next - 1)) k = next;
    }
    return k;
}

/* An element over its block's scale.  The tree may be anywhere, as in shared memory of a GPU. */
SK_BOTH uint8_t sk_q8_code(sk_q8 map, const float *magnitude, float x)
{
    if (map == SK_Q8_UNSIGNED) {
        int k = sk_q8_nearest(magnitude, SK_Q8_ONE_UNSIGNED, x);
        return (uint8_t)(k || !(x > 0) ? k : 1);
    }
    int k = sk_q8_nearest(magnitude, SK_Q8_ONE_SIGNED - (x < 0), x < 0 ? -x : x);
    return (uint8_t)(x < 0 ? -k : k);
}

SK_BOTH float sk_q8_number(sk_q8 map, const float *magnitude, uint8_t code)
{
    if (map == SK_Q8_UNSIGNED || code <= SK_Q8_ONE_SIGNED) return magnitude[code];
    return -magnitude[256 - code];
}

/* The scale of a block, from its largest and smallest elements, both with 0 among them, and a sum
 * of 0 * x, which is NaN if some are not finite. */
SK_BOTH float sk_q8_scale(float high, float low, float zero)
{
    float scale = high >= -low ? high : low;
    bool tiny = scale < 1.17549435e-38F && scale > -1.17549435e-38F;
    return zero == 0 ? (tiny ? 0 : scale) : zero;
}

/* Elements [from, from + n) of a shard of `all` elements; from is a multiple of SK_Q8_BLOCK, and n
 * too unless they end the shard. */
void sk_q8_encode(sk_q8 map, void *shard, int64_t all, int64_t from, const float *x, int64_t n);
/* The same elements; from and n are any. */
void sk_q8_decode(sk_q8 map, const void *shard, int64_t all, int64_t from, float *x, int64_t n);

#ifdef __cplusplus
}
#endif

#endif
