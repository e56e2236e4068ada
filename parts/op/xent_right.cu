/* xent_right.cu - the GPU half of xent_right.c: blocks count into the workspace, and one thread
 * writes the sum. */
#include "kernel/cuda/cuda.h"

enum { BLOCK = 256, BLOCKS = 1024 };

typedef unsigned long long tally;

typedef struct rows {
    sk_any m, t, w;
} rows;

static __global__ void __launch_bounds__(BLOCK) count(rows x, int64_t n, tally *found)
{
    int mine = 0;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * BLOCK)
        mine += sk_get(x.w, i) != 0 && sk_get(x.t, i) >= sk_get(x.m, i);
#pragma unroll
    for (int k = 16; k; k /= 2) mine += __shfl_xor_sync(~0u, mine, k);
    if (threadIdx.x % 32 == 0 && mine) atomicAdd(found, (tally)mine); /* whole: in any order */
}

static __global__ void put(const tally *found, sk_any y, bool add)
{
    sk_put(y, 0, (float)*found + (add ? sk_get(y, 0) : 0));
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    int64_t n = sk_count(&a->in[0]), blocks = (n + BLOCK - 1) / BLOCK;
    tally *found = (tally *)l->workspace;
    rows x = {sk_any_of(&a->in[0]), sk_any_of(&a->in[1]), sk_any_of(&a->in[2])};
    cudaMemsetAsync(found, 0, sizeof *found, s);
    if (n)
        count<<<(unsigned)(blocks < (int)BLOCKS ? blocks : (int)BLOCKS), BLOCK, 0, s>>>(x, n,
                                                                                        found);
    put<<<1, 1, 0, s>>>(found, sk_any_of(&a->out[0]), a->add & 1);
    return sk_cuda_launched("xent_right");
}

extern "C" const sk_kernel sk_kernel_xent_right = {"xent_right", launch};
