/* threshold.c - elements of a row that stand out, as they are; of the others nothing (Strom 2015;
 * Dryden et al. 2016 and Aji and Heafield 2017 choose the threshold by the gradient).
 *
 * An element is sent if it is at least TIMES the root mean square of its row, and so is the
 * largest.  Of n elements at most n / TIMES^2 can be so large (Chebyshev's inequality), so a row
 * has room for k = max(1, floor(n / TIMES^2)) and nothing over the threshold waits; what rounding
 * adds to k would.  A row is 4 bytes with the number that is sent, and then as in topk.c.  Zeros
 * are not sent.  Where some are not finite, only those are.
 *
 * The mean is a sum of 256 sums in f64, of every 256th element, added by halves: the order of a
 * GPU's threads (threshold.cu). */
#include "coll/codec_select.h"

#include <math.h>
#include <string.h>

enum { RUN = SK_CODEC_RUN, LANES = 256, COUNT = 4 };
static const uint32_t INFINITE = 0x7f800000U;

static int64_t room(int64_t n, double times)
{
    int64_t k = times > 1 ? (int64_t)((double)n / (times * times) * (1 + 1e-12)) : n;
    return k < 1 ? n > 0 : k < n ? k : n;
}

static int64_t row_bytes(int64_t n, double times)
{
    return COUNT + room(n, times) * (sk_index_bytes(n) + (int64_t)sizeof(float));
}

static double added(double lane[LANES])
{
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

/* The least key that is sent. */
static uint32_t least_key(const sk_code_row *r, double times)
{
    float x[RUN], largest;
    double lane[LANES] = {0};
    uint32_t most = 0;
    for (int64_t at = 0; at < r->n; at += RUN) {
        int64_t n = r->n - at < RUN ? r->n - at : RUN;
        r->read(r->of, at, n, x);
        for (int64_t i = 0; i < n; i++) {
            uint32_t key = sk_code_key(x[i]);
            most = key > most ? key : most;
            if (key < INFINITE) lane[i % LANES] += (double)x[i] * (double)x[i];
        }
    }
    if (most >= INFINITE) return INFINITE;
    double over = times * sqrt(added(lane) / (double)r->n);
    memcpy(&largest, &most, sizeof largest);
    if (over < (double)largest) most = sk_code_key((float)over);
    return most ? most : 1;
}

static void encode_row(const sk_code_row *r, double times, uint8_t *to)
{
    int64_t k = room(r->n, times);
    if (!k) return;
    uint32_t sent = (uint32_t)sk_elements_put(r, least_key(r, times) - 1, 0, k, to + COUNT);
    memcpy(to, &sent, sizeof sent);
}

static void decode_row(const sk_code_row *r, double times, const uint8_t *from, int64_t at,
                       int64_t n, float *to)
{
    int64_t k = room(r->n, times);
    uint32_t sent = 0;
    if (k) memcpy(&sent, from, sizeof sent);
    sk_elements_get(r, from + COUNT, (int64_t)sent < k ? (int64_t)sent : k, k, at, n, to);
}

const sk_codec sk_codec_threshold = {
    .name = "threshold",
    .also = "gradient_dropping",
    .doc = "threshold:TIMES, those of TIMES the root mean square of a row: 6 bytes each, room for "
           "n/TIMES^2",
    .row_bytes = row_bytes,
    .encode_row = encode_row,
    .decode_row = decode_row,
    .encode_flops = 200,
    .decode_flops = 20,
    .value_name = "TIMES",
    .value_most = 1000,
    .value_usual = 3,
    .sums_only = true,
    .needs_feedback = true,
    .row_kept = room};
