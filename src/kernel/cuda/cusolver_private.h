/* cusolver_private.h - what cusolver.cu shares with cusolver_inverse.cu: the library, opened when
 * it is first needed, and its handle and scratch on a device. */
#ifndef SK_KERNEL_CUSOLVER_PRIVATE_H
#define SK_KERNEL_CUSOLVER_PRIVATE_H

#include "kernel/cuda/cusolver.h"

#include <pthread.h>

/* Some of its functions, so that its headers need not be installed. */
typedef struct cusolverDnContext *sk_solver_handle;
enum { SK_EIG_MODE_VECTOR = 1, SK_FILL_MODE_UPPER = 1 }; /* of cuSOLVER and cuBLAS */
typedef struct sk_solver_calls {
    int (*version)(int *);
    int (*create)(sk_solver_handle *);
    int (*set_stream)(sk_solver_handle, cudaStream_t);
    int (*eigen_size)(sk_solver_handle, int jobz, int uplo, int n, const double *a, int lda,
                      const double *w, int *lwork);
    int (*eigen)(sk_solver_handle, int jobz, int uplo, int n, double *a, int lda, double *w,
                 double *work, int lwork, int *info);
    int (*factor_size)(sk_solver_handle, int uplo, int n, double *a, int lda, int *lwork);
    int (*factor)(sk_solver_handle, int uplo, int n, double *a, int lda, double *work, int lwork,
                  int *info);
    int (*solve)(sk_solver_handle, int uplo, int n, int nrhs, const double *a, int lda, double *b,
                 int ldb, int *info);
} sk_solver_calls;
extern sk_solver_calls sk_solver;

/* What a device has: a handle serves one caller at a time. */
typedef struct sk_solver_device {
    pthread_mutex_t lock;
    sk_solver_handle h;
    char *more; /* scratch that no workspace had place for */
    size_t more_bytes;
} sk_solver_device;

/* The calling thread's device, locked until the end, which returns st. */
sk_status sk_solver_begin(sk_solver_device **out);
sk_status sk_solver_end(sk_solver_device *d, sk_status st);

/* Bytes of the caller, in whole lines, and of what cuSOLVER asks for: both in the workspace, or one
 * or both in memory of the device's own. */
sk_status sk_solver_room(sk_solver_device *d, size_t own, size_t work, const sk_launch *l,
                         char **at, double **work_at);
static inline size_t sk_solver_lines(size_t bytes)
{
    return (bytes + SK_WORKSPACE_ALIGN - 1) / SK_WORKSPACE_ALIGN * SK_WORKSPACE_ALIGN;
}

sk_status sk_solver_failed(const char *what, int status);
sk_status sk_solver_cuda_failed(const char *what, cudaError_t e);

#endif
