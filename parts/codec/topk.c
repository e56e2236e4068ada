/* topk.c - the largest of a row, as they are; of the others nothing (Aji and Heafield 2017).
 *
 * A row of n sends k = max(1, ceil(RATIO n)) elements: their indices in rising order, of 2 bytes
 * where n <= 65536 and else of 4, and then their values in f32.  What is sent is exact, so sent and
 * owed are the gradient to the bit.  Among equals the first go.
 *
 * The k-th largest is found without a copy of the row: without their sign, bits are in the order of
 * the numbers (what is not finite comes first), and three passes count the upper 11, the next 11
 * and the last 9 of them. */
#include "coll/codec.h"

#include <string.h>

enum { RUN = SK_CODEC_RUN, BINS = 2048 };

static int index_bytes(int64_t n) { return n <= 65536 ? 2 : 4; }

static int64_t row_bytes(int64_t n, double share)
{
    return sk_codec_kept(n, share) * (index_bytes(n) + (int64_t)sizeof(float));
}

static uint32_t size_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffu;
}

/* Of those whose bits from `shift + width` on are `above`, by the `width` bits below. */
static void count(const sk_code_row *r, uint32_t above, int shift, int width, int64_t bins[BINS])
{
    float x[RUN];
    memset(bins, 0, sizeof(int64_t) * BINS);
    for (int64_t at = 0; at < r->n; at += RUN) {
        int64_t n = r->n - at < RUN ? r->n - at : RUN;
        r->read(r->of, at, n, x);
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits = size_of(x[i]) >> shift;
            if (bits >> width == above) bins[bits & ((1u << width) - 1)]++;
        }
    }
}

/* The bits of the k-th largest; *ties: how many that are equal to it are among the k. */
static uint32_t kth(const sk_code_row *r, int64_t k, int64_t *ties)
{
    static const struct {
        int shift, width;
    } pass[] = {{20, 11}, {9, 11}, {0, 9}};
    int64_t bins[BINS];
    uint32_t above = 0;
    for (int p = 0; p < 3; p++) {
        count(r, above, pass[p].shift, pass[p].width, bins);
        int b = (1 << pass[p].width) - 1;
        for (; bins[b] < k; b--) k -= bins[b];
        above = above << pass[p].width | (uint32_t)b;
    }
    *ties = k;
    return above;
}

static void encode_row(const sk_code_row *r, double share, uint8_t *to)
{
    float x[RUN];
    int64_t k = sk_codec_kept(r->n, share), ties = 0, kept = 0;
    size_t wide = (size_t)index_bytes(r->n);
    if (!k) return;
    uint32_t least = kth(r, k, &ties);
    for (int64_t at = 0; at < r->n; at += RUN) {
        int64_t n = r->n - at < RUN ? r->n - at : RUN;
        r->read(r->of, at, n, x);
        for (int64_t i = 0; i < n; i++) {
            uint32_t size = size_of(x[i]), place = (uint32_t)(at + i);
            if (size < least || (size == least && ties-- <= 0)) continue;
            for (size_t b = 0; b < wide; b++)
                to[(size_t)kept * wide + b] = (uint8_t)(place >> 8 * b);
            memcpy(to + (size_t)k * wide + (size_t)kept++ * sizeof *x, &x[i], sizeof *x);
        }
    }
}

static int64_t index_at(const uint8_t *from, int wide, int64_t i)
{
    int64_t place = 0;
    for (int b = 0; b < wide; b++) place |= (int64_t)from[i * wide + b] << 8 * b;
    return place;
}

static void decode_row(const sk_code_row *r, double share, const uint8_t *from, int64_t at,
                       int64_t n, float *to)
{
    int64_t k = sk_codec_kept(r->n, share), low = 0, high = k;
    int wide = index_bytes(r->n);
    while (low < high) { /* the first at `at` or behind it */
        int64_t mid = low + (high - low) / 2;
        if (index_at(from, wide, mid) < at) low = mid + 1;
        else high = mid;
    }
    memset(to, 0, (size_t)n * sizeof *to);
    for (int64_t i = low, place; i < k && (place = index_at(from, wide, i)) < at + n; i++)
        if (place >= at) memcpy(&to[place - at], from + k * wide + 4 * i, sizeof *to);
}

const sk_codec sk_codec_topk = {.name = "topk",
                                .doc = "topk:RATIO, the largest of a row with their indices: 6 "
                                       "bytes for each that is sent",
                                .row_bytes = row_bytes,
                                .encode_row = encode_row,
                                .decode_row = decode_row,
                                .value_name = "RATIO",
                                .value_most = 1,
                                .sums_only = true,
                                .needs_feedback = true};
