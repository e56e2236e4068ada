/* ordered_reduce.h - sums in canonical order (base/reduction_blocks.h) on a GPU; only GPU halves
 * include it.
 *
 * Inside a reduction block a kernel adds in an order of its own, which depends on nothing but
 * places counted from the reduction block's beginning.  The sums of reduction blocks then are added
 * in pairs: in one thread as they end (sk_pairs, or sk_branches where only some reduction blocks
 * have anything to add), or as partial sums in the workspace, [reduction blocks][sums][n], which
 * sk_ordered_end adds up.  Sums of columns are sk_ordered_columns, of the same structs F as
 * kernel/cuda/column_sums.h: rows of a reduction block in blocks of 64, and these one after the
 * other, as the CPU adds them.
 *
 * There is one kernel for all sizes that may be cut, and it moves single elements: with packs here
 * and single elements there, a compiler might fuse products with sums in one and not in the other.
 */
#ifndef SK_KERNEL_ORDERED_REDUCE_H
#define SK_KERNEL_ORDERED_REDUCE_H

#include "kernel/cuda/column_sums.h"

/* Where reduction blocks end: the first begins at at[0] = 0. */
typedef struct sk_borders {
    int n; /* reduction blocks, a power of two */
    int64_t at[SK_REDUCTION_BLOCKS_MAX + 1];
} sk_borders;

/* Those of dim d, each place of which has `inner` elements. */
static inline sk_borders sk_borders_of(const sk_view *v, int d, int64_t inner)
{
    sk_borders b = {};
    b.n = sk_view_reduction_blocks(v, d, b.at);
    for (int i = 0; i <= b.n; i++) b.at[i] *= inner;
    return b;
}

/* Sums over reduction blocks that end one after the other, of V columns: a counter in binary, in
 * which the sum of every subtree waits for that of its neighbour. */
template <int V> struct sk_pairs {
    enum { LEVELS = 6 };
    float waits[LEVELS][V];

    /* Cell i, counted from 0, came to s; s becomes the sum of the largest subtree that ends with
     * it: with the last reduction block, of all. */
    __device__ inline void end(int i, float *s)
    {
        int level = 0;
        for (; i >> level & 1; level++)
#pragma unroll
            for (int e = 0; e < V; e++) s[e] = waits[level][e] + s[e];
        if (level == LEVELS) return;
#pragma unroll
        for (int e = 0; e < V; e++) waits[level][e] = s[e];
    }
};

static_assert(1 << sk_pairs<1>::LEVELS == SK_REDUCTION_BLOCKS_MAX,
              "a level for every bit of a cell");

/* The same, where reduction blocks that have nothing are left out: a zero needs no adding. Subtrees
 * that are not complete yet lie above each other, each smaller than the one below. */
template <int V> struct sk_branches {
    int n, first[sk_pairs<V>::LEVELS + 1]; /* their first reduction blocks */
    float sum[sk_pairs<V>::LEVELS + 1][V];

    __device__ inline sk_branches() : n(0) {}

    __device__ inline void meet()
    {
        n--;
#pragma unroll
        for (int e = 0; e < V; e++) sum[n - 1][e] += sum[n][e];
    }

    /* The next reduction block that has something; the subtrees of two blocks join at the highest
     * bit in which their numbers differ. */
    __device__ inline void add(int cell, const float *s)
    {
        while (n > 1 && (first[n - 2] ^ first[n - 1]) < (first[n - 1] ^ cell)) meet();
#pragma unroll
        for (int e = 0; e < V; e++) sum[n][e] = s[e];
        first[n++] = cell;
    }

    /* The sum of all, 0 of none. */
    __device__ inline void end(float *s)
    {
        while (n > 1) meet();
#pragma unroll
        for (int e = 0; e < V; e++) s[e] = n ? sum[0][e] : 0;
    }
};

/* The sum of `cells` numbers, `step` apart. */
static __device__ inline float sk_ordered_sum(const float *x, int64_t step, int cells)
{
    sk_pairs<1> pairs;
    float s = 0;
    for (int i = 0; i < cells; i++) {
        s = x[i * step];
        pairs.end(i, &s);
    }
    return s;
}

/* Columns [first, first + n) of out = partial sums [reduction blocks][sums][n]. */
sk_status sk_ordered_end(const char *op, const float *part, int cells, int sums, int64_t first,
                         int64_t n, sk_columns_out out, cudaStream_t s);

enum { SK_CELLS_ACROSS = 32, SK_CELLS_TALL = 8, SK_CELLS_ROWS = 64 };

/* Columns [first, first + width) of rows of n elements.  The blocks of rows of a reduction block
 * are summed by threads above each other, eight at a time. */
template <typename F>
static __global__ void __launch_bounds__(SK_CELLS_ACROSS *SK_CELLS_TALL)
    sk_ordered_down(F f, const __grid_constant__ sk_borders cells, int64_t n, int64_t first,
                    int64_t width, float *part)
{
    __shared__ float block[F::SUMS][SK_CELLS_TALL][SK_CELLS_ACROSS];
    int64_t at = (int64_t)blockIdx.x * SK_CELLS_ACROSS + threadIdx.x, to = cells.at[blockIdx.y + 1];
    float all[F::SUMS] = {};
    for (int64_t r = cells.at[blockIdx.y]; r < to; r += SK_CELLS_TALL * SK_CELLS_ROWS) {
        float sum[F::SUMS][1] = {};
        int64_t i = r + threadIdx.y * SK_CELLS_ROWS, end = min(i + SK_CELLS_ROWS, to);
#pragma unroll 4
        for (; i < end && at < width; i++) {
            typename F::template row<1> x;
            f.template load<1>(i, first + at, n, &x);
            f.template add<1>(x, sum);
        }
        for (int k = 0; k < F::SUMS; k++) block[k][threadIdx.y][threadIdx.x] = sum[k][0];
        __syncthreads();
        for (int y = 0; y < SK_CELLS_TALL && r + y * SK_CELLS_ROWS < to && !threadIdx.y; y++)
            for (int k = 0; k < F::SUMS; k++) all[k] += block[k][y][threadIdx.x];
        __syncthreads();
    }
    if (threadIdx.y || at >= width) return;
    for (int k = 0; k < F::SUMS; k++)
        part[((int64_t)blockIdx.y * F::SUMS + k) * width + at] = all[k];
}

/* Sums of rows of n elements, by reduction blocks of rows; as many columns at a time as the
 * workspace has place for. */
template <typename F>
static sk_status sk_ordered_columns(const char *op, F f, const sk_borders &cells, int64_t n,
                                    sk_columns_out out, const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    int64_t most = (int64_t)(l->workspace_bytes / sizeof(float)) / (cells.n * F::SUMS), width;
    for (int64_t first = 0; first < n; first += width) {
        width = n - first < most ? n - first : most;
        dim3 grid(sk_cuda_blocks(width, SK_CELLS_ACROSS), (unsigned)cells.n);
        sk_ordered_down<F><<<grid, dim3(SK_CELLS_ACROSS, SK_CELLS_TALL), 0, s>>>(
            f, cells, n, first, width, (float *)l->workspace);
        SK_TRY(sk_cuda_launched(op));
        SK_TRY(sk_ordered_end(op, (const float *)l->workspace, cells.n, F::SUMS, first, width, out,
                              s));
    }
    return SK_OK;
}

#endif
