/* row_warp.h - a row held by one warp of a GPU, as it came from memory: for norms.
 *
 * A warp keeps P packs of 16 bytes a lane in registers, so a row of up to 512 P bytes crosses the
 * memory once.  Its next rows are under way into shared memory (graph/bulk.h), and nothing waits
 * for a block. */
#ifndef SK_GRAPH_ROW_WARP_H
#define SK_GRAPH_ROW_WARP_H

#include "graph/bulk.h"

enum { SK_WARPS = 16, SK_WARP_PACKS = 8, SK_WARP_RING = 200 << 10 };

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
            alignas(16) T x[V];
            *reinterpret_cast<uint4 *>(x) = raw[k];
            float v[V];
#pragma unroll
            for (int e = 0; e < V; e++) v[e] = (float)x[e];
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

/* Calls f(r, row) for this warp's rows, each held in registers. */
template <typename T, int P, typename F>
static __device__ void sk_warp_rows(const T *x, int64_t rows, int n, int stages, F f)
{
    extern __shared__ uint4 dynamic[];
    sk_ring<1> ring((char *)dynamic, x, nullptr, nullptr, n * (int)sizeof(T), rows, stages);
    while (ring.row < ring.rows) {
        sk_held<T, P> row;
        int r = ring.row;
        ring.wait();
        row.load((const T *)ring.at(0, 0), n);
        __syncwarp();
        ring.next();
        f(r, row);
    }
}

/* How a kernel that calls it is launched: blocks of (32, SK_WARPS) threads. */
typedef struct sk_warp_plan {
    unsigned grid;
    int stages, shared; /* bytes */
} sk_warp_plan;

static inline sk_warp_plan sk_warp_plan_of(int64_t rows, int64_t bytes)
{
    sk_warp_plan p = {sk_ring_grid(rows, SK_WARPS),
                      sk_ring_stages(SK_WARPS, 1, 1, bytes, SK_WARP_RING), 0};
    p.shared = sk_ring_bytes(SK_WARPS, 1, 1, bytes, p.stages);
    return p;
}

/* Packs a lane needs for rows of n elements; 0: too long. */
template <typename T> static int sk_warp_packs(int64_t n)
{
    int64_t p = (n + 32 * sk_pack<T>() - 1) / (32 * sk_pack<T>());
    return p > SK_WARP_PACKS ? 0 : p <= 2 ? 2 : p <= 4 ? (int)p : 8;
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
        default: {               \
            constexpr int P = 8; \
            return __VA_ARGS__;  \
        }                        \
        }                        \
    }())

#endif
