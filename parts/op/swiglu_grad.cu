/* swiglu_grad.cu - the GPU half of swiglu_grad.c, with the hardware's quick exp and quotient (see
 * bias_gelu.cu). */
#include "kernel/cuda/map.h"

struct gated_grad {
    enum { IN = 3, OUT = 2 };
    static __device__ void one(const float *x, float *y)
    {
        float gate = x[0], up = x[1], d = x[2], s = __fdividef(1, 1 + __expf(-gate));
        y[0] = d * up * s * (1 + gate * (1 - s));
        y[1] = d * gate * s;
    }
};

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return sk_map<gated_grad>("swiglu_grad", a, l);
}

extern "C" const sk_kernel sk_kernel_swiglu_grad = {"swiglu_grad", launch};
