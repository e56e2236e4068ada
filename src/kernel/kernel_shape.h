/* kernel_shape.h - what a processor makes of an op, beyond its flops and bytes.
 *
 * Machines price each kind by its own form (plan/op_price.c).  Of a product: m, n and k, once for
 * each of `batch`.  Of attention: m queries, n keys and heads of width k; `batch` counts sequences
 * times heads. */
#ifndef SK_KERNEL_KERNEL_SHAPE_H
#define SK_KERNEL_KERNEL_SHAPE_H

#include "kernel/args.h"

typedef enum sk_kernel_kind {
    SK_KERNEL_STREAM, /* element by element, norms, copies: bytes */
    SK_KERNEL_LOSS,   /* the same, over the logits of a cross-entropy */
    SK_KERNEL_PRODUCT,
    SK_KERNEL_ATTENTION,
    SK_KERNEL_ATTENTION_GRAD
} sk_kernel_kind;

typedef struct sk_kernel_shape {
    sk_kernel_kind kind;
    bool fp8; /* operands of a product are rounded to 8 bits */
    sk_dtype type;
    int64_t batch, m, n, k;
} sk_kernel_shape;

/* Of queries "bt h r d", with so many heads in all, over so many keys. */
static inline void sk_attention_shape(sk_kernel_shape *s, const sk_view *q, int64_t heads,
                                      int64_t keys)
{
    s->batch = q->size[0] * heads;
    s->m = q->size[1];
    s->n = keys;
    s->k = q->size[4];
}

#endif
