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
 * A codec may encode a whole row instead (.row_bytes, .encode_row, .decode_row): its size is known
 * from n alone, and any part of the row can be decoded alone.  It may have a value, which a layout
 * says behind a colon:
 *
 *     topk:0.01, rows of 4096:   41 indices of 2 bytes | 41 values of 4 bytes
 *
 * Random bits are a function of the seed, the tensor's name, the step and the logical place of an
 * element (base/rng.h): a run that is resumed draws them again.
 *
 * A number that is not finite makes its block not finite, and is sent by codecs that choose: a step
 * that blew up is still seen. */
#ifndef SK_COLL_CODEC_H
#define SK_COLL_CODEC_H

#include "base/rng.h"
#include "base/strings.h"
#include "base/status.h"
#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SK_CODEC_RUN = 1024 }; /* elements that are at work at a time: so many whole blocks */
enum { SK_CODEC_TEXT = 48 };

typedef struct sk_code_row { /* a row that is encoded or decoded */
    int64_t n;               /* elements */
    int64_t first;           /* the logical place of its first element in the tensor */
    uint64_t shared;         /* random stream of the tensor in this step, alike on all ranks */
    uint64_t own;            /* and of this term of the sum alone */
    bool upscale;            /* what is not sent is lost: what is sent makes up for it on average */
    void (*read)(const void *of, int64_t at, int64_t n, float *to); /* elements [at, at + n) */
    const void *of;
} sk_code_row;

typedef struct sk_codec {
    const char *name, *doc;
    const char *also; /* what other programs call it, in words of sk_alias; NULL: nothing else */
    int block;        /* elements; divides SK_CODEC_RUN */
    int head;         /* bytes in front of a block */
    int bits;         /* of an element */
    void (*encode)(const float *x, int n, uint8_t *to); /* one block, n up to its size */
    /* or, with 16 random bits for each element */
    void (*encode_random)(const float *x, int n, const uint16_t *random, uint8_t *to);
    void (*decode)(const uint8_t *from, int n, float *to);

    /* Instead of all these: whole rows. */
    int64_t (*row_bytes)(int64_t n, double value);
    void (*encode_row)(const sk_code_row *r, double value, uint8_t *to);
    void (*decode_row)(const sk_code_row *r, double value, const uint8_t *from, int64_t at,
                       int64_t n, float *to); /* elements [at, at + n) */

    /* Or: the rows of a matrix that are not zeros (coll/nonzero_rows.h). */
    int64_t unit, room; /* elements of a row; rows */

    const char *value_name; /* of the number behind the colon; NULL: it has none */
    double value_most;      /* it is over 0, and at most this */
    double value_usual;     /* an example of it */
    double value;           /* written by sk_codec_read() */
    /* Work of a processor for an element, in operations of a matrix product that take as long there
     * (measured): what a step costs besides the bytes that are read and written. */
    double encode_flops, decode_flops;
    bool sums_only;      /* gradients alone: weights would be useless */
    bool needs_feedback; /* what is not sent has to be sent later */
    bool no_feedback; /* what is lost at random can be more than what was given: kept, it grows */
    int64_t (*row_kept)(int64_t n, double value); /* of codecs that send some elements of a row of n
                                                     and nothing of the others: how many at most */
    bool low_rank; /* it encodes no rows: gradients are summed as two factors of rank `value`,
                      a whole number (program/grad_low_rank.c) */
} sk_codec;

extern const sk_codec *const sk_codec_parts[]; /* in the order of names, NULL at the end */
const sk_codec *sk_codec_find(const char *name);
/* The codec that is called so here, in letters of any size, or elsewhere ("dgc"); NULL: none is.
 * Writes how a layout says it, with a number: "topk:0.01". */
const sk_codec *sk_codec_meant(const char *name, char to[SK_CODEC_TEXT]);

/* A codec as a layout says it, "int4" or "topk:0.01", with its value. */
sk_status sk_codec_read(const char *text, sk_codec *out);

int64_t sk_codec_bytes(const sk_codec *c, int64_t n); /* of a row of n elements */
/* Does it choose elements, and with its value all of them? */
bool sk_codec_sends_all(const sk_codec *c);

/* A whole row, which r reads; or, of a codec of blocks, its elements [at, at + n), where at is the
 * first of a block.  `to` and `from` are where the bytes of the row begin. */
void sk_encode(const sk_codec *c, const sk_code_row *r, uint8_t *to);
void sk_encode_run(const sk_codec *c, const sk_code_row *r, int64_t at, const float *x, int64_t n,
                   uint8_t *to);
/* Elements [at, at + n) of a row, where at is a multiple of SK_CODEC_RUN. */
void sk_decode(const sk_codec *c, const sk_code_row *r, const uint8_t *from, int64_t at, int64_t n,
               float *to);

/* The random streams of a tensor in a step; of one term of the sum, from 1 (0: the sum itself), in
 * one micro-batch. */
SK_BOTH uint64_t sk_code_shared(uint64_t seed, uint64_t name, uint64_t step)
{
    return sk_rng(seed, name, step).b;
}
SK_BOTH uint64_t sk_code_own(uint64_t shared, int term, int micro)
{
    return sk_rng(shared, (uint64_t)term + 1, (uint64_t)micro).b;
}
/* The 16 random bits of the element at this logical place. */
SK_BOTH uint16_t sk_code_random(uint64_t own, uint64_t place)
{
    return (uint16_t)(sk_rng(own, 0, place / 4).a >> 16 * (place % 4));
}
/* x times `by` as a whole number of at most `most`, up or down as the random bits say: its mean is
 * right to 2^-17.  A whole number stays as it is. */
SK_BOTH int sk_quantum(float x, float by, uint16_t random, int most)
{
    int q = (int)floorf(fmaf(x, by, ((float)random + 0.5F) * 0x1p-16F));
    return q > most ? most : q < -most ? -most : q;
}

/* For codecs that send a share of a row: of n elements so many, at least one. */
int64_t sk_codec_kept(int64_t n, double share);

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
