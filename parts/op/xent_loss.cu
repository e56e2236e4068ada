/* xent_loss.cu - the GPU half of xent_loss.c: in double, like there.  Blocks add up their rows into
 * the room, and one block adds up the blocks, both in a fixed order. */
#include "graph/cuda_rows.h"

enum { WARPS = 8, BLOCK = 32 * WARPS, BLOCKS = 256 };

typedef struct sums {
    double loss, weight;
} sums;

static __device__ sums meet(sums x)
{
    return sums{sk_row_sum<WARPS>(x.loss), sk_row_sum<WARPS>(x.weight)};
}

static __global__ void __launch_bounds__(BLOCK)
    rows_of(sk_any m, sk_any s, sk_any t, sk_any w, sums *part, int64_t rows)
{
    sums y = {0, 0};
    for (int64_t r = (int64_t)blockIdx.x * BLOCK + threadIdx.x; r < rows;
         r += (int64_t)gridDim.x * BLOCK) {
        double weight = (double)sk_get(w, r);
        y.weight += weight;
        if (weight != 0)
            y.loss +=
                weight * ((double)sk_get(m, r) - (double)sk_get(t, r) + log((double)sk_get(s, r)));
    }
    y = meet(y);
    if (threadIdx.x == 0) part[blockIdx.x] = y;
}

static __global__ void __launch_bounds__(BLOCK)
    finish(const sums *part, int n, sk_any loss, sk_any weight, unsigned add)
{
    sums y = {0, 0};
    if ((int)threadIdx.x < n) y = part[threadIdx.x];
    y = meet(y);
    if (threadIdx.x) return;
    sk_put(loss, 0, (float)(y.loss + (add & 1 ? (double)sk_get(loss, 0) : 0)));
    sk_put(weight, 0, (float)(y.weight + (add & 2 ? (double)sk_get(weight, 0) : 0)));
}

static_assert(BLOCKS <= BLOCK, "finish() has a thread for each block's sums");

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    SK_TRY(sk_cuda_kinds("xent_loss", a, "ffff>ff"));
    cudaStream_t s = (cudaStream_t)l->stream;
    int64_t rows = sk_count(&a->in[0]), blocks = (rows + BLOCK - 1) / BLOCK;
    int n = blocks < BLOCKS ? (int)blocks : (int)BLOCKS;
    sums *part = (sums *)l->room;
    if (n)
        rows_of<<<n, BLOCK, 0, s>>>(sk_any_of(&a->in[0]), sk_any_of(&a->in[1]),
                                    sk_any_of(&a->in[2]), sk_any_of(&a->in[3]), part, rows);
    finish<<<1, BLOCK, 0, s>>>(part, n, sk_any_of(&a->out[0]), sk_any_of(&a->out[1]), a->add);
    return sk_cuda_launched("xent_loss");
}

extern "C" const sk_kernel sk_kernel_xent_loss = {"xent_loss", launch};
