/* cblas.h - the four calls of BLAS that ops make, in plain loops: for tools/gpu.sh on a machine
 * without OpenBLAS.  Slow, and right. */
#ifndef SK_TEST_CBLAS_H
#define SK_TEST_CBLAS_H

#include <stddef.h>

enum CBLAS_ORDER { CblasRowMajor = 101, CblasColMajor };
enum CBLAS_TRANSPOSE { CblasNoTrans = 111, CblasTrans };

/* c[m, n] = alpha a[m, k] b[k, n] + beta c, row by row; column by column it is the product of the
 * transposed ones. */
#define SK_PLAIN_GEMM(name, real)                                                               \
    static inline void name(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE ta,                    \
                            enum CBLAS_TRANSPOSE tb, int m, int n, int k, real alpha,           \
                            const real *a, int lda, const real *b, int ldb, real beta, real *c, \
                            int ldc)                                                            \
    {                                                                                           \
        if (order == CblasColMajor) {                                                           \
            name(CblasRowMajor, tb, ta, n, m, k, alpha, b, ldb, a, lda, beta, c, ldc);          \
            return;                                                                             \
        }                                                                                       \
        for (ptrdiff_t i = 0; i < m; i++) {                                                     \
            real *to = c + i * ldc;                                                             \
            for (ptrdiff_t j = 0; j < n; j++) to[j] = beta == 0 ? 0 : beta * to[j];             \
            for (ptrdiff_t p = 0; p < k; p++) {                                                 \
                real x = alpha * (ta == CblasTrans ? a[p * lda + i] : a[i * lda + p]);          \
                const real *from = tb == CblasTrans ? b + p : b + p * ldb;                      \
                ptrdiff_t step = tb == CblasTrans ? ldb : 1;                                    \
                for (ptrdiff_t j = 0; j < n; j++) to[j] += x * from[j * step];                  \
            }                                                                                   \
        }                                                                                       \
    }

/* y = alpha a x + beta y, a [m, n] */
#define SK_PLAIN_GEMV(name, real)                                                          \
    static inline void name(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE ta, int m, int n, \
                            real alpha, const real *a, int lda, const real *x, int step_x, \
                            real beta, real *y, int step_y)                                \
    {                                                                                      \
        int turned = (ta == CblasTrans) != (order == CblasColMajor);                       \
        ptrdiff_t rows = ta == CblasTrans ? n : m, cols = ta == CblasTrans ? m : n;        \
        for (ptrdiff_t i = 0; i < rows; i++) {                                             \
            real sum = 0;                                                                  \
            for (ptrdiff_t j = 0; j < cols; j++)                                           \
                sum += (turned ? a[j * lda + i] : a[i * lda + j]) * x[j * step_x];         \
            y[i * step_y] = alpha * sum + (beta == 0 ? 0 : beta * y[i * step_y]);          \
        }                                                                                  \
    }

SK_PLAIN_GEMM(cblas_sgemm, float)
SK_PLAIN_GEMM(cblas_dgemm, double)
SK_PLAIN_GEMV(cblas_sgemv, float)
SK_PLAIN_GEMV(cblas_dgemv, double)

#endif
