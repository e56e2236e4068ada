/* cuda_rows.h - GPU halves that go along rows: the threads of a row, sums over them, walks.
 *
 * A row belongs to one warp, or to eight if it is long: threadIdx.x counts the threads of a row,
 * threadIdx.y the rows of a block.  In memory a row is some loose elements, packs of V elements on
 * 16-byte borders, and some loose elements again, so that a row that starts anywhere (50257 columns
 * of bf16) is still moved in packs; a loose element has a thread of its own.
 *
 *     sk_rows<T, V, WARPS, 1> row({x + r * n}, n);
 *     row.pass([&](int64_t i, const float (*v)[V], int count) {    v[0] are elements i, i + 1...
 *         for (int e = 0; e < count; e++) top = fmaxf(top, v[0][e]);
 *     });
 *     top = sk_row_most<WARPS>(top);
 *
 * Several operands of one shape and type are walked together if they lie alike (sk_cuda_alike);
 * else V is 1.  hold() and walk() are for those who need the row more than once: 32 elements a
 * thread stay in registers, what is beyond is read again.  Walks read an element before f is called
 * with it, so that f may write it in place. */
#ifndef SK_KERNEL_CUDA_ROWS_H
#define SK_KERNEL_CUDA_ROWS_H

#include "kernel/cuda/cuda.h"

enum { SK_ROW_WARPS = 8, SK_ROW_SHORT = 1024 }; /* a warp's row has at most so many elements */

/* f<T, V, WARPS>(...), V and WARPS by how operands lie and by the length n of a row. */
#define SK_ROW_CALL(f, T, alike, n, ...)                                                       \
    ((alike)              ? (n) > SK_ROW_SHORT ? f<T, sk_pack<T>(), SK_ROW_WARPS>(__VA_ARGS__) \
                                               : f<T, sk_pack<T>(), 1>(__VA_ARGS__)            \
                  : (n) > SK_ROW_SHORT ? f<T, 1, SK_ROW_WARPS>(__VA_ARGS__)                    \
                          : f<T, 1, 1>(__VA_ARGS__))

/* Are the borders of 16 bytes at the same places in both? */
static inline bool sk_cuda_alike(const void *a, const void *b)
{
    return ((uintptr_t)a - (uintptr_t)b) % 16 == 0;
}

/* May rows of n elements be moved in packs?  In canonical order only where all rows begin alike:
 * which element a thread has must not depend on where its row lies. */
static inline bool sk_row_packs(const sk_args *a, int64_t n)
{
    return !sk_args_canonical(a) || sk_cuda_rows(&a->in[0], n);
}

/* exp for what ends up in T.  The exact one bounds kernels that move 2 bytes an element; the quick
 * one is off by 2 ulp and by 6e-8 |x| of the result. */
template <typename T> static __device__ inline float sk_row_exp(float x)
{
    if (sizeof(T) == 4) return expf(x);
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
    return y;
}

template <int WARPS, typename X, typename F> static __device__ inline X sk_row_fold(X x, F f)
{
    __shared__ X part[WARPS];
#pragma unroll
    for (int k = 16; k; k /= 2) x = f(x, __shfl_xor_sync(~0u, x, k));
    if (WARPS == 1) return x;
    __syncthreads(); /* what was folded before this has been read */
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    x = part[0];
#pragma unroll
    for (int w = 1; w < WARPS; w++) x = f(x, part[w]);
    return x;
}

/* The sum, the maximum of x over the threads of a row: in all of them, and always in one order. */
template <int WARPS, typename X> static __device__ inline X sk_row_sum(X x)
{
    return sk_row_fold<WARPS>(x, [](X a, X b) { return a + b; });
}

template <int WARPS> static __device__ inline float sk_row_most(float x)
{
    return sk_row_fold<WARPS>(x, [](float a, float b) { return fmaxf(a, b); });
}

template <typename T, int V> struct sk_few {
    alignas(sizeof(T) * V) T x[V];

    __device__ inline void load(const T *p)
    {
        if (V == 1) x[0] = *p;
        else *reinterpret_cast<uint4 *>(x) = *reinterpret_cast<const uint4 *>(p);
    }
    __device__ inline void wide(float *v) const
    {
#pragma unroll
        for (int e = 0; e < V; e++) v[e] = (float)x[e];
    }
};

template <typename T, int V, int WARPS, int N> struct sk_rows {
    enum { THREADS = 32 * WARPS, HELD = 32 / V };
    const T *at[N];
    int64_t n, packs;
    int head, loose; /* elements before the first pack; in no pack */
    sk_few<T, V> held[HELD][N];

    __device__ inline sk_rows(const T *const (&rows)[N], int64_t size) : n(size)
    {
        for (int j = 0; j < N; j++) at[j] = rows[j];
        head = V == 1 ? 0 : (int)((0 - (uintptr_t)at[0]) % 16 / sizeof(T));
        if (head > n) head = (int)n;
        packs = (n - head) / V;
        loose = (int)(n - packs * V);
    }

    __device__ inline void load(int64_t q, sk_few<T, V> *few) const
    {
#pragma unroll
        for (int j = 0; j < N; j++) few[j].load(at[j] + head + q * V);
    }

    template <typename F> __device__ inline void give(int64_t q, const sk_few<T, V> *few, F f) const
    {
        float v[N][V];
#pragma unroll
        for (int j = 0; j < N; j++) few[j].wide(v[j]);
        f(head + q * V, v, V);
    }

    template <typename F> __device__ inline void give_loose(F f) const
    {
        float v[N][V];
        if ((int)threadIdx.x >= loose) return;
        int64_t i = (int)threadIdx.x < head ? threadIdx.x : n - loose + threadIdx.x;
        for (int j = 0; j < N; j++) v[j][0] = (float)at[j][i];
        f(i, v, 1);
    }

    template <int BATCH, typename F> __device__ inline void stream(int64_t from, F f) const
    {
        for (int64_t q = from + threadIdx.x; q < packs; q += BATCH * THREADS) {
            sk_few<T, V> few[BATCH][N];
#pragma unroll
            for (int k = 0; k < BATCH; k++)
                if (q + k * THREADS < packs) load(q + k * THREADS, few[k]);
#pragma unroll
            for (int k = 0; k < BATCH; k++)
                if (q + k * THREADS < packs) give(q + k * THREADS, few[k], f);
        }
    }

    /* Once along the row, four packs under way at a time. */
    template <typename F> __device__ inline void pass(F f) const
    {
        give_loose(f);
        stream<4>(0, f);
    }

    __device__ inline void hold()
    {
#pragma unroll
        for (int k = 0; k < HELD; k++)
            if ((int)threadIdx.x + k * THREADS < packs) load(threadIdx.x + k * THREADS, held[k]);
    }

    /* As often as one likes, after hold(). */
    template <typename F> __device__ inline void walk(F f) const
    {
        give_loose(f);
#pragma unroll
        for (int k = 0; k < HELD; k++)
            if ((int)threadIdx.x + k * THREADS < packs) give(threadIdx.x + k * THREADS, held[k], f);
        stream<1>(HELD * THREADS, f);
    }
};

/* What f computed of `count` elements, to their place. */
template <int V, typename T>
static __device__ inline void sk_row_put(T *to, const float *v, int count)
{
    if (count == V) sk_store<V>(to, v);
    else *to = (T)v[0];
}

/* Blocks and threads for so many rows. */
template <int WARPS> static inline dim3 sk_row_block()
{
    return dim3(32 * WARPS, SK_ROW_WARPS / WARPS);
}

template <int WARPS> static inline unsigned sk_row_grid(int64_t rows)
{
    return sk_cuda_blocks(rows, SK_ROW_WARPS / WARPS);
}

/* `for (SK_EACH_ROW(r, rows))` in a kernel started with these. */
#define SK_EACH_ROW(r, rows)                                    \
    int64_t r = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; \
    r < (rows);                                                 \
    r += (int64_t)gridDim.x * blockDim.y

#endif
