/* codec_select.c - the k-th largest of a row, and elements with their indices. */
#include "coll/codec_select.h"

#include <string.h>

enum { RUN = SK_CODEC_RUN, BINS = 2048, SHORT = 2 * RUN };

/* --- a short row: halving the range of keys ---
 *
 * Its keys are kept and counted by vectors.  To clear and to walk the bins of a longer row took 4
 * ns an element of a row of 384; this takes 1. */

static int32_t count_over(const uint32_t *key, int64_t n, uint32_t least)
{
    int32_t sum = 0, bound = (int32_t)least; /* keys have 31 bits */
    for (int64_t i = 0; i < n; i++) sum += (int32_t)key[i] > bound;
    return sum;
}

static uint32_t least_from(const uint32_t *key, int64_t n, uint32_t from)
{
    uint32_t least = UINT32_MAX;
    for (int64_t i = 0; i < n; i++) {
        uint32_t more = key[i] - from; /* of a lower key it wraps to 2^31 or more */
        least = more < least ? more : least;
    }
    return from + least;
}

static uint32_t kth_of_short(const sk_code_row *r, sk_code_keys *keys, int64_t k, int64_t *ties)
{
    float x[RUN];
    uint32_t key[SHORT], low = 0, high = 0x80000000U; /* the k-th is `low` or more, under `high` */
    int64_t n = 0;
    for (int64_t at = 0; at < r->n; at += RUN) {
        int64_t here = r->n - at < RUN ? r->n - at : RUN;
        r->read(r->of, at, here, x);
        n += keys(x, here, key + n);
    }
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        int32_t count = count_over(key, n, middle - 1);
        if (count == k) low = least_from(key, n, middle), high = low + 1;
        else if (count > k) low = middle;
        else high = middle;
    }
    *ties = k - count_over(key, n, low);
    return low;
}

/* --- longer rows: bins --- */

/* Of the keys whose bits from `shift + width` on are `above`, by the `width` bits below. */
static void count(const sk_code_row *r, sk_code_keys *keys, uint32_t above, int shift, int width,
                  int64_t bins[BINS])
{
    float x[RUN];
    uint32_t key[RUN];
    memset(bins, 0, sizeof(int64_t) * BINS);
    for (int64_t at = 0; at < r->n; at += RUN) {
        int64_t n = r->n - at < RUN ? r->n - at : RUN;
        r->read(r->of, at, n, x);
        n = keys(x, n, key);
        for (int64_t i = 0; i < n; i++)
            if (key[i] >> shift >> width == above) bins[key[i] >> shift & ((1U << width) - 1)]++;
    }
}

static uint32_t kth_of_long(const sk_code_row *r, sk_code_keys *keys, int64_t k, int64_t *ties)
{
    static const struct {
        int shift, width;
    } pass[] = {{20, 11}, {9, 11}, {0, 9}};
    int64_t bins[BINS];
    uint32_t above = 0;
    for (int p = 0; p < 3; p++) {
        count(r, keys, above, pass[p].shift, pass[p].width, bins);
        int b = (1 << pass[p].width) - 1;
        for (; bins[b] < k; b--) k -= bins[b];
        above = above << pass[p].width | (uint32_t)b;
    }
    *ties = k;
    return above;
}

uint32_t sk_code_kth(const sk_code_row *r, sk_code_keys *keys, int64_t k, int64_t *ties)
{
    return (r->n <= SHORT ? kth_of_short : kth_of_long)(r, keys, k, ties);
}

/* --- elements with their indices --- */

void sk_index_put(uint8_t *to, int wide, int64_t i, int64_t place)
{
    for (int b = 0; b < wide; b++) to[i * wide + b] = (uint8_t)(place >> 8 * b);
}

int64_t sk_index_get(const uint8_t *from, int wide, int64_t i)
{
    int64_t place = 0;
    for (int b = 0; b < wide; b++) place |= (int64_t)from[i * wide + b] << 8 * b;
    return place;
}

int64_t sk_index_find(const uint8_t *from, int wide, int64_t k, int64_t at)
{
    int64_t low = 0, high = k;
    while (low < high) {
        int64_t mid = low + (high - low) / 2;
        if (sk_index_get(from, wide, mid) < at) low = mid + 1;
        else high = mid;
    }
    return low;
}

static int64_t put(const sk_code_row *r, uint32_t least, int64_t ties, int64_t k, bool values,
                   uint8_t *to)
{
    float x[RUN];
    int64_t kept = 0;
    int wide = sk_index_bytes(r->n);
    for (int64_t at = 0; at < r->n && kept < k; at += RUN) {
        int64_t n = r->n - at < RUN ? r->n - at : RUN;
        r->read(r->of, at, n, x);
        for (int64_t i = 0; i < n && kept < k; i++) {
            uint32_t key = sk_code_key(x[i]);
            if (key < least || (key == least && ties-- <= 0)) continue;
            sk_index_put(to, wide, kept, at + i);
            if (values) memcpy(to + k * wide + 4 * kept, &x[i], sizeof *x);
            kept++;
        }
    }
    return kept;
}

int64_t sk_elements_put(const sk_code_row *r, uint32_t least, int64_t ties, int64_t k, uint8_t *to)
{
    int64_t kept = put(r, least, ties, k, true, to);
    int wide = sk_index_bytes(r->n);
    memset(to + kept * wide, 0, (size_t)((k - kept) * wide));
    memset(to + k * wide + 4 * kept, 0, (size_t)(4 * (k - kept)));
    return kept;
}

void sk_elements_get(const sk_code_row *r, const uint8_t *from, int64_t count, int64_t k,
                     int64_t at, int64_t n, float *to)
{
    int wide = sk_index_bytes(r->n);
    memset(to, 0, (size_t)n * sizeof *to);
    for (int64_t i = sk_index_find(from, wide, count, at), place;
         i < count && (place = sk_index_get(from, wide, i)) < at + n; i++)
        if (place >= at) memcpy(&to[place - at], from + k * wide + 4 * i, sizeof *to);
}

/* --- values in fewer bits --- */

int64_t sk_quanta_bytes(const sk_codec *values, int64_t k) { return sk_codec_bytes(values, k); }

/* Random bits are those of the elements' places, as if the whole row were encoded. */
void sk_quanta_put(const sk_codec *values, const sk_code_row *r, uint32_t least, int64_t ties,
                   int64_t k, uint8_t *to)
{
    float x[RUN];
    uint16_t random[RUN];
    int wide = sk_index_bytes(r->n);
    sk_assert(values->block <= RUN && put(r, least, ties, k, false, to) == k);
    uint8_t *block = to + k * wide;
    for (int64_t at = 0, n; at < k; at += n, block += sk_codec_bytes(values, values->block)) {
        n = k - at < values->block ? k - at : values->block;
        for (int64_t i = 0; i < n; i++) {
            int64_t place = sk_index_get(to, wide, at + i);
            r->read(r->of, place, 1, &x[i]);
            random[i] = sk_code_random(r->own, (uint64_t)(r->first + place));
        }
        values->encode_random(x, (int)n, random, block);
    }
}

void sk_quanta_get(const sk_codec *values, const sk_code_row *r, const uint8_t *from, int64_t k,
                   int64_t at, int64_t n, float *to)
{
    float x[RUN];
    int64_t here = -1, size = values->block, place; /* the block that is decoded */
    int wide = sk_index_bytes(r->n);
    memset(to, 0, (size_t)n * sizeof *to);
    for (int64_t i = sk_index_find(from, wide, k, at);
         i < k && (place = sk_index_get(from, wide, i)) < at + n; i++) {
        int64_t b = i / size, left = k - b * size;
        if (b != here)
            values->decode(from + k * wide + b * sk_codec_bytes(values, size),
                           (int)(left < size ? left : size), x);
        here = b;
        if (place >= at) to[place - at] = x[i % size];
    }
}
