/* unit_inner.h - how the operands of unit_by lie: "men,e->men": of so many elements beside each
 * other, those behind the letter of the second operand, all belong to one number of it. */
#ifndef SK_KERNEL_UNIT_INNER_H
#define SK_KERNEL_UNIT_INNER_H

#include "kernel/letters.h"

static inline int64_t sk_unit_inner(const sk_args *a)
{
    const sk_view *x = &a->in[0];
    char of[SK_MAX_DIM + 1], in[SK_MAX_DIM + 1];
    int64_t n = 1;
    sk_letters(a->dims, 1, of);
    sk_letters(a->dims, 0, in);
    for (int d = x->n - 1; d >= 0 && !(*of && in[d] == *of); d--) n *= x->size[d];
    return n;
}

#endif
