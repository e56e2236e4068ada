/* cusolver.h - eigenvectors and damped inverses of symmetric matrices on an NVIDIA GPU, by cuSOLVER
 * (cusolverDnDsyevd; cusolverDnDpotrf and potrs), in double: with the order and signs of
 * kernel/eigen.h, and the damping of kernel/cholesky.h.
 *
 * cuSOLVER waits for the device, so kernels that come here have `.waits`.  The library is opened
 * when it is first needed; nothing is linked.  Its scratch comes from the launch's workspace, and
 * what does not fit there is allocated, by the prepare functions for the first step.
 *
 * A matrix that is not finite is replaced by another before cuSOLVER sees it, and noted in *bad, as
 * is one for which it finds no result: whoever writes the result writes NaN. */
#ifndef SK_KERNEL_CUSOLVER_H
#define SK_KERNEL_CUSOLVER_H

#include "kernel/cuda/cuda.h"
#include "kernel/eigen.h"

typedef struct sk_cuda_eigen {
    double *value;  /* [n], ascending; on the device, as all of this */
    double *vector; /* [n][n]: row k is the eigenvector of value[k] */
    int *bad;       /* [2]; both 0: all is well */
} sk_cuda_eigen;

/* The result is in the launch's workspace.  x: element `from` on is an n x n matrix, of which the
 * lower triangle is read. */
sk_status sk_cuda_eigen_prepare(int64_t n, const sk_launch *l);
sk_status sk_cuda_eigen_of(const char *op, sk_any x, int64_t from, int64_t n, const sk_launch *l,
                           sk_cuda_eigen *out);

typedef struct sk_cuda_inverse {
    double *inverse; /* [n][n], of which the lower triangle counts */
    int *bad;        /* as above */
} sk_cuda_inverse;

/* attr: of sk_damping_of().  The inverse is in the launch's workspace, too. */
sk_status sk_cuda_inverse_prepare(int64_t n, const sk_launch *l);
sk_status sk_cuda_inverse_of(const char *op, sk_any x, int64_t from, int64_t n, const double *attr,
                             const sk_launch *l, sk_cuda_inverse *out);

#endif
