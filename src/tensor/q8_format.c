/* q8_format.c - shards in blocks of 8 bits, on the host.
 *
 * A search through the map takes 40 ns an element, most of it mispredicted branches; a table takes
 * 2 ns.  It has the code of the first f32 number of each bin, 128 bins to a power of two; at most
 * two of the middles between numbers lie in a bin, and are compared with. */
#include "tensor/q8_format.h"
#include "base/status.h"

#include <pthread.h>
#include <string.h>

enum {
    SHIFT = 16,                          /* bits of f32 that a bin does not see */
    LOWEST = (127 - 24) << (23 - SHIFT), /* the bin of 2^-24, where both maps still have 0 */
    BINS = (127 << (23 - SHIFT)) - LOWEST + 1
};

typedef struct tree {
    float magnitude[SK_Q8_ONE_UNSIGNED + 1], middle[SK_Q8_ONE_UNSIGNED + 2]; /* behind each */
    float number[256];                                                       /* by code */
    int32_t first[BINS];
} tree;

static tree trees[SK_Q8_UNSIGNED + 1];

static int bin_of(float a)
{
    uint32_t u;
    memcpy(&u, &a, sizeof u);
    int bin = (int)(u >> SHIFT) - LOWEST;
    bin = bin < 0 ? 0 : bin;
    return bin < BINS ? bin : BINS - 1;
}

static void grow_one(sk_q8 map)
{
    tree *t = &trees[map];
    int most = map == SK_Q8_SIGNED ? SK_Q8_ONE_SIGNED : SK_Q8_ONE_UNSIGNED;
    for (int k = 0; k <= most; k++) t->magnitude[k] = sk_q8_magnitude(map, k);
    for (int k = 0; k < most; k++) t->middle[k] = sk_q8_middle(t->magnitude, k);
    t->middle[most] = t->middle[most + 1] = INFINITY;
    for (int c = 0; c < 256; c++) t->number[c] = sk_q8_number(map, t->magnitude, (uint8_t)c);
    for (int i = 1; i < BINS; i++) { /* the first has all below: 0 */
        uint32_t u = (uint32_t)(i + LOWEST) << SHIFT;
        float a;
        memcpy(&a, &u, sizeof a);
        t->first[i] = sk_q8_nearest(t->magnitude, most, a);
    }
}

static void grow(void)
{
    grow_one(SK_Q8_SIGNED);
    grow_one(SK_Q8_UNSIGNED);
}

static const tree *tree_of(sk_q8 map)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, grow);
    return &trees[map];
}

/* Lanes of their own instead of a reduction: clang makes no vectors of a maximum that may meet NaN.
 */
static float scale_of(const float *x, int64_t n)
{
    enum { LANES = 16 };
    float high[LANES] = {0}, low[LANES] = {0}, zero[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
#pragma omp simd
        for (int k = 0; k < LANES; k++) {
            high[k] = x[i + k] > high[k] ? x[i + k] : high[k];
            low[k] = x[i + k] < low[k] ? x[i + k] : low[k];
            zero[k] += 0 * x[i + k];
        }
    for (; i < n; i++) {
        high[0] = x[i] > high[0] ? x[i] : high[0];
        low[0] = x[i] < low[0] ? x[i] : low[0];
        zero[0] += 0 * x[i];
    }
    for (int k = 1; k < LANES; k++) {
        high[0] = high[k] > high[0] ? high[k] : high[0];
        low[0] = low[k] < low[0] ? low[k] : low[0];
        zero[0] += zero[k];
    }
    return sk_q8_scale(high[0], low[0], zero[0]);
}

/* As sk_q8_code(). */
static void code_block(sk_q8 map, const float *restrict x, float scale, uint8_t *restrict to,
                       int64_t n)
{
    const tree *t = tree_of(map);
    int least = map == SK_Q8_UNSIGNED;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float y = x[i] / scale, a = fabsf(y);
        int minus = y < 0, k = t->first[bin_of(a)];
        k += a > t->middle[k];
        k += a > t->middle[k];
        k += least & (k == 0) & (a > 0);
        k *= 1 - (least & minus);
        k -= minus & (k == SK_Q8_ONE_SIGNED);
        to[i] = (uint8_t)((k ^ -minus) + minus);
    }
}

void sk_q8_encode(sk_q8 map, void *shard, int64_t all, int64_t from, const float *x, int64_t n)
{
    float *scales = shard;
    uint8_t *codes = (uint8_t *)(scales + sk_q8_blocks(all));
    sk_assert(from % SK_Q8_BLOCK == 0 && (n % SK_Q8_BLOCK == 0 || from + n == all));
    for (int64_t i = 0; i < n; i += SK_Q8_BLOCK) {
        int64_t m = n - i < SK_Q8_BLOCK ? n - i : SK_Q8_BLOCK;
        float scale = scales[(from + i) / SK_Q8_BLOCK] = scale_of(x + i, m);
        if (scale > 0 || scale < 0) code_block(map, x + i, scale, codes + from + i, m);
        else memset(codes + from + i, 0, (size_t)m); /* the scale is 0, or NaN */
    }
}

void sk_q8_decode(sk_q8 map, const void *shard, int64_t all, int64_t from, float *x, int64_t n)
{
    const float *number = tree_of(map)->number, *scales = shard;
    const uint8_t *codes = (const uint8_t *)(scales + sk_q8_blocks(all));
    for (int64_t end = from + n; from < end;) {
        int64_t stop = (from / SK_Q8_BLOCK + 1) * SK_Q8_BLOCK;
        float scale = scales[from / SK_Q8_BLOCK];
        if (stop > end) stop = end;
#pragma omp simd
        for (int64_t i = 0; i < stop - from; i++) x[i] = number[codes[from + i]] * scale;
        x += stop - from;
        from = stop;
    }
}
