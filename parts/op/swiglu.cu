/* swiglu.cu - the GPU half of swiglu.c, with the hardware's quick exp and quotient (see
 * bias_gelu.cu). */
#include "kernel/cuda/map.h"

struct gated {
    enum { IN = 2, OUT = 1 };
    static __device__ void one(const float *x, float *y)
    {
        *y = __fdividef(x[0], 1 + __expf(-x[0])) * x[1];
    }
};

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return sk_map<gated>("swiglu", a, l);
}

extern "C" const sk_kernel sk_kernel_swiglu = {"swiglu", launch};
