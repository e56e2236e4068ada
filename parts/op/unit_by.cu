/* unit_by.cu - the GPU half of unit_by.c. */
#include "kernel/cuda/cuda.h"
#include "kernel/unit_inner.h"

enum { BLOCK = 256, MOST_BLOCKS = 65536 };

static __global__ void __launch_bounds__(BLOCK)
    unit_by(int64_t n, sk_any x, sk_any s, int64_t inner, int64_t batch, double eps, sk_any y)
{
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * BLOCK) {
        float by = (float)(1 / (sqrt((double)sk_get(s, i / inner % batch)) + eps));
        sk_put(y, i, sk_get(x, i) * by);
    }
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    int64_t n = sk_count(&a->out[0]);
    if (!n) return SK_OK;
    unsigned blocks = sk_cuda_blocks(n, BLOCK);
    if (blocks > MOST_BLOCKS) blocks = MOST_BLOCKS;
    unit_by<<<blocks, BLOCK, 0, (cudaStream_t)l->stream>>>(
        n, sk_any_of(&a->in[0]), sk_any_of(&a->in[1]), sk_unit_inner(a), sk_count(&a->in[1]),
        a->attr[0], sk_any_of(&a->out[0]));
    return sk_cuda_launched("unit_by");
}

extern "C" const sk_kernel sk_kernel_unit_by = {"unit_by", launch};
