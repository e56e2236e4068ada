/* unpack.h - packed heads taken apart and put together on a GPU: bytes are moved, of any type.
 *
 * A row is a head group: q bytes of queries, then kv bytes of key and value.  A thread takes items
 * of the packed side in order, and their place in a row says where they come from or go to. */
#ifndef SK_KERNEL_UNPACK_H
#define SK_KERNEL_UNPACK_H

#include "kernel/cuda/cuda.h"

typedef struct sk_unpack {
    char *packed, *queries, *keys;
    int64_t rows, q, kv; /* bytes of a row */
} sk_unpack;

enum { SK_UNPACK_BLOCK = 256, SK_UNPACK_EACH = 4 };

/* One item of a row per thread of x; rows go by y, four under way. */
template <typename W, bool APART>
static __global__ void __launch_bounds__(SK_UNPACK_BLOCK) sk_unpack_move(const sk_unpack u)
{
    int64_t all = (u.q + u.kv) / (int64_t)sizeof(W), n_q = u.q / (int64_t)sizeof(W);
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t step = (int64_t)gridDim.y * blockDim.y,
            r = (int64_t)blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= all) return;
    W *packed = (W *)u.packed + i, *apart = i < n_q ? (W *)u.queries + i : (W *)u.keys + i - n_q;
    int64_t width = i < n_q ? n_q : all - n_q;
    for (; r < u.rows; r += SK_UNPACK_EACH * step) {
        W x[SK_UNPACK_EACH];
#pragma unroll
        for (int k = 0; k < SK_UNPACK_EACH; k++) {
            int64_t at = r + k * step;
            if (at < u.rows) x[k] = APART ? packed[at * all] : apart[at * width];
        }
#pragma unroll
        for (int k = 0; k < SK_UNPACK_EACH; k++) {
            int64_t at = r + k * step;
            if (at >= u.rows) break;
            if (APART) apart[at * width] = x[k];
            else packed[at * all] = x[k];
        }
    }
}

template <typename W> static void sk_unpack_go(const sk_unpack *u, bool apart, cudaStream_t s)
{
    int64_t all = (u->q + u->kv) / (int64_t)sizeof(W), rows = u->rows;
    unsigned across = 1; /* threads along a row */
    while (across < SK_UNPACK_BLOCK && across < all) across *= 2;
    dim3 block(across, SK_UNPACK_BLOCK / across);
    int64_t each = (int64_t)block.y * SK_UNPACK_EACH, grid_y = (rows + each - 1) / each;
    if (grid_y > 65535) grid_y = 65535; /* the kernel goes round */
    dim3 grid((unsigned)((all + across - 1) / across), (unsigned)grid_y);
    if (apart) sk_unpack_move<W, true><<<grid, block, 0, s>>>(*u);
    else sk_unpack_move<W, false><<<grid, block, 0, s>>>(*u);
}

static inline sk_status sk_unpack_start(const char *op, const sk_unpack *u, bool apart,
                                        cudaStream_t s)
{
    uintptr_t bits = (uintptr_t)u->packed | (uintptr_t)u->queries | (uintptr_t)u->keys |
                     (uintptr_t)u->q | (uintptr_t)u->kv;
    if (u->rows == 0 || u->q + u->kv == 0) return SK_OK;
    if (bits % 16 == 0) sk_unpack_go<uint4>(u, apart, s);
    else if (bits % 4 == 0) sk_unpack_go<uint32_t>(u, apart, s);
    else sk_unpack_go<uint16_t>(u, apart, s);
    return sk_cuda_launched(op);
}

#endif
