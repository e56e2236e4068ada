/* chunks.c - the chunks of a row with the greatest norm, as they are; of the others nothing (the
 * coarse-grained sparsification of GradientFlow, Sun et al. 2019).
 *
 * A chunk is 32 elements, 128 bytes of f32: an index for each costs next to nothing, and what is
 * sent is moved in lines of memory.  A row of c chunks sends k = max(1, ceil(RATIO c)): their
 * indices, of 2 bytes where c <= 65536 and else of 4, and then the elements in f32; behind the end
 * of the row are zeros.  Among equals the first go.  Each rank chooses by itself; the owner of a
 * row adds what came and, without `zero`, chooses once more among the sums, alike for all.
 * GradientFlow's ranks agree before they send, which is a round more, and chunks that are large
 * on one rank alone wait.
 *
 * Norms are sums of 32 squares in f64, added by halves: the order of a GPU's warp (chunks.cu).
 * Their upper 31 bits are compared. */
#include "coll/codec_select.h"

#include <string.h>

enum { RUN = SK_CODEC_RUN, CHUNK = 32, CHUNK_BYTES = CHUNK * 4 };
static const uint32_t NO_NUMBER = 0x7ff80000U;

static int64_t chunks_of(int64_t n) { return (n + CHUNK - 1) / CHUNK; }

static int64_t row_bytes(int64_t n, double share)
{
    int64_t c = chunks_of(n);
    return sk_codec_kept(c, share) * (sk_index_bytes(c) + CHUNK_BYTES);
}

static int64_t row_kept(int64_t n, double share)
{
    int64_t kept = CHUNK * sk_codec_kept(chunks_of(n), share);
    return kept < n ? kept : n;
}

static uint32_t norm(const float *x, int64_t n)
{
    double square[CHUNK] = {0};
    uint64_t bits;
    for (int i = 0; i < CHUNK && i < n; i++) square[i] = (double)x[i] * (double)x[i];
    for (int half = CHUNK / 2; half; half /= 2)
        for (int i = 0; i < half; i++) square[i] += square[i + half];
    memcpy(&bits, square, sizeof bits);
    bits = bits >> 32 & 0x7fffffffU;
    return bits > NO_NUMBER ? NO_NUMBER : (uint32_t)bits;
}

static int64_t norms(const float *x, int64_t n, uint32_t *keys)
{
    int64_t c = chunks_of(n);
    for (int64_t i = 0; i < c; i++) keys[i] = norm(x + i * CHUNK, n - i * CHUNK);
    return c;
}

static void put_chunk(uint8_t *to, const float *x, int64_t n)
{
    size_t bytes = (size_t)(n < CHUNK ? n : CHUNK) * sizeof *x;
    memcpy(to, x, bytes);
    memset(to + bytes, 0, CHUNK_BYTES - bytes);
}

static void encode_row(const sk_code_row *r, double share, uint8_t *to)
{
    float x[RUN];
    uint32_t key[RUN];
    int64_t c = chunks_of(r->n), k = sk_codec_kept(c, share), ties = 0, kept = 0;
    int wide = sk_index_bytes(c);
    if (!k) return;
    uint32_t least = sk_code_kth(r, norms, k, &ties);
    for (int64_t at = 0; at < r->n; at += RUN) {
        int64_t n = r->n - at < RUN ? r->n - at : RUN;
        r->read(r->of, at, n, x);
        int64_t here = norms(x, n, key);
        for (int64_t i = 0; i < here; i++) {
            if (key[i] < least || (key[i] == least && ties-- <= 0)) continue;
            sk_index_put(to, wide, kept, at / CHUNK + i);
            put_chunk(to + k * wide + kept++ * CHUNK_BYTES, x + i * CHUNK, n - i * CHUNK);
        }
    }
}

/* `at` is a multiple of SK_CODEC_RUN, and so the first of a chunk. */
static void decode_row(const sk_code_row *r, double share, const uint8_t *from, int64_t at,
                       int64_t n, float *to)
{
    int64_t c = chunks_of(r->n), k = sk_codec_kept(c, share);
    int wide = sk_index_bytes(c);
    memset(to, 0, (size_t)n * sizeof *to);
    for (int64_t i = sk_index_find(from, wide, k, at / CHUNK), place;
         i < k && (place = sk_index_get(from, wide, i) * CHUNK - at) < n; i++)
        if (place >= 0)
            memcpy(to + place, from + k * wide + i * CHUNK_BYTES,
                   (size_t)(n - place < CHUNK ? n - place : CHUNK) * sizeof *to);
}

const sk_codec sk_codec_chunks = {
    .name = "chunks",
    .doc = "chunks:RATIO, the chunks of 32 of a row with the greatest norm: 4.063 bytes an element "
           "that is sent",
    .row_bytes = row_bytes,
    .encode_row = encode_row,
    .decode_row = decode_row,
    .encode_flops = 290,
    .decode_flops = 18,
    .value_name = "RATIO",
    .value_most = 1,
    .value_usual = 0.05,
    .sums_only = true,
    .needs_feedback = true,
    .row_kept = row_kept};
