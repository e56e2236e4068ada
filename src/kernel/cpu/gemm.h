/* gemm.h - the BLAS calls for `real`: single precision, or double in the float64 build. */
#ifndef SK_KERNEL_GEMM_H
#define SK_KERNEL_GEMM_H

#include "tensor/dtype.h"

#include <cblas.h>

#define GEMM _Generic((real)0, float : cblas_sgemm, double : cblas_dgemm)
#define GEMV _Generic((real)0, float : cblas_sgemv, double : cblas_dgemv)

#endif
