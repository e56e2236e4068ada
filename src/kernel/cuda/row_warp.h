/* row_warp.h - a row held by one warp of a GPU, as it came from memory: for norms.
 *
 * A warp keeps P packs of 16 bytes a lane in registers, so a row of up to 512 P bytes crosses the
 * memory once, and asks for its next row before it works on this one: nothing waits for a block,
 * and with a dozen warps on a processor there are always enough bytes under way.  Rows of 1,600
 * elements in bf16 ran at a fifth of the memory's speed with a block for each. */
#ifndef SK_KERNEL_ROW_WARP_H
#define SK_KERNEL_ROW_WARP_H

#include "kernel/cuda/cuda.h"

enum { SK_WARPS = 8, SK_WARP_BLOCKS = 132 * 4, SK_WARP_PACKS = 8 };

template <typename T, int P> struct sk_held {
    uint4 raw[P];

    /* Row of n elements, a multiple of a pack; beyond it nothing is loaded. */
    __device__ void load(const T *row, int n)
    {
        constexpr int V = sk_pack<T>();
#pragma unroll
        for (int k = 0; k < P; k++) {
            int at = ((int)threadIdx.x + 32 * k) * V;
            if (at < n) raw[k] = *reinterpret_cast<const uint4 *>(row + at);
        }
    }

    /* f(place, elements) for each pack of this lane. */
    template <typename F> __device__ void each(int n, F f) const
    {
        constexpr int V = sk_pack<T>();
#pragma unroll
        for (int k = 0; k < P; k++) {
            int at = ((int)threadIdx.x + 32 * k) * V;
            if (at >= n) break;
            float v[V];
            sk_open<T>(raw[k], v);
            f(at, v);
        }
    }
};

static __device__ inline float sk_warp_sum(float x)
{
#pragma unroll
    for (int k = 16; k; k /= 2) x += __shfl_xor_sync(~0u, x, k);
    return x;
}

/* Calls f(r, row) for this warp's rows, each held in registers, the next one under way. */
template <typename T, int P, typename F>
static __device__ void sk_warp_rows(const T *x, int64_t rows, int n, F f)
{
    int64_t step = (int64_t)gridDim.x * SK_WARPS, r = (int64_t)blockIdx.x * SK_WARPS + threadIdx.y;
    sk_held<T, P> next;
    if (r < rows) next.load(x + r * n, n);
    for (; r < rows; r += step) {
        sk_held<T, P> row = next;
        if (r + step < rows) next.load(x + (r + step) * n, n);
        f(r, row);
    }
}

static inline unsigned sk_warp_grid(int64_t rows)
{
    int64_t blocks = (rows + SK_WARPS - 1) / SK_WARPS;
    return blocks < SK_WARP_BLOCKS ? (unsigned)blocks : (unsigned)SK_WARP_BLOCKS;
}

/* Packs a lane needs for rows of n elements; 0: too long. */
template <typename T> static int sk_warp_packs(int64_t n)
{
    int64_t p = (n + 32 * sk_pack<T>() - 1) / (32 * sk_pack<T>());
    return p > SK_WARP_PACKS ? 0 : p <= 2 ? 2 : p <= 4 ? (int)p : p <= 7 ? 7 : 8;
}

/* `call`, in which P is the number of packs. */
#define SK_WARP_CALL(packs, ...) \
    ([&]() {                     \
        switch (packs) {         \
        case 2: {                \
            constexpr int P = 2; \
            return __VA_ARGS__;  \
        }                        \
        case 3: {                \
            constexpr int P = 3; \
            return __VA_ARGS__;  \
        }                        \
        case 4: {                \
            constexpr int P = 4; \
            return __VA_ARGS__;  \
        }                        \
        case 7: {                \
            constexpr int P = 7; \
            return __VA_ARGS__;  \
        }                        \
        default: {               \
            constexpr int P = 8; \
            return __VA_ARGS__;  \
        }                        \
        }                        \
    }())

#endif
