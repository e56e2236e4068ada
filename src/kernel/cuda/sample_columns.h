/* sample_columns.h - sums over the rows of each sample, at the speed of memory:
 * y[b, c] = sum over r of f(b * rows + r, c); only GPU halves include it.
 *
 * A block has 32 columns of a sample; neighbouring threads read neighbouring columns, and each of
 * its warps takes every LANES-th row.  Sums are in double, in an order that depends on the shape
 * alone. */
#ifndef SK_KERNEL_SAMPLE_COLUMNS_H
#define SK_KERNEL_SAMPLE_COLUMNS_H

#include "kernel/cuda/cuda.h"

enum { SK_SAMPLE_LANES = 8 };

typedef struct sk_sample_columns {
    int64_t samples, rows, cols, tiles; /* tiles of 32 columns */
    sk_any y;
    bool add;
} sk_sample_columns;

template <typename F>
static __global__ void __launch_bounds__(32 * SK_SAMPLE_LANES)
    sk_sample_columns_kernel(F f, sk_sample_columns s)
{
    __shared__ double part[SK_SAMPLE_LANES][32];
    int lane = (int)threadIdx.x / 32, x = (int)threadIdx.x % 32;
    for (int64_t job = blockIdx.x; job < s.samples * s.tiles; job += gridDim.x) {
        int64_t b = job / s.tiles, c = job % s.tiles * 32 + x;
        double sum = 0;
#pragma unroll 4
        for (int64_t r = lane; r < (c < s.cols ? s.rows : 0); r += SK_SAMPLE_LANES)
            sum += (double)f(b * s.rows + r, c);
        part[lane][x] = sum;
        __syncthreads();
        if (!lane && c < s.cols) {
            for (int k = 1; k < SK_SAMPLE_LANES; k++) sum += part[k][x];
            int64_t o = b * s.cols + c;
            sk_put(s.y, o, (float)(s.add ? sum + (double)sk_get(s.y, o) : sum));
        }
        __syncthreads(); /* the next job writes `part` */
    }
}

template <typename F>
static sk_status sk_sum_sample_columns(const char *who, F f, int64_t samples, int64_t rows,
                                       int64_t cols, sk_any y, bool add, const sk_launch *l)
{
    sk_sample_columns s = {samples, rows, cols, (cols + 31) / 32, y, add};
    int64_t jobs = samples * s.tiles;
    if (!jobs) return SK_OK;
    unsigned grid = jobs < INT32_MAX ? (unsigned)jobs : INT32_MAX; /* the kernel goes round */
    sk_sample_columns_kernel<<<grid, 32 * SK_SAMPLE_LANES, 0, (cudaStream_t)l->stream>>>(f, s);
    return sk_cuda_launched(who);
}

#endif
