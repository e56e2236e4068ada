/* flash_forward.cu - the forward pass of flash attention through tensor cores; see flash_mma.h. */
#include "kernel/cuda/flash_mma.h"

/* Scores become weights, and what was summed before is brought to the new top, which is in units of
 * log2. */
template <int D, int N>
static __device__ __forceinline__ void soften(float (&s)[N / 8][4], float (&o)[D / 8][4],
                                              float (&top)[2], float (&sum)[2], float scale)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float high = -INFINITY, add = 0;
#pragma unroll
        for (int n = 0; n < N / 8; n++)
            high = fmaxf(high, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        high = fmaxf(high, __shfl_xor_sync(~0u, high, 1));
        high = fmaxf(high, __shfl_xor_sync(~0u, high, 2));
        high = fmaxf(top[half], high * scale);
        float base = high == -INFINITY ? 0 : high, keep = power2(top[half] - base);
        top[half] = high;
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int e = 2 * half; e < 2 * half + 2; e++) {
                s[n][e] = power2(s[n][e] * scale - base);
                add += s[n][e];
            }
        sum[half] = sum[half] * keep + add;
#pragma unroll
        for (int n = 0; n < D / 8; n++) o[n][2 * half] *= keep, o[n][2 * half + 1] *= keep;
    }
}

/* y and lse of the lane's two rows. */
template <int D, typename T>
static __device__ __forceinline__ void end_rows(const sk_flash &f, T *y, int64_t lse, int row,
                                                int64_t here, const float (&o)[D / 8][4],
                                                const float (&top)[2], const float (&sum)[2])
{
    int lane = (int)threadIdx.x % 32, at[2] = {row + lane / 4, row + lane / 4 + 8};
    float all[2], was[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        all[half] = sum[half] + __shfl_xor_sync(~0u, sum[half], 1);
        all[half] += __shfl_xor_sync(~0u, all[half], 2);
        was[half] = f.merge && at[half] < here ? sk_get(f.lse, lse + at[half]) : 0;
    }
    __syncwarp(); /* all four lanes of a row have read lse */
#pragma unroll
    for (int half = 0; half < 2; half++) {
        sk_ending e = sk_end_row(top[half] * LN2, all[half], f.merge, was[half]);
        if (at[half] >= here || e.leave) continue;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            int c = 8 * n + lane % 4 * 2;
            if (c >= (int)f.d) continue;
            T *p = y + at[half] * f.at_y.time + c;
            float u = e.take * o[n][2 * half], v = e.take * o[n][2 * half + 1];
            if (e.keep > 0) u += e.keep * (float)p[0], v += e.keep * (float)p[1];
            put2(p, e.nothing ? 0 : u, e.nothing ? 0 : v);
        }
        if (lane % 4 == 0) sk_put(f.lse, lse + at[half], e.lse);
    }
}

template <typename T, int D, int M> struct forward_tiles {
    T q[64 * M * (D + GAP)], k[2][64 * (D + GAP)], v[2][64 * (D + GAP)];
    int place[2][64];
};

/* Scores of what a row does not see become -infinity. */
static __device__ __forceinline__ void hide(float (&s)[8][4], const int *place,
                                            const int (&mine)[2])
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (place[8 * n + lane % 4 * 2 + e % 2] > mine[e / 2]) s[n][e] = -INFINITY;
}

template <typename T, int D, int M>
static __global__ void __launch_bounds__(THREADS) forward(const __grid_constant__ sk_flash f)
{
    extern __shared__ __align__(16) char shared[];
    forward_tiles<T, D, M> &buf = *reinterpret_cast<forward_tiles<T, D, M> *>(shared);
    const int rows = 64 * M, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int64_t tiles = (f.time.q_n + rows - 1) / rows, end = (f.time.k_n + 63) / 64;
    int64_t head = blockIdx.x / tiles, tile = tiles - 1 - blockIdx.x % tiles; /* long ones first */
    int64_t j = head % f.r, g = head / f.r % f.h, b = head / f.r / f.h, at = tile * rows;
    const T *q = (const T *)f.q + sk_head(f.at_q, b, g, j) + at * f.at_q.time;
    const T *k = (const T *)f.k + sk_head(f.at_kv, b, g, 0);
    const T *v = (const T *)f.v + sk_head(f.at_kv, b, g, 0);
    int64_t here = f.time.q_n - at;
    int2 reach = sk_reach_q(f.time, tile, rows);
    float o[M][D / 8][4] = {}, top[M][2], sum[M][2], scale = LOG2E / sqrtf((float)f.d);
    uint32_t a[D / 16][M][4];
    int mine[M][2];

    fetch<D>(buf.q, q, f.at_q.time, rows, here, (int)f.d);
    copies_end();
    int64_t n = sk_next_k(f.time, 0, end, 64, reach.y);
    fetch_keys<D>(f, k, v, n, end, buf.k[0], buf.v[0], buf.place[0]);
    copies_wait<1>();
    __syncthreads();
#pragma unroll
    for (int m = 0; m < M; m++) {
        int row = (warp * M + m) * 16;
#pragma unroll
        for (int c = 0; c < D / 16; c++) load4(a[c][m], left<D>(buf.q, row, 16 * c));
        for (int half = 0; half < 2; half++) {
            top[m][half] = -INFINITY, sum[m][half] = 0;
            mine[m][half] =
                sk_place(f.time, f.time.q_at, f.time.q_n, at + row + lane / 4 + 8 * half, -1);
        }
    }
    for (int stage = 0; n < end; stage ^= 1) {
        int64_t next = sk_next_k(f.time, n + 1, end, 64, reach.y);
        fetch_keys<D>(f, k, v, next, end, buf.k[stage ^ 1], buf.v[stage ^ 1], buf.place[stage ^ 1]);
        copies_wait<1>();
        __syncthreads();
        bool all =
            (n + 1) * 64 <= f.time.k_n && here >= rows && sk_reach_k(f.time, n, 64).y <= reach.x;
        float s[M][8][4] = {};
#pragma unroll
        for (int c = 0; c < D / 16; c++) meet<D, M, 64>(s, a[c], buf.k[stage], 16 * c);
#pragma unroll
        for (int m = 0; m < M; m++) {
            if (!all) hide(s[m], buf.place[stage], mine[m]);
            soften<D, 64>(s[m], o[m], top[m], sum[m], scale);
        }
        weigh<D, M, 64>(o, s, buf.v[stage]);
        __syncthreads();
        n = next;
    }
    T *y = (T *)f.y + sk_head(f.at_y, b, g, j) + at * f.at_y.time;
#pragma unroll
    for (int m = 0; m < M; m++)
        end_rows<D>(f, y, head * f.time.q_n + at, (warp * M + m) * 16, here, o[m], top[m], sum[m]);
}

template <typename T, int D, int M>
static sk_status start_forward(const sk_flash *f, cudaStream_t s)
{
    size_t bytes = sizeof(forward_tiles<T, D, M>);
    int64_t tiles = (f->time.q_n + 64 * M - 1) / (64 * M);
    unsigned blocks;
    SK_TRY(sk_flash_shared_memory(f, (const void *)forward<T, D, M>, bytes));
    SK_TRY(sk_flash_blocks(f, tiles * f->b * f->h * f->r, &blocks));
    forward<T, D, M><<<blocks, THREADS, bytes, s>>>(*f);
    return sk_cuda_launched(f->op);
}

template <typename T> static sk_status quick_forward(const sk_flash *f, cudaStream_t s)
{
    return f->d > 64 ? start_forward<T, 128, 1>(f, s) : start_forward<T, 64, 2>(f, s);
}

sk_status sk_flash_mma_forward(const sk_flash *f, cudaStream_t s)
{
    return f->type == SK_F16 ? quick_forward<__half>(f, s) : quick_forward<__nv_bfloat16>(f, s);
}
