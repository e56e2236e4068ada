/* bias_gelu.cu - the GPU half of bias_gelu.c.
 *
 * The quick exp and quotient of the hardware: in bf16 the exact ones bound the kernel (2.7 instead
 * of 3.1 TB/s on an H200, tools/gpu.sh).  By its documented bound the relative error grows with
 * the exponent, to 3e-6 where gelu has fallen to 1e-8. */
#include "kernel/cuda/map.h"

struct gelu {
    enum { IN = 2, OUT = 1, BIAS = 1 };
    static __device__ void one(const float *x, float *y)
    {
        const float slope = 1.5957691216057308f, cube = 0.044715f;
        float z = x[0] + x[1];
        *y = __fdividef(z, 1 + __expf(-slope * (z + cube * z * z * z)));
    }
};

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return sk_down<gelu>("bias_gelu", a, l);
}

extern "C" const sk_kernel sk_kernel_bias_gelu = {"bias_gelu", launch};
