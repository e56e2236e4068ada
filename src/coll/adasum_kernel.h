/* adasum_kernel.h - adding two gradients without counting twice what they have in common.
 *
 *     out = (1 - a.b / 2 a.a) a + (1 - a.b / 2 b.b) b        (Maleki et al. 2021)
 *
 * Gradients at right angles are added, equal ones averaged.  The three products are taken over all
 * n elements, so a vector must be whole: half a vector has other products.  Which vectors
 * are one (a layer, a bucket) is the caller's choice.  A zero vector passes the other through.
 *
 * Swapping a and b gives the same bits; that is what keeps ranks alike that exchange vectors and
 * both combine.  Products are summed in double, in the order of blocks of 512. */
#ifndef SK_COLL_ADASUM_KERNEL_H
#define SK_COLL_ADASUM_KERNEL_H

#include "tensor/dtype.h"

bool sk_adasum_can(sk_dtype type); /* f32 f64 bf16 f16 */
/* out may be a or b, otherwise it is apart from both. */
void sk_adasum(sk_dtype type, const void *a, const void *b, void *out, int64_t n);

#endif
