/* ratio.cu - the GPU half of ratio.c. */
#include "kernel/cuda/cuda.h"

enum { BLOCK = 256, MOST_BLOCKS = 65536 };

static __global__ void __launch_bounds__(BLOCK)
    ratio(int64_t n, sk_any a, sk_any b, float eps, bool largest, sk_any y)
{
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * BLOCK) {
        float x = sk_get(a, i), v = sk_get(b, i), s = v < 0 ? 0 : sqrtf(v);
        float under = !largest ? s + eps : s < eps ? eps : s;
        sk_put(y, i, largest && x == 0 && under == 0 ? 0 : x / under);
    }
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    int64_t n = sk_count(&a->out[0]);
    if (!n) return SK_OK;
    unsigned blocks = sk_cuda_blocks(n, BLOCK);
    if (blocks > MOST_BLOCKS) blocks = MOST_BLOCKS;
    ratio<<<blocks, BLOCK, 0, (cudaStream_t)l->stream>>>(n, sk_any_of(&a->in[0]),
                                                         sk_any_of(&a->in[1]), (float)a->attr[0],
                                                         a->attr[1] != 0, sk_any_of(&a->out[0]));
    return sk_cuda_launched("ratio");
}

extern "C" const sk_kernel sk_kernel_ratio = {"ratio", launch};
