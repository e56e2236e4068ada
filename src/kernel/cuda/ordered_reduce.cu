/* ordered_reduce.cu - the end of a sum in canonical order: reduction blocks are added in pairs. See
 * ordered_reduce.h. */
#include "kernel/cuda/ordered_reduce.h"

enum { BLOCK = 256 };

/* blockIdx.y: which sum. */
static __global__ void __launch_bounds__(BLOCK)
    meet(const float *part, int cells, int64_t first, int64_t n, sk_columns_out out)
{
    sk_any to = out.to[blockIdx.y];
    bool add = out.add >> blockIdx.y & 1;
    for (int64_t c = (int64_t)blockIdx.x * BLOCK + threadIdx.x; c < n && to.data;
         c += (int64_t)gridDim.x * BLOCK) {
        float sum = sk_ordered_sum(part + blockIdx.y * n + c, gridDim.y * n, cells);
        sk_put(to, first + c, add ? sk_get(to, first + c) + sum : sum);
    }
}

sk_status sk_ordered_end(const char *op, const float *part, int cells, int sums, int64_t first,
                         int64_t n, sk_columns_out out, cudaStream_t s)
{
    if (!n) return SK_OK;
    meet<<<dim3(sk_cuda_blocks(n, BLOCK), (unsigned)sums), BLOCK, 0, s>>>(part, cells, first, n,
                                                                          out);
    return sk_cuda_launched(op);
}
