/* sum_kernels.h - adding (or taking the largest or smallest of) the same stretch of several
 * buffers.
 *
 *     const void *src[] = {a, b, c, d};
 *     void *dst[] = {a, b};
 *     sk_sum(SK_F32, SK_SUM, 4, src, 2, dst, n);    a[i] = b[i] = (a[i] + b[i]) + (c[i] + d[i])
 *
 * One pass: a few vectors of every source are added in registers, in the order
 * of the tree in coll/call.h, and stored to every destination.  bf16 and f16 are added in f32 and
 * rounded once; integers wrap.  A mean is the sum divided by n_src before it is rounded (integers:
 * towards zero).  A destination may be one of the sources (the same address) or
 * must be apart from all of them.  No alignment is needed.  The largest and the
 * smallest of numbers with a NaN is NaN. */
#ifndef SK_COLL_SUM_KERNELS_H
#define SK_COLL_SUM_KERNELS_H

#include "coll/call.h"

bool sk_sum_can(sk_dtype type, sk_reduce op); /* any type; not SK_ADASUM */
void sk_sum(sk_dtype type, sk_reduce op, int n_src, const void *const *src, int n_dst,
            void *const *dst, int64_t n);
/* x[i] / by: what a mean does in the end, for sums that were made step by step. */
void sk_sum_divide(sk_dtype type, void *x, int64_t n, int by);

#endif
