/* flash_backward.cu - the gradient of flash attention through tensor cores; see flash_mma.h. */
#include "kernel/cuda/flash_mma.h"

template <typename T, int D> struct grad_kv_tiles {
    static const int N = D > 64 ? 32 : 64; /* queries of a tile */
    T k[64 * (D + GAP)], v[64 * (D + GAP)], q[2][N * (D + GAP)], dy[2][N * (D + GAP)];
    float2 row[2][N];
    int place[2][N];
};

/* Starts copies of a tile of queries and what belongs to them. */
template <typename T, int D>
static __device__ __forceinline__ void
fetch_queries(const sk_flash &f, const float2 *rows, int64_t group, int64_t i, int64_t end,
              int64_t tiles, grad_kv_tiles<T, D> &buf, int stage)
{
    const int N = grad_kv_tiles<T, D>::N;
    if (i < end) {
        int64_t j = i / tiles, at = i % tiles * N, here = f.time.q_n - at;
        int64_t b = group / f.h, g = group % f.h;
        int64_t q = sk_head(f.at_q, b, g, j) + at * f.at_q.time;
        int64_t y = sk_head(f.at_y, b, g, j) + at * f.at_y.time;
        fetch<D>(buf.q[stage], (const T *)f.q + q, f.at_q.time, N, here, (int)f.d);
        fetch<D>(buf.dy[stage], (const T *)f.dy + y, f.at_y.time, N, here, (int)f.d);
        int row = (int)threadIdx.x;
        if (row < N) {
            float2 x = sk_row_at(rows, (group * f.r + j) * f.time.q_n + at + row, row < here);
            buf.row[stage][row] = make_float2(x.x * LOG2E, x.y);
            buf.place[stage][row] = sk_place(f.time, f.time.q_at, f.time.q_n, at + row, -1);
        }
    }
    copies_end();
}

/* Weights and their gradient, but for the scale, from scores of 16 keys and N queries; a lane's
 * keys are at positions `mine`. */
template <int N>
static __device__ __forceinline__ void by_column(float (&s)[N / 8][4], float (&ds)[N / 8][4],
                                                 const float2 *row, const int *place,
                                                 const int (&mine)[2], float scale, bool all)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int c = 8 * n + lane % 4 * 2 + e % 2;
            float p = power2(s[n][e] * scale - row[c].x);
            if (!all && mine[e / 2] > place[c]) p = 0;
            s[n][e] = p;
            ds[n][e] = p * (ds[n][e] - row[c].y);
        }
}

template <typename T, int D>
static __global__ void __launch_bounds__(THREADS)
    grad_kv(const __grid_constant__ sk_flash f, const float2 *rows)
{
    extern __shared__ __align__(16) char shared[];
    grad_kv_tiles<T, D> &buf = *reinterpret_cast<grad_kv_tiles<T, D> *>(shared);
    const int N = grad_kv_tiles<T, D>::N, warp = (int)threadIdx.x / 32,
              lane = (int)threadIdx.x % 32;
    int64_t k_tiles = (f.time.k_n + 63) / 64, tiles = (f.time.q_n + N - 1) / N, end = f.r * tiles;
    int64_t group = blockIdx.x / k_tiles, tile = blockIdx.x % k_tiles, at = tile * 64;
    int64_t from = sk_head(f.at_kv, group / f.h, group % f.h, 0) + at * f.at_kv.time;
    int64_t here = f.time.k_n - at;
    int2 reach = sk_reach_k(f.time, tile, 64);
    float dk[1][D / 8][4] = {}, dv[1][D / 8][4] = {}, scale = LOG2E / sqrtf((float)f.d);
    int mine[2];
    for (int half = 0; half < 2; half++)
        mine[half] = sk_place(f.time, f.time.k_at, f.time.k_n, at + warp * 16 + lane / 4 + 8 * half,
                              INT32_MAX);
    fetch<D>(buf.k, (const T *)f.k + from, f.at_kv.time, 64, here, (int)f.d);
    fetch<D>(buf.v, (const T *)f.v + from, f.at_kv.time, 64, here, (int)f.d);
    int64_t n = sk_next_q(f.time, 0, end, tiles, N, reach.x);
    fetch_queries<T, D>(f, rows, group, n, end, tiles, buf, 0);
    for (int stage = 0; n < end; stage ^= 1) {
        int64_t next = sk_next_q(f.time, n + 1, end, tiles, N, reach.x);
        fetch_queries<T, D>(f, rows, group, next, end, tiles, buf, stage ^ 1);
        copies_wait<1>();
        __syncthreads();
        bool all = here >= 64 && sk_reach_q(f.time, n % tiles, N).x >= reach.y;
        float s[1][N / 8][4] = {}, ds[1][N / 8][4] = {};
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            uint32_t a[1][4], b[1][4];
            load4(a[0], left<D>(buf.k, warp * 16, 16 * c));
            load4(b[0], left<D>(buf.v, warp * 16, 16 * c));
            meet<D, 1, N>(s, a, buf.q[stage], 16 * c);
            meet<D, 1, N>(ds, b, buf.dy[stage], 16 * c);
        }
        by_column<N>(s[0], ds[0], buf.row[stage], buf.place[stage], mine, scale, all);
        weigh<D, 1, N>(dv, s, buf.dy[stage]);
        weigh<D, 1, N>(dk, ds, buf.q[stage]);
        __syncthreads();
        n = next;
    }
    put_rows<D>((T *)f.dk + from, f.at_kv.time, warp * 16, here, (int)f.d, dk[0],
                1 / sqrtf((float)f.d), f.add_kv);
    put_rows<D>((T *)f.dv + from, f.at_kv.time, warp * 16, here, (int)f.d, dv[0], 1, f.add_kv);
}

template <typename T, int D> struct grad_q_tiles {
    T q[64 * (D + GAP)], dy[64 * (D + GAP)], k[2][64 * (D + GAP)], v[2][64 * (D + GAP)];
    int place[2][64];
};

/* As by_column, for 16 queries and 64 keys: ds becomes the gradient of the scores. */
static __device__ __forceinline__ void by_row(const float (&s)[8][4], float (&ds)[8][4],
                                              const float2 (&row)[2], const int *place,
                                              const int (&mine)[2], float scale, bool all)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float p = power2(s[n][e] * scale - row[e / 2].x);
            if (!all && place[8 * n + lane % 4 * 2 + e % 2] > mine[e / 2]) p = 0;
            ds[n][e] = p * (ds[n][e] - row[e / 2].y);
        }
}

template <typename T, int D>
static __global__ void __launch_bounds__(THREADS)
    grad_q(const __grid_constant__ sk_flash f, const float2 *rows)
{
    extern __shared__ __align__(16) char shared[];
    grad_q_tiles<T, D> &buf = *reinterpret_cast<grad_q_tiles<T, D> *>(shared);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int64_t tiles = (f.time.q_n + 63) / 64, end = (f.time.k_n + 63) / 64;
    int64_t head = blockIdx.x / tiles, tile = tiles - 1 - blockIdx.x % tiles, at = tile * 64;
    int64_t j = head % f.r, g = head / f.r % f.h, b = head / f.r / f.h, here = f.time.q_n - at;
    int64_t from = sk_head(f.at_q, b, g, j) + at * f.at_q.time;
    const T *k = (const T *)f.k + sk_head(f.at_kv, b, g, 0);
    const T *v = (const T *)f.v + sk_head(f.at_kv, b, g, 0);
    int2 reach = sk_reach_q(f.time, tile, 64);
    float dq[1][D / 8][4] = {}, scale = LOG2E / sqrtf((float)f.d);
    float2 row[2];
    int mine[2];
    for (int half = 0; half < 2; half++) {
        int64_t i = at + warp * 16 + lane / 4 + 8 * half;
        mine[half] = sk_place(f.time, f.time.q_at, f.time.q_n, i, -1);
        row[half] = sk_row_at(rows, head * f.time.q_n + i, i < f.time.q_n);
        row[half].x *= LOG2E; /* weights are powers of 2 */
    }
    fetch<D>(buf.q, (const T *)f.q + from, f.at_q.time, 64, here, (int)f.d);
    fetch<D>(buf.dy, (const T *)f.dy + sk_head(f.at_y, b, g, j) + at * f.at_y.time, f.at_y.time, 64,
             here, (int)f.d);
    int64_t n = sk_next_k(f.time, 0, end, 64, reach.y);
    fetch_keys<D>(f, k, v, n, end, buf.k[0], buf.v[0], buf.place[0]);
    for (int stage = 0; n < end; stage ^= 1) {
        int64_t next = sk_next_k(f.time, n + 1, end, 64, reach.y);
        fetch_keys<D>(f, k, v, next, end, buf.k[stage ^ 1], buf.v[stage ^ 1], buf.place[stage ^ 1]);
        copies_wait<1>();
        __syncthreads();
        bool all =
            (n + 1) * 64 <= f.time.k_n && here >= 64 && sk_reach_k(f.time, n, 64).y <= reach.x;
        float s[1][8][4] = {}, ds[1][8][4] = {};
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            uint32_t x[1][4], y[1][4];
            load4(x[0], left<D>(buf.q, warp * 16, 16 * c));
            load4(y[0], left<D>(buf.dy, warp * 16, 16 * c));
            meet<D, 1, 64>(s, x, buf.k[stage], 16 * c);
            meet<D, 1, 64>(ds, y, buf.v[stage], 16 * c);
        }
        by_row(s[0], ds[0], row, buf.place[stage], mine, scale, all);
        weigh<D, 1, 64>(dq, ds, buf.k[stage]);
        __syncthreads();
        n = next;
    }
    put_rows<D>((T *)f.dq + from, f.at_q.time, warp * 16, here, (int)f.d, dq[0],
                1 / sqrtf((float)f.d), f.add_q);
}

template <typename T, int D>
static sk_status start_backward(const sk_flash *f, const float2 *rows, cudaStream_t s)
{
    size_t kv = sizeof(grad_kv_tiles<T, D>), q = sizeof(grad_q_tiles<T, D>);
    int64_t k_tiles = (f->time.k_n + 63) / 64 * f->b * f->h;
    int64_t q_tiles = (f->time.q_n + 63) / 64 * f->b * f->h * f->r;
    unsigned blocks;
    SK_TRY(sk_flash_shared_memory(f, (const void *)grad_kv<T, D>, kv));
    SK_TRY(sk_flash_shared_memory(f, (const void *)grad_q<T, D>, q));
    SK_TRY(sk_flash_blocks(f, k_tiles, &blocks));
    if (blocks) grad_kv<T, D><<<blocks, THREADS, kv, s>>>(*f, rows);
    SK_TRY(sk_flash_blocks(f, q_tiles, &blocks));
    if (blocks) grad_q<T, D><<<blocks, THREADS, q, s>>>(*f, rows);
    return sk_cuda_launched(f->op);
}

template <typename T>
static sk_status quick_backward(const sk_flash *f, const float2 *rows, cudaStream_t s)
{
    return f->d > 64 ? start_backward<T, 128>(f, rows, s) : start_backward<T, 64>(f, rows, s);
}

sk_status sk_flash_mma_backward(const sk_flash *f, const float2 *rows, cudaStream_t s)
{
    return f->type == SK_F16 ? quick_backward<__half>(f, rows, s)
                             : quick_backward<__nv_bfloat16>(f, rows, s);
}
