/* cholesky.h - damped inverses of symmetric positive semi-definite matrices, (A + d I)^-1, for
 * optimizers that precondition with them (K-FAC): n^3 operations, most of them in products of
 * blocks, where eigenvectors take nine times as many, half of them in products with a vector.
 *
 *     A + d I = L L'        (A + d I)^-1 = L^-T L^-1
 *
 * The CPU computes in double, whatever `real` is, and reads the lower triangle alone.  The
 * factorisation of our own goes one matrix a thread and has the same bits whatever the number of
 * threads: it is for canonical order.  In fast order LAPACK's dpotrf and dpotri do the work, if the
 * BLAS that is linked has them.  On a GPU cuSOLVER does, in double too (kernel/cuda/cusolver.h).
 *
 * d is relative to the mean eigenvalue, trace / n, which needs no eigenvalues.  Where roundings (or
 * the caller) made A so indefinite that there is no factorisation, d is raised until there is one:
 * beyond n times the largest magnitude all matrices have one (Gershgorin). */
#ifndef SK_KERNEL_CHOLESKY_H
#define SK_KERNEL_CHOLESKY_H

#include "base/status.h"
#include "kernel/args.h"

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SK_DAMPING_TRIES = 9 };

/* What is added to the diagonal.  attr: eps relative to the mean eigenvalue, absolute eps; most:
 * the largest magnitude of A; attempt: from 0 on, as often as there was no factorisation.  A matrix
 * of zeros without an absolute eps becomes the identity. */
SK_BOTH double sk_damping_of(const double *attr, int64_t n, double trace, double most, int attempt)
{
    const double tiny = 0x1p-126; /* the smallest normal f32 */
    double mean = trace / (double)n, d = attr[0] * (mean > tiny ? mean : tiny) + attr[1];
    if (!(most > 0) && !(attr[1] > 0)) return 1;
    if (!(d > tiny)) d = tiny;
    return attempt ? d + (double)n * most * pow(16.0, attempt - SK_DAMPING_TRIES + 2) : d;
}

size_t sk_inverse_scratch(int64_t n);   /* bytes, for an n x n matrix */
size_t sk_inverse_workspace(int64_t n); /* on a GPU, beyond SK_WORKSPACE */

/* The lower triangle of the inverse, in scratch; NULL if x is not finite.  own: by the
 * factorisation of our own. */
const double *sk_inverse_of(const real *x, int64_t n, const double *attr, bool own, void *scratch);

#ifdef __cplusplus
}
#endif

#endif
