/* column_sums.h - sums of columns on a GPU: over all rows, in a fixed order; only GPU halves
 * include it.
 *
 * A block takes a strip of columns and every gridDim.y-th batch of rows; threads above each other
 * add their sums in shared memory, and the block leaves SUMS rows of partial sums in the
 * workspace: [gridDim.y][SUMS][n] in f32.  sk_columns_end adds those up, in double, and writes.
 * With one block above each strip the first kernel writes itself.
 *
 * What is summed is a struct F with
 *
 *     enum { SUMS = 1, DEPTH = 4 };      sums of each column; rows that a thread has under way
 *     template <int V> struct row;       what is loaded of V columns of a row
 *     template <int V> __device__ void load(int64_t r, int64_t c, int64_t n, row<V> *x) const;
 *     template <int V> __device__ void add(const row<V> &x, float (*sum)[V]) const;
 *
 * and goes to the kernel by value. */
#ifndef SK_KERNEL_COLUMN_SUMS_H
#define SK_KERNEL_COLUMN_SUMS_H

#include "kernel/cuda/cuda.h"

enum { SK_COLUMNS_BLOCK = 256, SK_COLUMNS_ACROSS = 32, SK_COLUMNS_BLOCKS = 528 }; /* 4 an SM */

/* Where sums go: SUMS results of n elements; NULL: nowhere. */
typedef struct sk_columns_out {
    sk_any to[3];
    unsigned add; /* bit s: sum s is added */
} sk_columns_out;

/* out = the sum of `parts` rows of partial sums, [parts][sums][n]. */
sk_status sk_columns_end(const char *op, const float *part, int64_t parts, int sums, int64_t n,
                         sk_columns_out out, cudaStream_t s);

/* The sums of rows as they are. */
template <typename T> struct sk_columns_plain {
    enum { SUMS = 1, DEPTH = 4 };
    const T *x;
    template <int V> struct row {
        float x[V];
    };
    template <int V> __device__ void load(int64_t r, int64_t c, int64_t n, row<V> *to) const
    {
        sk_load<V>(x + r * n + c, to->x);
    }
    template <int V> __device__ void add(const row<V> &from, float (*sum)[V]) const
    {
        for (int e = 0; e < V; e++) sum[0][e] += from.x[e];
    }
};

/* The sums of threads above each other, added from the first down; then in threadIdx.y == 0. */
template <int SUMS, int V> static __device__ void sk_columns_join(float (*sum)[V])
{
    __shared__ float all[SK_COLUMNS_BLOCK][V + 1]; /* the odd step spreads them over banks */
    int me = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
    for (int k = 0; k < SUMS; k++) {
        __syncthreads();
        for (int e = 0; e < V; e++) all[me][e] = sum[k][e];
        __syncthreads();
        if (threadIdx.y) continue;
        for (int y = 1; y < (int)blockDim.y; y++)
            for (int e = 0; e < V; e++) sum[k][e] += all[y * blockDim.x + threadIdx.x][e];
    }
}

template <typename F, int V>
static __global__ void __launch_bounds__(SK_COLUMNS_BLOCK)
    sk_columns_down(F f, int64_t rows, int64_t n, float *part, sk_columns_out out)
{
    int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    int64_t step = (int64_t)gridDim.y * blockDim.y;
    float sum[F::SUMS][V] = {};
    for (int64_t r = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; r < rows && c < n;
         r += F::DEPTH * step) {
        typename F::template row<V> x[F::DEPTH];
#pragma unroll
        for (int k = 0; k < F::DEPTH; k++)
            if (r + k * step < rows) f.template load<V>(r + k * step, c, n, &x[k]);
#pragma unroll
        for (int k = 0; k < F::DEPTH; k++)
            if (r + k * step < rows) f.template add<V>(x[k], sum);
    }
    sk_columns_join<F::SUMS, V>(sum);
    if (threadIdx.y || c >= n) return;
    for (int k = 0; k < F::SUMS; k++) {
        if (!out.to[k].data) continue;
        if (gridDim.y == 1) sk_put_all<V>(out.to[k], c, sum[k], out.add >> k & 1, false);
        else sk_store_at<V>(part + ((int64_t)blockIdx.y * F::SUMS + k) * n + c, sum[k], V > 1);
    }
}

/* Sums over `rows` rows of n elements; V: 1, or elements of a pack where rows are aligned to it.
 * Partial sums take at most 4 * SUMS * V * SK_COLUMNS_BLOCKS * SK_COLUMNS_ACROSS bytes of
 * workspace. */
template <typename F, int V>
static sk_status sk_columns(const char *op, F f, int64_t rows, int64_t n, sk_columns_out out,
                            const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    int64_t packs = n / V, y;
    unsigned across = 1;
    if (!n) return SK_OK;
    while (across < SK_COLUMNS_ACROSS && across < packs) across *= 2;
    dim3 block(across, SK_COLUMNS_BLOCK / across);
    int64_t x = (packs + across - 1) / across, most = (rows + block.y - 1) / block.y;
    y = SK_COLUMNS_BLOCKS / x < most ? SK_COLUMNS_BLOCKS / x : most;
    if (y < 1) y = 1;
    sk_columns_down<F, V>
        <<<dim3((unsigned)x, (unsigned)y), block, 0, s>>>(f, rows, n, (float *)l->workspace, out);
    SK_TRY(sk_cuda_launched(op));
    return y == 1 ? SK_OK : sk_columns_end(op, (const float *)l->workspace, y, F::SUMS, n, out, s);
}

#endif
