/* topk4.c - the largest of a row, in 4 bits with their indices; of the others nothing (SparCML,
 * Renggli et al. 2019: quantised values of sparse streams).
 *
 * As topk.c, but the k values are encoded as q4.c does, 128 of them with a scale: whole numbers
 * that are rounded up or down at random, so that their mean is right. */
#include "coll/codec_select.h"

static const sk_codec *values(void) { return sk_codec_find("q4"); }

static int64_t row_bytes(int64_t n, double share)
{
    int64_t k = sk_codec_kept(n, share);
    return k * sk_index_bytes(n) + sk_quanta_bytes(values(), k);
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
    sk_quanta_put(values(), r, least, ties, k, to);
}

static void decode_row(const sk_code_row *r, double share, const uint8_t *from, int64_t at,
                       int64_t n, float *to)
{
    sk_quanta_get(values(), r, from, sk_codec_kept(r->n, share), at, n, to);
}

const sk_codec sk_codec_topk4 = {.name = "topk4",
                                 .doc = "topk4:RATIO, the largest of a row in 4 bits with their "
                                        "indices: 2.516 bytes for each that is sent",
                                 .row_bytes = row_bytes,
                                 .encode_row = encode_row,
                                 .decode_row = decode_row,
                                 .encode_flops = 285,
                                 .decode_flops = 35,
                                 .value_name = "RATIO",
                                 .value_most = 1,
                                 .value_usual = 0.01,
                                 .sums_only = true,
                                 .needs_feedback = true,
                                 .row_kept = sk_codec_kept};
