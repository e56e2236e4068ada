/* xent_shared.h - cross entropy of rows that lie in shared memory; only xent_rows.cu includes it.
 *
 * As soon as a thread has made the gradient of a pack it asks for the same pack of the next row.  A
 * row that starts between two borders of 16 bytes is read from the border before it to the border
 * behind it; elements that belong to its neighbours count as -infinity, and are not written. */
#ifndef SK_KERNEL_XENT_SHARED_H
#define SK_KERNEL_XENT_SHARED_H

#include "kernel/cuda/async_copy.h"
#include "kernel/cuda/cuda_rows.h"
#include "kernel/cuda/xent_rows.h"

enum { MOST_THREADS = 1024 };

/* x of all threads, folded by f: the same in each of them.  `none` changes nothing. */
template <typename F> static __device__ inline float block_fold(float x, float none, F f)
{
    __shared__ float part[MOST_THREADS / 32];
    unsigned lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 16; k; k /= 2) x = f(x, __shfl_xor_sync(~0u, x, k));
    __syncthreads(); /* what was folded before this has been read */
    if (lane == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    x = lane < blockDim.x / 32 ? part[lane] : none;
#pragma unroll
    for (int k = 16; k; k /= 2) x = f(x, __shfl_xor_sync(~0u, x, k));
    return x;
}

static __device__ inline float most(float x)
{
    return block_fold(x, -INFINITY, [](float a, float b) { return fmaxf(a, b); });
}

static __device__ inline float total(float x)
{
    return block_fold(x, 0, [](float a, float b) { return a + b; });
}

/* Where a row lies: `packs` packs from the border `base` on, in which it begins `skip` elements
 * behind. */
template <typename T> struct span {
    const T *base;
    int packs, skip, end; /* behind the last element, counted from base */
    int32_t word;         /* the target; not looked at before the row's turn, nor is its weight */
    float weight;
};

template <typename T> static __device__ span<T> span_of(const sk_xent_job &j, int64_t r)
{
    constexpr int V = sk_pack<T>();
    span<T> s = {NULL, 0, 0, 0, 0, 0};
    if (r >= j.rows) return s;
    const T *row = (const T *)j.logits + r * j.n;
    s.skip = (int)((uintptr_t)row % 16 / sizeof(T));
    s.base = row - s.skip;
    s.end = s.skip + (int)j.n;
    s.packs = j.n ? (s.end + V - 1) / V : 0;
    s.word = j.target[r];
    s.weight = j.weight[r];
    return s;
}

/* The place of the target, counted from base; -1: it is not in this row. */
template <typename T> static __device__ int target_of(const sk_xent_job &j, const span<T> &s)
{
    int64_t at = s.word - j.at;
    return at >= 0 && at < j.n ? s.skip + (int)at : -1;
}

/* Is some of the pack outside of the row? */
template <typename T> static __device__ inline bool ragged(const span<T> &s, int q)
{
    constexpr int V = sk_pack<T>();
    return q * V < s.skip || q * V + V > s.end;
}

template <typename T>
static __device__ inline void look_at(const uint4 *tile, const span<T> &s, int q, float *v)
{
    constexpr int V = sk_pack<T>();
    alignas(16) T x[V];
    *reinterpret_cast<uint4 *>(x) = tile[q];
#pragma unroll
    for (int e = 0; e < V; e++) v[e] = (float)x[e];
    if (ragged(s, q)) {
#pragma unroll
        for (int e = 0; e < V; e++)
            if (q * V + e < s.skip || q * V + e >= s.end) v[e] = -INFINITY;
    }
}

template <typename T> static __device__ inline float largest(const uint4 *tile, const span<T> &row)
{
    constexpr int V = sk_pack<T>();
    float top = -INFINITY, v[V];
#pragma unroll 2
    for (int q = threadIdx.x; q < row.packs; q += blockDim.x) {
        look_at(tile, row, q, v);
#pragma unroll
        for (int e = 0; e < V; e++) top = fmaxf(top, v[e]);
    }
    return most(top) + 0.0f; /* -0 becomes 0 */
}

template <typename T>
static __device__ inline float exp_sum(const uint4 *tile, const span<T> &row, float top)
{
    constexpr int V = sk_pack<T>();
    float sum = 0, v[V];
#pragma unroll 2
    for (int q = threadIdx.x; q < row.packs; q += blockDim.x) {
        look_at(tile, row, q, v);
#pragma unroll
        for (int e = 0; e < V; e++) sum += sk_row_exp<T>(v[e] - top);
    }
    return total(sum);
}

template <typename T>
static __device__ inline float plain_sum(const uint4 *tile, const span<T> &row)
{
    constexpr int V = sk_pack<T>();
    float sum = 0, v[V];
#pragma unroll 2
    for (int q = threadIdx.x; q < row.packs; q += blockDim.x) {
        look_at(tile, row, q, v);
#pragma unroll
        for (int e = 0; e < V; e++)
            if (q * V + e >= row.skip && q * V + e < row.end) sum += v[e];
    }
    return total(sum);
}

/* What smoothing and the z-loss change.  The target's own part of t; what all words have of t's sum
 * over the row, and of its gradient; and of the gradient of s. */
typedef struct softer {
    float own, even;
} softer;

static __device__ inline softer softer_of(const sk_xent_job &j)
{
    return softer{1 - j.smooth, j.smooth / (float)j.n};
}

static __device__ inline float z_factor(const sk_xent_job &j, float top, float sum)
{
    return 1 + 2 * j.z * (top + logf(sum));
}

/* The gradient of one pack.  `to` is where its row's `base` would be. */
template <typename T, bool SOFT>
static __device__ inline void put_pack(const uint4 *tile, const span<T> &row, int q, int target,
                                       float top, float ds, float d, float even, T *to, bool alike)
{
    constexpr int V = sk_pack<T>();
    float v[V];
    look_at(tile, row, q, v);
#pragma unroll
    for (int e = 0; e < V; e++) v[e] = sk_row_exp<T>(v[e] - top) * ds;
    if (SOFT) {
#pragma unroll
        for (int e = 0; e < V; e++) v[e] -= even;
    }
    if (target >= q * V && target < q * V + V) {
#pragma unroll
        for (int e = 0; e < V; e++)
            if (q * V + e == target) v[e] -= d;
    }
    if (alike && !ragged(row, q)) {
        sk_store<V>(to + q * V, v);
        return;
    }
#pragma unroll
    for (int e = 0; e < V; e++)
        if (q * V + e >= row.skip && q * V + e < row.end) to[q * V + e] = (T)v[e];
}

/* m and s by thread 0, t by the thread that has the target's pack.  `all` is what other words have
 * of t. */
template <typename T, bool SOFT>
static __device__ inline void put_numbers(const sk_xent_job &j, int64_t r, const uint4 *tile,
                                          int target, float top, float sum, float all)
{
    constexpr int V = sk_pack<T>();
    if (threadIdx.x == 0) {
        if (j.m) j.m[r] = top;
        if (j.s) j.s[r] = sum;
        if (j.t && target < 0) j.t[r] = all;
    }
    if (j.t && target >= 0 && target / V % blockDim.x == threadIdx.x) {
        float t = (float)reinterpret_cast<const T *>(tile)[target];
        j.t[r] = SOFT ? softer_of(j).own * t + all : t;
    }
}

/* SOFT: with label smoothing or a z-loss. */
template <typename T, bool SOFT>
static __global__ void __launch_bounds__(MOST_THREADS, 2) in_shared(sk_xent_job j, bool alike)
{
    extern __shared__ uint4 tile[];
    constexpr int V = sk_pack<T>();
    const int me = (int)threadIdx.x, threads = (int)blockDim.x;
    float scale = *j.scale;
    span<T> row = span_of<T>(j, blockIdx.x);
    for (int q = me; q < row.packs; q += threads) sk_async_copy16(&tile[q], row.base + q * V);
    for (int64_t r = blockIdx.x; r < j.rows; r += gridDim.x) {
        sk_async_wait();
        span<T> next = span_of<T>(j, r + gridDim.x);
        float top = largest(tile, row), sum = exp_sum(tile, row, top);
        float d = row.weight * scale, ds = d / sum, even = 0, all = 0;
        if (SOFT) {
            softer f = softer_of(j);
            all = f.even * plain_sum(tile, row), even = f.even * d;
            ds *= z_factor(j, top, sum), d *= f.own;
        }
        int target = target_of(j, row);
        T *to = (T *)j.dlogits + r * j.n - row.skip;
        put_numbers<T, SOFT>(j, r, tile, target, top, sum, all);
        for (int q = me; q < row.packs || q < next.packs; q += threads) {
            if (q < row.packs) put_pack<T, SOFT>(tile, row, q, target, top, ds, d, even, to, alike);
            if (q < next.packs) sk_async_copy16(&tile[q], next.base + q * V);
        }
        row = next;
    }
}

#endif
