/* same_ids.cu - the GPU half of same_ids.c: a thread for each element of the result. */
#include "kernel/cuda/cuda.h"

enum { BLOCK = 256 };

static __global__ void __launch_bounds__(BLOCK)
    compare(const int32_t *x, const int32_t *y, int64_t rows, int64_t cols, int64_t n, sk_any z)
{
    int64_t stride = (int64_t)gridDim.x * BLOCK;
    for (int64_t o = (int64_t)blockIdx.x * BLOCK + threadIdx.x; o < n; o += stride) {
        int64_t r = o / cols;
        int32_t id = x[r];
        sk_put(z, o, id >= 0 && id == y[r / rows * cols + o % cols] ? 1.0f : 0.0f);
    }
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    int64_t rows = sk_span(&a->in[0], 1, a->in[0].n), cols = sk_span(&a->in[1], 1, a->in[1].n);
    int64_t n = sk_count(&a->out[0]);
    if (!n) return SK_OK;
    compare<<<sk_cuda_blocks(n, BLOCK), BLOCK, 0, (cudaStream_t)l->stream>>>(
        (const int32_t *)a->in[0].data, (const int32_t *)a->in[1].data, rows, cols, n,
        sk_any_of(&a->out[0]));
    return sk_cuda_launched("same_ids");
}

extern "C" const sk_kernel sk_kernel_same_ids = {"same_ids", launch};
