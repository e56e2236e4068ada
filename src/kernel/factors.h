/* factors.h - where the operands of `factored` lie: a matrix, a number a row, a number a column.
 *
 * "m!n,m!,n->mn", and with a letter that counts matrices anywhere before the last letter of the
 * matrix: "em!n,em!,en->emn", "m!en,em!,en->men". */
#ifndef SK_KERNEL_FACTORS_H
#define SK_KERNEL_FACTORS_H

#include "kernel/letters.h"

typedef struct sk_factors {
    int64_t batch, rows, cols; /* of matrices; of each */
    int64_t batch_step, step;  /* elements between matrices; between rows of one */
} sk_factors;

static inline sk_factors sk_factors_of(const sk_args *a)
{
    const sk_view *x = &a->in[0];
    char in[SK_MAX_DIM + 1], row[SK_MAX_DIM + 1];
    sk_letters(a->dims, 0, in);
    sk_letters(a->dims, 1, row);
    int m = (int)(strchr(in, row[strlen(row) - 1]) - in), e = x->n == 3 ? 1 - m : -1;
    sk_factors f = {1, x->size[m], x->size[x->n - 1], 0, x->step[m]};
    if (e >= 0) f.batch = x->size[e], f.batch_step = x->step[e];
    return f;
}

#endif
