/* q8_format.c - shards in blocks of 8 bits, on the host. */
#include "tensor/q8_format.h"
#include "base/status.h"

#include <pthread.h>

static float signed_tree[SK_Q8_ONE_SIGNED + 1], unsigned_tree[SK_Q8_ONE_UNSIGNED + 1];

static void grow(void)
{
    for (int k = 0; k <= SK_Q8_ONE_SIGNED; k++) signed_tree[k] = sk_q8_magnitude(SK_Q8_SIGNED, k);
    for (int k = 0; k <= SK_Q8_ONE_UNSIGNED; k++)
        unsigned_tree[k] = sk_q8_magnitude(SK_Q8_UNSIGNED, k);
}

static const float *tree_of(sk_q8 map)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, grow);
    return map == SK_Q8_SIGNED ? signed_tree : unsigned_tree;
}

static float scale_of(const float *x, int64_t n)
{
    float high = 0, low = 0, zero = 0;
    for (int64_t i = 0; i < n; i++) {
        high = x[i] > high ? x[i] : high;
        low = x[i] < low ? x[i] : low;
        zero += 0 * x[i];
    }
    return sk_q8_scale(high, low, zero);
}

void sk_q8_encode(sk_q8 map, void *shard, int64_t all, int64_t from, const float *x, int64_t n)
{
    const float *tree = tree_of(map);
    float *scales = shard;
    uint8_t *codes = (uint8_t *)(scales + sk_q8_blocks(all));
    sk_assert(from % SK_Q8_BLOCK == 0 && (n % SK_Q8_BLOCK == 0 || from + n == all));
    for (int64_t i = 0; i < n; i += SK_Q8_BLOCK) {
        int64_t m = n - i < SK_Q8_BLOCK ? n - i : SK_Q8_BLOCK;
        float scale = scales[(from + i) / SK_Q8_BLOCK] = scale_of(x + i, m);
        bool flat = !(scale > 0 || scale < 0); /* zero, or NaN */
#pragma omp simd
        for (int64_t k = 0; k < m; k++)
            codes[from + i + k] = flat ? 0 : sk_q8_code(map, tree, x[i + k] / scale);
    }
}

void sk_q8_decode(sk_q8 map, const void *shard, int64_t all, int64_t from, float *x, int64_t n)
{
    const float *tree = tree_of(map), *scales = shard;
    const uint8_t *codes = (const uint8_t *)(scales + sk_q8_blocks(all));
    for (int64_t i = 0; i < n; i++)
        x[i] = sk_q8_number(map, tree, codes[from + i]) * scales[(from + i) / SK_Q8_BLOCK];
}
