/* ema.cu - the GPU half of ema.c; the number of updates is read on the device. */
#include "kernel/average.h"
#include "kernel/cuda/cuda.h"

enum { BLOCK = 256, MOST_BLOCKS = 4096 };

typedef struct job {
    sk_any old, fresh, y;
    int64_t n;
    double beta, first, interval;
    int mode;
    const int64_t *updates;
} job;

static __global__ void __launch_bounds__(BLOCK) ema(const job j)
{
    __shared__ sk_average w;
    if (!threadIdx.x)
        w = sk_average_of(j.beta, j.mode, sk_average_count(*j.updates, j.first, j.interval));
    __syncthreads();
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < j.n;
         i += (int64_t)gridDim.x * BLOCK)
        sk_put(j.y, i, sk_average_one(w, sk_get(j.old, i), sk_get(j.fresh, i)));
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    job j = {sk_any_of(&a->in[0]), sk_any_of(&a->in[1]), sk_any_of(&a->out[0]),
             sk_count(&a->out[0]), a->attr[0],           a->attr[2],
             a->attr[3],           (int)a->attr[1],      l->updates};
    if (!j.n) return SK_OK;
    unsigned blocks = sk_cuda_blocks(j.n, BLOCK);
    if (blocks > MOST_BLOCKS) blocks = MOST_BLOCKS;
    ema<<<blocks, BLOCK, 0, (cudaStream_t)l->stream>>>(j);
    return sk_cuda_launched("ema");
}

extern "C" const sk_kernel sk_kernel_ema = {"ema", launch};
