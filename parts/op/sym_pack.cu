/* sym_pack.cu - the GPU half of sym_pack.c: a thread for each number of the result. */
#include "kernel/cuda/cuda.h"
#include "kernel/symmetric.h"

enum { BLOCK = 256 };

static __global__ void __launch_bounds__(BLOCK)
    pack(const float *x, float *y, const sk_symmetric s, int64_t n)
{
    int64_t stride = (int64_t)gridDim.x * BLOCK;
    for (int64_t o = (int64_t)blockIdx.x * BLOCK + threadIdx.x; o < n; o += stride) {
        int64_t r = o / s.half, j = sk_logical(&s.row, r % s.rows) + o % s.half;
        y[o] = x[r * s.n + (j < s.n ? j : j - s.n)];
    }
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    int64_t n = sk_count(&a->out[0]);
    if (!n) return SK_OK;
    pack<<<sk_cuda_blocks(n, BLOCK), BLOCK, 0, (cudaStream_t)l->stream>>>(
        (const float *)a->in[0].data, (float *)a->out[0].data,
        sk_symmetric_of(&a->in[0], &a->out[0]), n);
    return sk_cuda_launched("sym_pack");
}

extern "C" const sk_kernel sk_kernel_sym_pack = {"sym_pack", launch};
