/* topk.c - the largest of a row, as they are; of the others nothing (Aji and Heafield 2017).
 *
 * A row of n sends k = max(1, ceil(RATIO n)) elements with their indices (coll/codec_select.h).
 * What is sent is exact, so sent and owed are the gradient to the bit.  Among equals the first
 * go. */
#include "coll/codec_select.h"

static int64_t row_bytes(int64_t n, double share)
{
    return sk_codec_kept(n, share) * (sk_index_bytes(n) + (int64_t)sizeof(float));
}

static int64_t sizes(const float *x, int64_t n, uint32_t *keys)
{
    for (int64_t i = 0; i < n; i++) keys[i] = sk_code_key(x[i]);
    return n;
}

static void encode_row(const sk_code_row *r, double share, uint8_t *to)
{
    int64_t k = sk_codec_kept(r->n, share), ties = 0;
    if (!k) return;
    uint32_t least = sk_code_kth(r, sizes, k, &ties);
    sk_elements_put(r, least, ties, k, to);
}

static void decode_row(const sk_code_row *r, double share, const uint8_t *from, int64_t at,
                       int64_t n, float *to)
{
    int64_t k = sk_codec_kept(r->n, share);
    sk_elements_get(r, from, k, k, at, n, to);
}

const sk_codec sk_codec_topk = {.name = "topk",
                                .also = "dgc deep_gradient_compression top_k",
                                .doc = "topk:RATIO, the largest of a row with their indices: 6 "
                                       "bytes for each that is sent",
                                .row_bytes = row_bytes,
                                .encode_row = encode_row,
                                .decode_row = decode_row,
                                .encode_flops = 220,
                                .decode_flops = 18,
                                .value_name = "RATIO",
                                .value_most = 1,
                                .value_usual = 0.01,
                                .sums_only = true,
                                .needs_feedback = true,
                                .row_kept = sk_codec_kept};
