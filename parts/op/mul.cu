/* mul.cu - the GPU half of mul.c. */
#include "kernel/cuda/map.h"

struct times {
    enum { IN = 2, OUT = 1 };
    static __device__ void one(const float *x, float *y) { *y = x[0] * x[1]; }
};

static sk_status launch(const sk_args *a, const sk_launch *l) { return sk_map<times>("mul", a, l); }

extern "C" const sk_kernel sk_kernel_mul = {"mul", launch};
