/* sum.h - adding (or taking the largest of) the same stretch of several buffers.
 *
 *     const void *src[] = {a, b, c};
 *     void *dst[] = {a, b};
 *     sk_sum(SK_F32, SK_SUM, 3, src, 2, dst, n);    a[i] = b[i] = (a[i] + b[i]) + c[i]
 *
 * One pass: a few vectors of every source are added in registers in the order
 * given and stored to every destination.  bf16 and f16 are added in f32 and rounded once.  A
 * destination may be one of the sources (the same address) or must be apart from
 * all of them.  No alignment is needed.  The largest of numbers with a NaN is NaN. */
#ifndef SK_COMM_SUM_H
#define SK_COMM_SUM_H

#include "comm/comm.h"

bool sk_sum_can(sk_dtype type); /* f32 f64 bf16 f16 i32 i64; u8 has no sum */
void sk_sum(sk_dtype type, sk_reduce op, int n_src, const void *const *src, int n_dst,
            void *const *dst, int64_t n);

#endif
