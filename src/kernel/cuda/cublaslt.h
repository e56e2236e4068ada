/* cublaslt.h - one product of matrices on an NVIDIA GPU, by cuBLASLt.
 *
 *     d[m, n] = after(alpha a[m, k] b[k, n] + beta c[m, n])          `batch` times
 *
 * in row-major words: c and d are stored row by row, a and b either way (`turned`: column by
 * column).  Whoever has a result that is stored column by column swaps a and b and turns both.
 * What comes after runs while the result is still in registers and costs next to nothing:
 *
 *     BIAS            + bias[n], the same for every row: a bias over the last letters
 *     GELU            gelu(x), the approximation by tanh that bias_gelu is
 *     GELU_AUX        the same, and x (with the bias, if there is one) is kept in aux
 *     DGELU           x gelu'(aux): the gradient at what GELU_AUX kept
 *
 * BIAS goes with GELU and GELU_AUX.  beta 1 with c = x and BIAS is the end of a block, x + y + b.
 * The types of a and b are alike; c and d are alike; a and b f32: d is f32; a and b bf16 or f16:
 * d is of their type or f32; a and b SK_U8, which are floats of 8 bits and may differ: both are
 * stored along k (b turned, a not), m, n, k and ld are multiples of 16, d is bf16, f16 or f32 and
 * aligned to 16 bytes, and a_scale and b_scale, aligned so too, are what a and b are multiplied
 * with; both of them e5m2 there is not.  bias and aux are of d's type; ld and
 * step of aux are multiples of 8.  cuBLASLt does not have all of this in all alignments: where it
 * has nothing, *ran is false and nothing was done.  Sums are in f32 always, never in TF32; those
 * of 8 bits are as exact as tensor cores have them, not by CUBLASLT_MATMUL_DESC_FAST_ACCUM.
 *
 * An algorithm is chosen once for a shape.  sk_lt_prepare() takes the time of those that cuBLASLt
 * proposes (d and aux are overwritten) and writes the best into a file, because another
 * algorithm gives other bits: later runs, and other ranks of this one, read it there.  The file is
 * SKEIN_GEMM_CACHE, or gemm-<GPU>-<version>.txt in $XDG_CACHE_HOME/skein or ~/.cache/skein; without
 * a place for it every run searches for itself.  With SKEIN_GEMM_SEARCH=0 nothing is timed, no file
 * is touched, and cuBLASLt's first proposal is taken, as sk_lt_run() does for a shape that was not
 * prepared.  Algorithms that round parts of a sum to the type of the result are left out.  What
 * cuBLASLt proposes, or the file has, and then refuses to run gives way to its next proposal; if it
 * refuses all of them, it has nothing.
 *
 * The library is opened when it is first needed; nothing is linked. */
#ifndef SK_KERNEL_CUBLASLT_H
#define SK_KERNEL_CUBLASLT_H

#include "base/status.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SK_LT_WORKSPACE = 64 << 20 }; /* bytes of scratch that algorithms on Hopper like to have */

typedef enum sk_after {
    SK_AFTER_NONE,
    SK_AFTER_BIAS,
    SK_AFTER_GELU,
    SK_AFTER_GELU_BIAS,
    SK_AFTER_GELU_AUX,
    SK_AFTER_GELU_AUX_BIAS,
    SK_AFTER_DGELU
} sk_after;

typedef struct sk_lt_matrix {
    void *data; /* on the device, like all addresses here */
    sk_dtype type;
    bool turned;  /* stored column by column; a and b only */
    bool e5m2;    /* of SK_U8: so, else e4m3 (tensor/fp8_format.h) */
    int64_t ld;   /* elements from row to row; turned: from column to column */
    int64_t step; /* elements from one of the batch to the next; 0: all take the same */
} sk_lt_matrix;

typedef struct sk_product {
    int64_t m, n, k, batch; /* all over 0 */
    sk_lt_matrix a, b, d;
    sk_lt_matrix c; /* read if beta is not 0; data NULL: it is d */
    float alpha, beta;
    const float *alpha_at, *beta_at; /* or NULL: where both are on the device; beta still says
                                        whether it is 0 */
    sk_after after;
    sk_lt_matrix bias, aux;         /* bias has no ld */
    const float *a_scale, *b_scale; /* on the device, for 8 bits, each on 16 bytes; else NULL */
    bool crossed; /* for who planned it: a is the second operand of the contraction */
} sk_product;

/* workspace: on the device, aligned to 256 bytes.  ran, found: NULL if having no algorithm is a
 * failure. sk_lt_run() waits for nothing and may be recorded; sk_lt_prepare() may not. */
sk_status sk_lt_run(const sk_product *p, void *stream, void *workspace, size_t workspace_bytes,
                    bool *ran);
sk_status sk_lt_prepare(const sk_product *p, void *stream, void *workspace, size_t workspace_bytes,
                        bool *found);

#ifdef __cplusplus
}
#endif

#endif
