/* randk.c - random elements of a row, and nothing of the others (Stich et al. 2018).
 *
 * A row of n sends k = max(1, ceil(RATIO n)) values in f32.  The row is cut into k stretches, as
 * equal as can be, and one element is drawn of each: all are drawn equally often, and where element
 * i of the k lies is known without looking at the others.  A stretch that has a number that is not
 * finite sends no number, wherever that is: a step that blew up is still seen.  Places are drawn
 * anew for every row and step, alike on all ranks: they do not travel, and a sum that is encoded
 * again loses nothing.
 *
 * With error feedback elements are sent as they are.  Without, an element is multiplied by the
 * length of its stretch (n/k): so its mean is right. */
#include "coll/codec.h"

#include <math.h>
#include <string.h>

static int64_t row_bytes(int64_t n, double share)
{
    return sk_codec_kept(n, share) * (int64_t)sizeof(float);
}

/* Stretch i of k: [from, from + size). */
static int64_t stretch(int64_t n, int64_t k, int64_t i, int64_t *size)
{
    int64_t each = n / k, more = n % k; /* the first `more` have one element more */
    *size = each + (i < more);
    return i * each + (i < more ? i : more);
}

static int64_t place_of(const sk_code_row *r, int64_t k, int64_t i, int64_t *size)
{
    int64_t from = stretch(r->n, k, i, size);
    uint64_t drawn = sk_rng(r->shared, (uint64_t)r->first + 1, (uint64_t)i).a;
    return from + (int64_t)(drawn % (uint64_t)*size);
}

/* What stretch i of k sends. */
static float drawn(const sk_code_row *r, int64_t k, int64_t i)
{
    float x[SK_CODEC_RUN], y = 0, bad = 0;
    int64_t size = 0, place = place_of(r, k, i, &size), from = stretch(r->n, k, i, &size);
    for (int64_t at = from, end = from + size, n; at < end; at += n) {
        n = end - at < SK_CODEC_RUN ? end - at : SK_CODEC_RUN;
        r->read(r->of, at, n, x);
        for (int64_t j = 0; j < n; j++) bad += x[j] * 0;
        if (place >= at && place < at + n) y = x[place - at];
    }
    if (isnan(bad) && isfinite(y)) y = NAN;
    return r->upscale ? y * (float)size : y;
}

static void encode_row(const sk_code_row *r, double share, uint8_t *to)
{
    int64_t k = sk_codec_kept(r->n, share);
    for (int64_t i = 0; i < k; i++, to += sizeof(float)) {
        float x = drawn(r, k, i);
        memcpy(to, &x, sizeof x);
    }
}

/* The stretch that has this element. */
static int64_t stretch_at(int64_t n, int64_t k, int64_t at)
{
    int64_t each = n / k, more = n % k, longer = more * (each + 1);
    return at < longer ? at / (each + 1) : more + (at - longer) / each;
}

static void decode_row(const sk_code_row *r, double share, const uint8_t *from, int64_t at,
                       int64_t n, float *to)
{
    int64_t k = sk_codec_kept(r->n, share), size = 0;
    memset(to, 0, (size_t)n * sizeof *to);
    for (int64_t i = n ? stretch_at(r->n, k, at) : k; i < k; i++) {
        int64_t place = place_of(r, k, i, &size);
        if (place >= at + n) return;
        if (place >= at) memcpy(&to[place - at], from + 4 * i, sizeof *to);
    }
}

const sk_codec sk_codec_randk = {.name = "randk",
                                 .also = "random_k random_sparsification",
                                 .doc = "randk:RATIO, random elements of a row: 4 bytes for each "
                                        "that is sent",
                                 .row_bytes = row_bytes,
                                 .encode_row = encode_row,
                                 .decode_row = decode_row,
                                 .encode_flops = 320,
                                 .decode_flops = 40,
                                 .value_name = "RATIO",
                                 .value_most = 1,
                                 .value_usual = 0.01,
                                 .sums_only = true,
                                 .row_kept = sk_codec_kept};
