/* codec.h - numbers in fewer bytes, on their way from rank to rank.
 *
 * A codec is one file parts/codec/NAME.c.  Elements go in blocks of a fixed number of them, and
 * what they share (a scale) stands in front of a block:
 *
 *     int4, block 128:   scale of 2 bytes | 64 bytes      66 bytes for 128 elements
 *
 * A row of n elements is whole blocks and one that may be shorter, so any part of a row that
 * begins at a block can be encoded and decoded alone.  Tensors are encoded row by row of their
 * first dim: shards that are cut along it are shards of the encoded tensor too, and the
 * collectives that move them are the usual ones, on bytes.
 *
 * A number that is not finite makes its block not finite: a step that blew up is still seen. */
#ifndef SK_COLL_CODEC_H
#define SK_COLL_CODEC_H

#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SK_CODEC_RUN = 1024 }; /* elements that are at work at a time: so many whole blocks */

typedef struct sk_codec {
    const char *name, *doc;
    int block;                                          /* elements; divides SK_CODEC_RUN */
    int head;                                           /* bytes in front of a block */
    int bits;                                           /* of an element */
    void (*encode)(const float *x, int n, uint8_t *to); /* one block, n up to its size */
    void (*decode)(const uint8_t *from, int n, float *to);
} sk_codec;

extern const sk_codec *const sk_codec_parts[]; /* in the order of names, NULL at the end */
const sk_codec *sk_codec_find(const char *name);

int64_t sk_codec_bytes(const sk_codec *c, int64_t n); /* of a row of n elements */
void sk_encode(const sk_codec *c, const float *x, int64_t n, uint8_t *to);
void sk_decode(const sk_codec *c, const uint8_t *from, int64_t n, float *to);

/* For codecs whose blocks have a scale, in bf16: the least by which all x become `most` or less.
 * Writes it and returns what to multiply with; 0: all are zeros, or not all are finite (then the
 * scale is no number), and there is nothing more to say. */
enum { SK_SCALE_BYTES = 2 };
float sk_scale_put(const float *x, int n, float most, uint8_t *to);
float sk_scale_get(const uint8_t *from);

#ifdef __cplusplus
}
#endif

#endif
