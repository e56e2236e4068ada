/* row.h - a row held by threads of a GPU, for what needs it more than once; GPU halves include it.
 *
 * A row belongs to one warp, or to eight if it is longer than a warp holds.  Every thread keeps
 * its first 32 elements of the row in registers, so that up to 1,024 elements with one warp and
 * 8,192 with eight cross the memory once; of longer rows the rest is read again for each walk.
 * Blocks are (32 * WARPS, SK_ROW_MANY / WARPS) threads.  Sums are shuffles and then a fixed order
 * of warps: the same bits every time. */
#ifndef SK_KERNEL_ROW_H
#define SK_KERNEL_ROW_H

#include "kernel/cuda/cuda.h"

enum { SK_ROW_HELD = 32, SK_ROW_MANY = 8, SK_ROW_BLOCK = 32 * SK_ROW_MANY };

/* The sum of x over the threads of a row. */
template <int WARPS> static __device__ float sk_row_sum(float x)
{
    __shared__ float part[WARPS];
#pragma unroll
    for (int k = 16; k; k /= 2) x += __shfl_xor_sync(~0u, x, k);
    if (WARPS == 1) return x;
    __syncthreads(); /* the sum before this one has been read */
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) x += part[w];
    return x;
}

/* Loads what a thread keeps: all of it under way before the first is used. */
template <int V, int WARPS, typename T>
static __device__ void sk_row_hold(const T *row, int64_t n, float (*held)[V])
{
#pragma unroll
    for (int k = 0; k < SK_ROW_HELD / V; k++) {
        int at = ((int)threadIdx.x + k * WARPS * 32) * V;
        if (at < n) sk_load<V>(row + at, held[k]);
    }
}

/* Calls f(place, elements) for what this thread has of a row: from registers, then from memory. */
template <int V, int WARPS, typename T, typename F>
static __device__ void sk_row_walk(const T *row, int64_t n, float (*held)[V], F f)
{
    const int width = WARPS * 32 * V;
    int64_t first = (int64_t)threadIdx.x * V;
#pragma unroll
    for (int k = 0; k < SK_ROW_HELD / V; k++)
        if (first + k * width < n) f(first + k * width, held[k]);
    for (int64_t i = first + SK_ROW_HELD / V * width; i < n; i += width) {
        float v[V];
        sk_load<V>(row + i, v);
        f(i, v);
    }
}

/* Blocks for so many rows; kernels go round. */
static inline unsigned sk_row_blocks(int64_t rows, int warps)
{
    int64_t tall = SK_ROW_MANY / warps, blocks = (rows + tall - 1) / tall;
    return blocks < INT32_MAX ? (unsigned)blocks : INT32_MAX;
}

#endif
