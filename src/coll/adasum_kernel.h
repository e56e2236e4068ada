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

/* n vectors at once.  The join of n is that of parts/coll/adasum.c: with r = n - 2^k too many for a
 * power of two, the first 2r are joined by twos; then neighbours, then pairs of neighbours ...
 * Every vector on the way is a sum of the n, so that the products of all pairs tell the weights. */
enum { SK_ADASUM_MOST = 64 };                  /* vectors */
static inline int sk_adasum_pair(int i, int j) /* the place of a product, i >= j */
{
    return i * (i + 1) / 2 + j;
}
double sk_adasum_product(sk_dtype type, const void *a, const void *b, int64_t n);
/* weight[i] of vector i, of n (n + 1) / 2 products. */
void sk_adasum_weights(const double *products, int n, double *weight);
/* Elements [from, to) of the weighted sum of n vectors of `length` elements, in a row. */
void sk_adasum_join(sk_dtype type, const void *vectors, int n, int64_t length, const double *weight,
                    void *out, int64_t from, int64_t to);

#endif
