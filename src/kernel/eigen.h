/* eigen.h - eigenvalues and eigenvectors of symmetric matrices, for optimizers that precondition
 * (Shampoo, SOAP, K-FAC).
 *
 * The CPU computes in double, whatever `real` is, and reads the lower triangle alone: x[i][j] with
 * j <= i, rows along the last dim.  Eigenvalues ascend.  The sign of an eigenvector is fixed: the
 * component of largest magnitude, the first of those within SK_EIGEN_TIE of it, is positive.
 * Eigenvectors of equal eigenvalues are some orthonormal basis of their space.
 *
 * The solver of our own (Householder reflections to a tridiagonal matrix, then implicit QL) goes
 * one matrix a thread and has the same bits whatever the number of threads: it is for canonical
 * order.  In fast order LAPACK's dsyevd does the work, if the BLAS that is linked has it.  On a GPU
 * cuSOLVER does (kernel/cuda/cusolver.h).
 *
 * A matrix that is not finite has no result: sk_eigen() returns false at once, and ops write
 * NaN. */
#ifndef SK_KERNEL_EIGEN_H
#define SK_KERNEL_EIGEN_H

#include "base/status.h"
#include "kernel/args.h"

#include <float.h>
#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SK_EIGEN_TIE 1e-5 /* of the largest magnitude; rounding must not decide about signs */

typedef struct sk_eigen {
    int64_t n;
    double *value;  /* [n], ascending */
    double *vector; /* [n][n]: row k is the eigenvector of value[k] */
    double *work;   /* [n][n] that the caller may use afterwards */
} sk_eigen;

/* Bytes of scratch for an n x n matrix; on a GPU, of workspace beyond SK_WORKSPACE. */
size_t sk_eigen_scratch(int64_t n);
size_t sk_eigen_workspace(int64_t n);

/* The result lies in scratch.  own: by the solver of our own. */
bool sk_eigen_of(const real *x, int64_t n, bool own, void *scratch, sk_eigen *out);
bool sk_eigen_lapack(void); /* is LAPACK linked? */

/* What inv_root makes of eigenvalues: (value + shift)^power. */
typedef struct sk_root {
    double shift, power;
    bool none; /* the matrix is zero and nothing is added: the result is the identity */
} sk_root;

/* attr: p, eps relative to the largest eigenvalue, absolute eps. */
SK_BOTH sk_root sk_root_of(const double *attr, double largest)
{
    const double tiny = 0x1p-126; /* the smallest normal f32 */
    double top = largest > tiny ? largest : tiny;
    sk_root r = {attr[1] * top + attr[2], -1 / attr[0], !(largest > 0) && !(attr[2] > 0)};
    if (!(r.shift > tiny)) r.shift = tiny;
    return r;
}

/* Square matrices as an op sees them: "m!n!->mn", or "em!n!->emn" with `batch` of them. */
typedef struct sk_squares {
    int64_t batch, n;
} sk_squares;

static inline sk_squares sk_squares_of(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    sk_squares s = {v->n == 3 ? v->size[0] : 1, v->size[v->n - 1]};
    sk_assert((v->n == 2 || v->n == 3) && v->size[v->n - 2] == s.n);
    return s;
}

/* y = a symmetric matrix whose lower triangle is given, within the range of f32; NULL: NaN. */
static inline void sk_square_put(real *y, int64_t n, const double *lower)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++)
            y[i * n + j] = y[j * n + i] =
                lower ? (real)fmax(fmin(lower[i * n + j], FLT_MAX), -FLT_MAX) : (real)NAN;
}

/* Writes what an op makes of an n x n matrix x. */
typedef void sk_square_op(const sk_args *a, int64_t n, const real *x, real *y);

/* Does so with each matrix of a thread. */
static inline void sk_squares_each(const sk_args *a, sk_square_op *one)
{
    const real *x = (const real *)a->in[0].data;
    real *y = (real *)a->out[0].data;
    sk_squares s = sk_squares_of(a);
    int64_t from, to, each = s.n * s.n;
    sk_share(a, s.batch, &from, &to);
    for (int64_t k = from; k < to; k++) one(a, s.n, x + k * each, y + k * each);
}

#ifdef __cplusplus
}
#endif

#endif
