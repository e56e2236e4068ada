/* ordered_vectors.h - vectors of double for the solvers of symmetric matrices, in an order of
 * operations that is the same wherever vectors lie. */
#ifndef SK_KERNEL_ORDERED_VECTORS_H
#define SK_KERNEL_ORDERED_VECTORS_H

#include <stdint.h>

enum { SK_DOT_LANES = 8 };

static inline double sk_dot(const double *x, const double *y, int64_t n)
{
    double lane[SK_DOT_LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + SK_DOT_LANES <= n; i += SK_DOT_LANES)
        for (int k = 0; k < SK_DOT_LANES; k++) lane[k] += x[i + k] * y[i + k];
    for (; i < n; i++) sum += x[i] * y[i];
    for (int k = 0; k < SK_DOT_LANES; k++) sum += lane[k];
    return sum;
}

/* y += a x */
static inline void sk_axpy(double *restrict y, double a, const double *restrict x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] += a * x[i];
}

#endif
