/* sym_unpack.cu - the GPU half of sym_unpack.c: a thread for each number of the result. */
#include "kernel/cuda/cuda.h"
#include "kernel/symmetric.h"

enum { BLOCK = 256 };

static __global__ void __launch_bounds__(BLOCK)
    unpack(const float *x, float *y, int64_t n, int64_t half, int64_t count)
{
    int64_t stride = (int64_t)gridDim.x * BLOCK;
    for (int64_t o = (int64_t)blockIdx.x * BLOCK + threadIdx.x; o < count; o += stride) {
        int64_t r = o / n, i = r % n;
        y[o] = x[(r - i) * half + sk_symmetric_place(n, half, i, o % n)];
    }
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    sk_symmetric s = sk_symmetric_of(&a->out[0], &a->in[0]);
    int64_t n = sk_count(&a->out[0]);
    if (!n) return SK_OK;
    unpack<<<sk_cuda_blocks(n, BLOCK), BLOCK, 0, (cudaStream_t)l->stream>>>(
        (const float *)a->in[0].data, (float *)a->out[0].data, s.n, s.half, n);
    return sk_cuda_launched("sym_unpack");
}

extern "C" const sk_kernel sk_kernel_sym_unpack = {"sym_unpack", launch};
