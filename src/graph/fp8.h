/* fp8.h - contractions in 8 bits: which they are, and what a GPU does with them.
 *
 * contract with attr[0] 1 rounds its operands to floats of 8 bits (tensor/fp8.h) before it
 * multiplies.  Tensor cores of Hopper take such operands as they are, twice as fast as 16 bits, but
 * want both of them stored along k.  So a launch takes four steps: the largest magnitude of each
 * operand; their scales; copies in 8 bits, turned where need be and filled up with zeros to a k
 * that is a multiple of 16, in the room; and the product, which cuBLASLt multiplies with both
 * scales.
 *
 * What cuBLASLt cannot do in 8 bits, such as sizes that are no multiples of 16, is done with copies
 * in f32 of the rounded numbers, by the plain product: the same result, slower.
 *
 *     room: | scales | parts of the largest | operand 0 | operand 1 | what cuBLASLt takes ...
 */
#ifndef SK_GRAPH_FP8_H
#define SK_GRAPH_FP8_H

#include "graph/product.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SK_FP8_PARTS = 528, SK_FP8_LINE = 256 }; /* blocks that look for the largest; alignment */

static inline bool sk_fp8_is(const sk_args *a) { return a->attr[0] != 0; }
static inline bool sk_fp8_gradient(const sk_args *a, int operand)
{
    return a->attr[1] == operand + 1; /* attr[1] 0: none is */
}

typedef struct sk_fp8_plan {
    bool eight;   /* copies are of 8 bits, along k; else of f32, as the operands lie */
    sk_product p; /* eight: the product of the operands as they lie */
    int64_t k;    /* eight: filled up */
    size_t at[2]; /* in the room: of the operands of the contraction */
    size_t parts; /* SK_FP8_PARTS numbers for each operand; the scales lie at 0, up and down */
    size_t bytes; /* what is left of the room begins there */
} sk_fp8_plan;

/* By sizes and types alone; wide: copies of f32 in any case. */
void sk_fp8_plan_of(const sk_args *a, bool wide, sk_fp8_plan *out);
size_t sk_fp8_room(const sk_args *a); /* for sk_op.room */
/* The product of the copies in 8 bits that lie in this room. */
sk_product sk_fp8_product(const sk_args *a, const sk_fp8_plan *f, char *room);

/* Scales and copies; only in skein_cuda. */
sk_status sk_fp8_fill(const sk_args *a, const sk_fp8_plan *f, const sk_launch *l);

#ifdef __cplusplus
}
#endif

#endif
