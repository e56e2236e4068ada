/* fp8_product.h - contractions in 8 bits: which they are, and what a GPU does with them.
 *
 * contract with attr[0] 1 rounds its operands to floats of 8 bits (tensor/fp8_format.h) before it
 * multiplies.  Tensor cores of Hopper take such operands as they are, twice as fast as 16 bits, but
 * want both of them stored along k.  So a launch takes four steps: the largest magnitude of each
 * operand; their scales; copies in 8 bits, turned where need be and filled up with zeros to a k
 * that is a multiple of 16, in the workspace; and the product, which cuBLASLt multiplies with both
 * scales.
 *
 * What cuBLASLt cannot do in 8 bits, such as sizes that are no multiples of 16 or a result that is
 * not aligned, is done with copies of 16 bits, where every number of 8 bits is one too, by the
 * plain product: the same sums, and the scales are its alpha.  The workspace is enough for either.
 *
 *     workspace: | scales | parts of the largest | operand 0 | operand 1 | what cuBLASLt takes ...
 */
#ifndef SK_KERNEL_FP8_PRODUCT_H
#define SK_KERNEL_FP8_PRODUCT_H

#include "kernel/product.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SK_FP8_PARTS = 528, SK_FP8_LINE = 256 }; /* blocks that look for the largest; alignment */

/* The first line of the workspace: floats, 16 bytes apart, because cuBLASLt refuses a scale that
 * lies otherwise, and only when it multiplies (12.9 and later). */
enum {
    SK_FP8_UP = 0,    /* of operand 0, then of operand 1 */
    SK_FP8_DOWN = 8,  /* of both, alike */
    SK_FP8_BOTH = 16, /* one down times the other */
    SK_FP8_ZERO = 20,
    SK_FP8_ONE = 24,
    SK_FP8_SLOT = 4
};

static inline bool sk_fp8_is(const sk_args *a) { return a->attr[0] != 0; }
static inline bool sk_fp8_gradient(const sk_args *a, int operand)
{
    return a->attr[1] == operand + 1; /* attr[1] 0: none is */
}

typedef struct sk_fp8_plan {
    bool eight;    /* copies are of 8 bits, along k; else of 16, as the operands lie */
    sk_dtype type; /* of 16: f16 for a result in f16, else bf16 */
    sk_product p;  /* eight: the product of the operands as they lie */
    int64_t k;     /* eight: filled up */
    size_t at[2];  /* in the workspace: of the operands of the contraction */
    size_t parts;  /* SK_FP8_PARTS numbers for each operand */
    size_t bytes;  /* what is left of the workspace begins there */
} sk_fp8_plan;

/* By sizes, types and the address of the result; wide: copies of 16 bits in any case. */
void sk_fp8_plan_of(const sk_args *a, bool wide, sk_fp8_plan *out);
size_t sk_fp8_workspace(const sk_args *a); /* for sk_op.workspace */
/* The product of the copies in 8 bits that lie in this workspace. */
sk_product sk_fp8_product(const sk_args *a, const sk_fp8_plan *f, char *workspace);

/* Scales and copies; only in skein_cuda. */
sk_status sk_fp8_fill(const sk_args *a, const sk_fp8_plan *f, const sk_launch *l);

#ifdef __cplusplus
}
#endif

#endif
