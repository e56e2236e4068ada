/* codec_kernel.h - the GPU half of a codec.
 *
 * parts/codec/NAME.c is complete alone and is the truth; parts/codec/NAME.cu beside it defines
 *
 *     extern "C" const sk_codec_kernel sk_codec_kernel_NAME = {"NAME", encode, decode};
 *
 * and the build makes the table from the files.  Both put their work into a stream and return;
 * they do for all rows what run/cpu/encode.c does, and leave the same bytes, also of what is not
 * finite: ranks on CPUs and on GPUs understand each other, and test/cuda/acts.cu compares bytes. */
#ifndef SK_KERNEL_CODEC_KERNEL_H
#define SK_KERNEL_CODEC_KERNEL_H

#include "base/status.h"
#include "coll/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All addresses are the device's. */
typedef struct sk_code_job {
    void *x; /* `rows` of `row` elements each; decode writes them */
    sk_dtype type;
    int64_t rows, row;
    uint8_t *code;
    int64_t bytes;  /* of an encoded row: sk_codec_bytes(codec, row) */
    int64_t pieces; /* decode: so many lie one behind the other, and are added in their order */
    /* encode: what was lost so far, as of gradients that are not scaled; NULL: it is not kept.
     * It is added to x before, and what is lost now replaces it; `adds`: it is not, and what is
     * lost now is added to it. */
    float *error;
    bool adds;
    const double *loss_scale; /* of x; read where there is an error; NULL: 1 */
    const int32_t *hold;      /* NULL, or: where it is set, the error stays as it is */
    /* Rows as in sk_code_row: the logical place of the first element, and from a row to the next;
     * what random streams are made of (sk_code_shared, sk_code_own). */
    int64_t first, place;
    uint64_t seed, stream;
    const uint64_t *step; /* read by codecs that draw */
    int term, micro;
    double value; /* of the codec */
} sk_code_job;

typedef struct sk_codec_kernel {
    const char *codec;
    sk_status (*encode)(const sk_code_job *j, void *stream);
    sk_status (*decode)(const sk_code_job *j, void *stream);
} sk_codec_kernel;

extern const sk_codec_kernel *const sk_codec_kernel_parts[]; /* every parts/codec/NAME.cu */

/* The GPU half of the codec of this name; NULL if it has none, or if skein_cuda is not linked. */
const sk_codec_kernel *sk_codec_kernel_find(const char *codec);

/* Do GPU halves take elements of this type? */
sk_status sk_code_takes(const char *codec, sk_dtype type);

#ifdef __cplusplus
}
#endif

#endif
