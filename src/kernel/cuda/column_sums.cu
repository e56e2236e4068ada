/* column_sums.cu - the end of a sum over rows: partial sums of blocks added up.  See column_sums.h.
 *
 * There are a few hundred of them at most for every column, and few columns: 32 threads share a
 * column, each adds every 32nd part, and one adds their sums in order. */
#include "kernel/cuda/column_sums.h"

enum { SIDE = 32 };

static __global__ void __launch_bounds__(SIDE *SIDE)
    add_up(const float *__restrict__ part, int64_t parts, int64_t n, sk_columns_out out)
{
    __shared__ double all[SIDE][SIDE + 1];
    int64_t c = (int64_t)blockIdx.x * SIDE + threadIdx.x, step = (int64_t)gridDim.y * n;
    double sum = 0;
    const float *p = part + blockIdx.y * n + c;
#pragma unroll 4
    for (int64_t b = threadIdx.y; b < parts && c < n; b += SIDE) sum += (double)p[b * step];
    all[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || c >= n) return;
    for (int y = 1; y < SIDE; y++) sum += all[y][threadIdx.x];
    sk_any to = out.to[blockIdx.y];
    if (!to.data) return;
    if (out.add >> blockIdx.y & 1) sum += (double)sk_get(to, c);
    sk_put(to, c, (float)sum);
}

sk_status sk_columns_end(const char *op, const float *part, int64_t parts, int sums, int64_t n,
                         sk_columns_out out, cudaStream_t s)
{
    dim3 grid((unsigned)((n + SIDE - 1) / SIDE), (unsigned)sums);
    if (!n) return SK_OK;
    add_up<<<grid, dim3(SIDE, SIDE), 0, s>>>(part, parts, n, out);
    return sk_cuda_launched(op);
}
