/* axpby.cu - the GPU half of axpby.c. */
#include "kernel/cuda/cuda.h"

enum { BLOCK = 256 };

template <typename T>
static __global__ void __launch_bounds__(BLOCK)
    axpby(int64_t n, float a, const T *x, float b, const T *y, sk_any z)
{
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * BLOCK)
        sk_put(z, i, a * (float)x[i] + b * (float)y[i]);
}

template <typename T> static sk_status run(const sk_args *g, const sk_launch *l)
{
    int64_t n = sk_count(&g->out[0]), blocks = (n + BLOCK - 1) / BLOCK;
    if (!n) return SK_OK;
    axpby<T><<<(unsigned)(blocks < 65536 ? blocks : 65536), BLOCK, 0, (cudaStream_t)l->stream>>>(
        n, (float)g->attr[0], (const T *)g->in[0].data, (float)g->attr[1], (const T *)g->in[1].data,
        sk_any_of(&g->out[0]));
    return sk_cuda_launched("axpby");
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return SK_FLOAT(a->in[0].type, run<T>(a, l));
}

extern "C" const sk_kernel sk_kernel_axpby = {"axpby", launch};
