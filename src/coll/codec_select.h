/* codec_select.h - for codecs of whole rows that choose what they send by size.
 *
 * A row has units, elements or groups of them, and every unit a key of 31 bits: larger is sent
 * first, what is not finite before all others.  The k-th largest key of a row of up to 2048
 * elements is found by halving; that of a longer one without a copy: three passes count the upper
 * 11, the next 11 and the last 9 bits.
 *
 * Chosen elements are sent as their indices in rising order, of 2 bytes where the row has up to
 * 65536 elements and else of 4, and then their values in f32, so what is sent is exact. */
#ifndef SK_COLL_CODEC_SELECT_H
#define SK_COLL_CODEC_SELECT_H

#include "coll/codec.h"

/* Keys of the units of a run of n elements, n up to SK_CODEC_RUN; returns how many units. */
typedef int64_t sk_code_keys(const float *x, int64_t n, uint32_t *keys);

/* Without their sign, bits are in the order of the numbers. */
static inline uint32_t sk_code_key(float x)
{
    union {
        float value;
        uint32_t bits;
    } u = {x};
    return u.bits & 0x7fffffffU;
}

/* The k-th largest key of a row; *ties: how many that are equal to it are among the k. */
uint32_t sk_code_kth(const sk_code_row *r, sk_code_keys *keys, int64_t k, int64_t *ties);

static inline int sk_index_bytes(int64_t n) { return n <= 65536 ? 2 : 4; }
void sk_index_put(uint8_t *to, int wide, int64_t i, int64_t place);
int64_t sk_index_get(const uint8_t *from, int wide, int64_t i);
/* The first of k rising indices that is `at` or more. */
int64_t sk_index_find(const uint8_t *from, int wide, int64_t k, int64_t at);

/* Elements of keys over `least`, and the first `ties` of those equal to it, into room for k;
 * returns how many.  Room that is left is zeros. */
int64_t sk_elements_put(const sk_code_row *r, uint32_t least, int64_t ties, int64_t k, uint8_t *to);
/* The same with values in the blocks of a codec that draws, one behind the other, in place of f32:
 * `values` is q8 or q4. */
int64_t sk_quanta_bytes(const sk_codec *values, int64_t k); /* of k values */
void sk_quanta_put(const sk_codec *values, const sk_code_row *r, uint32_t least, int64_t ties,
                   int64_t k, uint8_t *to);
void sk_quanta_get(const sk_codec *values, const sk_code_row *r, const uint8_t *from, int64_t k,
                   int64_t at, int64_t n, float *to);
/* Elements [at, at + n) of a row of which `count` are sent, in room for k. */
void sk_elements_get(const sk_code_row *r, const uint8_t *from, int64_t count, int64_t k,
                     int64_t at, int64_t n, float *to);

#endif
