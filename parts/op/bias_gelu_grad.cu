/* bias_gelu_grad.cu - the GPU half of bias_gelu_grad.c, with the hardware's quick exp and quotient
 * (see bias_gelu.cu). */
#include "kernel/cuda/map.h"

struct gelu_grad {
    enum { IN = 3, OUT = 1, BIAS = 1 };
    static __device__ void one(const float *x, float *dz)
    {
        const float slope = 1.5957691216057308f, cube = 0.044715f;
        float z = x[0] + x[1], zz = cube * z * z;
        float s = __fdividef(1, 1 + __expf(-slope * z * (1 + zz)));
        *dz = x[2] * s * (1 + z * (1 - s) * slope * (1 + 3 * zz));
    }
};

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return sk_down<gelu_grad>("bias_gelu_grad", a, l);
}

extern "C" const sk_kernel sk_kernel_bias_gelu_grad = {"bias_gelu_grad", launch};
