/* residual.cu - the GPU half of residual.c. */
#include "kernel/cuda/map.h"

struct joined {
    enum { IN = 3, OUT = 1, BIAS = 2 };
    static __device__ void one(const float *x, float *y) { *y = x[0] + x[1] + x[2]; }
};

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return sk_down<joined>("residual", a, l);
}

extern "C" const sk_kernel sk_kernel_residual = {"residual", launch};
