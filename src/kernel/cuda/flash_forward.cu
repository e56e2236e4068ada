/* flash.cu - flash attention through tensor cores; see flash.h.
 *
 * A block is four warps, and a warp owns 16 rows (32 in the forward pass up to d = 64) of what the
 * block owns: queries in `forward` and `grad_q`, keys in `grad_kv`.  Products are
 * mma.m16n8k16 with f32 sums.  What a warp makes is in the layout that the next product wants on
 * its left side, so that probabilities never leave the registers; the gradient of keys computes
 * its scores turned around for this reason.  The other side comes by cp.async, two tiles under way,
 * into rows padded by 16 bytes, of which ldmatrix reads eight without a conflict.
 *
 * D is d rounded up to 64 or 128; columns beyond d are zeros. */
#include "kernel/cuda/flash_tile.h"

enum { WARPS = 4, THREADS = 32 * WARPS, GAP = 8 /* elements behind a row of a tile */ };

constexpr float LOG2E = 1.4426950408889634f, LN2 = 0.6931471805599453f;

/* ---- instructions */

static __device__ __forceinline__ void copy16(void *to, const void *from, bool real)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    int bytes = real ? 16 : 0; /* the rest becomes zeros */
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(at), "l"(from), "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void copies_end()
{
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

template <int N>
static __device__ __forceinline__ void copies_wait() /* all but the last N groups */
{
    asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory");
}

static __device__ __forceinline__ void load4(uint32_t (&x)[4], const void *from)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(from);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
}

static __device__ __forceinline__ void load4_turned(uint32_t (&x)[4], const void *from)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(from);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
}

static __device__ __forceinline__ void mma(__nv_bfloat16, float (&c)[4], const uint32_t (&a)[4],
                                           uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ void mma(__half, float (&c)[4], const uint32_t (&a)[4],
                                           uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ float power2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ uint32_t two(__nv_bfloat16, float x, float y)
{
    __nv_bfloat162 v = __floats2bfloat162_rn(x, y);
    return *reinterpret_cast<uint32_t *>(&v);
}

static __device__ __forceinline__ uint32_t two(__half, float x, float y)
{
    __half2 v = __floats2half2_rn(x, y);
    return *reinterpret_cast<uint32_t *>(&v);
}

/* ---- tiles: rows of D elements and GAP more */

/* `rows` rows of which the first `here` are there, and d of their D elements. */
template <int D, typename T>
static __device__ __forceinline__ void fetch(T *to, const T *from, int64_t step, int rows,
                                             int64_t here, int d)
{
    for (int i = (int)threadIdx.x; i < rows * (D / 8); i += THREADS) {
        int row = i / (D / 8), c = i % (D / 8) * 8;
        bool real = row < here && c < d;
        copy16(to + row * (D + GAP) + c, real ? from + row * step + c : from, real);
    }
}

/* This lane's address for load4 of 16 x 16 elements at (row, c): as the left side of a product,
 * as the right side where a row of the tile is a column of it, and the same turned around. */
template <int D, typename T>
static __device__ __forceinline__ const T *left(const T *tile, int row, int c)
{
    int lane = (int)threadIdx.x % 32;
    return tile + (row + lane % 16) * (D + GAP) + c + lane / 16 * 8;
}

template <int D, typename T>
static __device__ __forceinline__ const T *right(const T *tile, int row, int c)
{
    int lane = (int)threadIdx.x % 32;
    return tile + (row + lane / 16 * 8 + lane % 8) * (D + GAP) + c + lane / 8 % 2 * 8;
}

/* c += a times the columns of tile rows [0, N), over elements [at, at + 16): for M pieces of 16
 * rows at once, as what is loaded then serves them all. */
template <int D, int M, int N, typename T>
static __device__ __forceinline__ void meet(float (&c)[M][N / 8][4], const uint32_t (&a)[M][4],
                                            const T *tile, int at)
{
#pragma unroll
    for (int n = 0; n < N / 16; n++) {
        uint32_t b[4];
        load4(b, right<D>(tile, 16 * n, at));
#pragma unroll
        for (int m = 0; m < M; m++) {
            mma(T(), c[m][2 * n], a[m], b[0], b[1]);
            mma(T(), c[m][2 * n + 1], a[m], b[2], b[3]);
        }
    }
}

/* out += weights p times the tile's N rows. */
template <int D, int M, int N, typename T>
static __device__ __forceinline__ void weigh(float (&out)[M][D / 8][4],
                                             const float (&p)[M][N / 8][4], const T *tile)
{
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        uint32_t a[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) {
            const float *x = p[m][2 * k], *y = p[m][2 * k + 1];
            a[m][0] = two(T(), x[0], x[1]), a[m][1] = two(T(), x[2], x[3]);
            a[m][2] = two(T(), y[0], y[1]), a[m][3] = two(T(), y[2], y[3]);
        }
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t b[4];
            load4_turned(b, left<D>(tile, 16 * k, 16 * n));
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma(T(), out[m][2 * n], a[m], b[0], b[1]);
                mma(T(), out[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* Two neighbours of a row. */
static __device__ __forceinline__ void put2(__nv_bfloat16 *p, float x, float y)
{
    *reinterpret_cast<__nv_bfloat162 *>(p) = __floats2bfloat162_rn(x, y);
}

static __device__ __forceinline__ void put2(__half *p, float x, float y)
{
    *reinterpret_cast<__half2 *>(p) = __floats2half2_rn(x, y);
}

/* to[row] (+)= scale * sums, for the two rows that a lane has; `here` rows are there. */
template <int D, typename T>
static __device__ __forceinline__ void put_rows(T *to, int64_t step, int row, int64_t here, int d,
                                                const float (&sums)[D / 8][4], float scale,
                                                bool add)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int at = row + lane / 4 + 8 * half;
        if (at >= here) continue;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            int c = 8 * n + lane % 4 * 2;
            if (c >= d) continue;
            T *p = to + at * step + c;
            float x = sums[n][2 * half] * scale, y = sums[n][2 * half + 1] * scale;
            if (add) x += (float)p[0], y += (float)p[1];
            put2(p, x, y);
        }
    }
}

/* ---- forward */

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

template <typename T, int D, int M> struct forward_room {
    T q[64 * M * (D + GAP)], k[2][64 * (D + GAP)], v[2][64 * (D + GAP)];
    int place[2][64];
};

/* Starts copies of a tile of keys and values. */
template <int D, typename T>
static __device__ __forceinline__ void fetch_keys(const sk_flash &f, const T *k, const T *v,
                                                  int64_t tile, int64_t end, T *to_k, T *to_v,
                                                  int *place)
{
    if (tile < end) {
        int64_t at = tile * 64, step = f.at_kv.time;
        fetch<D>(to_k, k + at * step, step, 64, f.time.k_n - at, (int)f.d);
        fetch<D>(to_v, v + at * step, step, 64, f.time.k_n - at, (int)f.d);
        if (threadIdx.x < 64)
            place[threadIdx.x] =
                sk_place(f.time, f.time.k_at, f.time.k_n, at + threadIdx.x, INT32_MAX);
    }
    copies_end();
}

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
    forward_room<T, D, M> &room = *reinterpret_cast<forward_room<T, D, M> *>(shared);
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

    fetch<D>(room.q, q, f.at_q.time, rows, here, (int)f.d);
    copies_end();
    int64_t n = sk_next_k(f.time, 0, end, 64, reach.y);
    fetch_keys<D>(f, k, v, n, end, room.k[0], room.v[0], room.place[0]);
    copies_wait<1>();
    __syncthreads();
#pragma unroll
    for (int m = 0; m < M; m++) {
        int row = (warp * M + m) * 16;
#pragma unroll
        for (int c = 0; c < D / 16; c++) load4(a[c][m], left<D>(room.q, row, 16 * c));
        for (int half = 0; half < 2; half++) {
            top[m][half] = -INFINITY, sum[m][half] = 0;
            mine[m][half] =
                sk_place(f.time, f.time.q_at, f.time.q_n, at + row + lane / 4 + 8 * half, -1);
        }
    }
    for (int stage = 0; n < end; stage ^= 1) {
        int64_t next = sk_next_k(f.time, n + 1, end, 64, reach.y);
        fetch_keys<D>(f, k, v, next, end, room.k[stage ^ 1], room.v[stage ^ 1],
                      room.place[stage ^ 1]);
        copies_wait<1>();
        __syncthreads();
        bool all =
            (n + 1) * 64 <= f.time.k_n && here >= rows && sk_reach_k(f.time, n, 64).y <= reach.x;
        float s[M][8][4] = {};
#pragma unroll
        for (int c = 0; c < D / 16; c++) meet<D, M, 64>(s, a[c], room.k[stage], 16 * c);
#pragma unroll
        for (int m = 0; m < M; m++) {
            if (!all) hide(s[m], room.place[stage], mine[m]);
            soften<D, 64>(s[m], o[m], top[m], sum[m], scale);
        }
        weigh<D, M, 64>(o, s, room.v[stage]);
        __syncthreads();
        n = next;
    }
    T *y = (T *)f.y + sk_head(f.at_y, b, g, j) + at * f.at_y.time;
#pragma unroll
    for (int m = 0; m < M; m++)
        end_rows<D>(f, y, head * f.time.q_n + at, (warp * M + m) * 16, here, o[m], top[m], sum[m]);
}

/* ---- backward */

enum { LANES = 8 }; /* of a row */

/* rows[i] = (lse, sum of dy * y); see sk_row_at. */
template <typename T, int V>
static __global__ void __launch_bounds__(256)
    row_sums(const __grid_constant__ sk_flash f, float2 *rows, int64_t n_rows)
{
    int64_t at = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / LANES;
    int lane = (int)threadIdx.x % LANES;
    float sum = 0;
    if (at >= n_rows) return; /* whole groups of lanes */
    int64_t j = at % f.r, g = at / f.r % f.h, i = at / f.r / f.h % f.time.q_n;
    int64_t b = at / f.r / f.h / f.time.q_n, from = sk_head(f.at_y, b, g, j) + i * f.at_y.time;
    for (int64_t c = lane * V; c < f.d; c += LANES * V) {
        float y[V], dy[V];
        sk_load<V>((const T *)f.y + from + c, y);
        sk_load<V>((const T *)f.dy + from + c, dy);
#pragma unroll
        for (int e = 0; e < V; e++) sum += y[e] * dy[e];
    }
    unsigned mine = 0xffu << ((threadIdx.x % 32) / LANES * LANES);
#pragma unroll
    for (int k = LANES / 2; k; k /= 2) sum += __shfl_xor_sync(mine, sum, k);
    int64_t to = ((b * f.h + g) * f.r + j) * f.time.q_n + i;
    float lse = sk_get(f.lse, to);
    if (!lane) rows[to] = make_float2(lse == -INFINITY ? INFINITY : lse, sum);
}

template <typename T, int D> struct grad_kv_room {
    static const int N = D > 64 ? 32 : 64; /* queries of a tile */
    T k[64 * (D + GAP)], v[64 * (D + GAP)], q[2][N * (D + GAP)], dy[2][N * (D + GAP)];
    float2 row[2][N];
    int place[2][N];
};

/* Starts copies of a tile of queries and what belongs to them. */
template <typename T, int D>
static __device__ __forceinline__ void
fetch_queries(const sk_flash &f, const float2 *rows, int64_t group, int64_t i, int64_t end,
              int64_t tiles, grad_kv_room<T, D> &room, int stage)
{
    const int N = grad_kv_room<T, D>::N;
    if (i < end) {
        int64_t j = i / tiles, at = i % tiles * N, here = f.time.q_n - at;
        int64_t b = group / f.h, g = group % f.h;
        int64_t q = sk_head(f.at_q, b, g, j) + at * f.at_q.time;
        int64_t y = sk_head(f.at_y, b, g, j) + at * f.at_y.time;
        fetch<D>(room.q[stage], (const T *)f.q + q, f.at_q.time, N, here, (int)f.d);
        fetch<D>(room.dy[stage], (const T *)f.dy + y, f.at_y.time, N, here, (int)f.d);
        int row = (int)threadIdx.x;
        if (row < N) {
            float2 x = sk_row_at(rows, (group * f.r + j) * f.time.q_n + at + row, row < here);
            room.row[stage][row] = make_float2(x.x * LOG2E, x.y);
            room.place[stage][row] = sk_place(f.time, f.time.q_at, f.time.q_n, at + row, -1);
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
    grad_kv_room<T, D> &room = *reinterpret_cast<grad_kv_room<T, D> *>(shared);
    const int N = grad_kv_room<T, D>::N, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
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
    fetch<D>(room.k, (const T *)f.k + from, f.at_kv.time, 64, here, (int)f.d);
    fetch<D>(room.v, (const T *)f.v + from, f.at_kv.time, 64, here, (int)f.d);
    int64_t n = sk_next_q(f.time, 0, end, tiles, N, reach.x);
    fetch_queries<T, D>(f, rows, group, n, end, tiles, room, 0);
    for (int stage = 0; n < end; stage ^= 1) {
        int64_t next = sk_next_q(f.time, n + 1, end, tiles, N, reach.x);
        fetch_queries<T, D>(f, rows, group, next, end, tiles, room, stage ^ 1);
        copies_wait<1>();
        __syncthreads();
        bool all = here >= 64 && sk_reach_q(f.time, n % tiles, N).x >= reach.y;
        float s[1][N / 8][4] = {}, ds[1][N / 8][4] = {};
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            uint32_t a[1][4], b[1][4];
            load4(a[0], left<D>(room.k, warp * 16, 16 * c));
            load4(b[0], left<D>(room.v, warp * 16, 16 * c));
            meet<D, 1, N>(s, a, room.q[stage], 16 * c);
            meet<D, 1, N>(ds, b, room.dy[stage], 16 * c);
        }
        by_column<N>(s[0], ds[0], room.row[stage], room.place[stage], mine, scale, all);
        weigh<D, 1, N>(dv, s, room.dy[stage]);
        weigh<D, 1, N>(dk, ds, room.q[stage]);
        __syncthreads();
        n = next;
    }
    put_rows<D>((T *)f.dk + from, f.at_kv.time, warp * 16, here, (int)f.d, dk[0],
                1 / sqrtf((float)f.d), f.add_kv);
    put_rows<D>((T *)f.dv + from, f.at_kv.time, warp * 16, here, (int)f.d, dv[0], 1, f.add_kv);
}

template <typename T, int D> struct grad_q_room {
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
    grad_q_room<T, D> &room = *reinterpret_cast<grad_q_room<T, D> *>(shared);
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
    fetch<D>(room.q, (const T *)f.q + from, f.at_q.time, 64, here, (int)f.d);
    fetch<D>(room.dy, (const T *)f.dy + sk_head(f.at_y, b, g, j) + at * f.at_y.time, f.at_y.time,
             64, here, (int)f.d);
    int64_t n = sk_next_k(f.time, 0, end, 64, reach.y);
    fetch_keys<D>(f, k, v, n, end, room.k[0], room.v[0], room.place[0]);
    for (int stage = 0; n < end; stage ^= 1) {
        int64_t next = sk_next_k(f.time, n + 1, end, 64, reach.y);
        fetch_keys<D>(f, k, v, next, end, room.k[stage ^ 1], room.v[stage ^ 1],
                      room.place[stage ^ 1]);
        copies_wait<1>();
        __syncthreads();
        bool all =
            (n + 1) * 64 <= f.time.k_n && here >= 64 && sk_reach_k(f.time, n, 64).y <= reach.x;
        float s[1][8][4] = {}, ds[1][8][4] = {};
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            uint32_t x[1][4], y[1][4];
            load4(x[0], left<D>(room.q, warp * 16, 16 * c));
            load4(y[0], left<D>(room.dy, warp * 16, 16 * c));
            meet<D, 1, 64>(s, x, room.k[stage], 16 * c);
            meet<D, 1, 64>(ds, y, room.v[stage], 16 * c);
        }
        by_row(s[0], ds[0], row, room.place[stage], mine, scale, all);
        weigh<D, 1, 64>(dq, ds, room.k[stage]);
        __syncthreads();
        n = next;
    }
    put_rows<D>((T *)f.dq + from, f.at_q.time, warp * 16, here, (int)f.d, dq[0],
                1 / sqrtf((float)f.d), f.add_q);
}

/* ---- launches */

static sk_status room_for(const sk_flash *f, const void *kernel, size_t bytes)
{
    cudaError_t e =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (e == cudaSuccess) return SK_OK;
    (void)cudaGetLastError();
    return sk_fail(SK_EIO, "%s: a block needs %zu bytes of shared memory: %s", f->op, bytes,
                   cudaGetErrorString(e));
}

static sk_status blocks_of(const sk_flash *f, int64_t n, unsigned *out)
{
    *out = (unsigned)n;
    if (n <= INT32_MAX) return SK_OK;
    return sk_fail(SK_ECONF, "%s: %lld blocks are more than one launch can have", f->op,
                   (long long)n);
}

template <typename T, int D, int M>
static sk_status start_forward(const sk_flash *f, cudaStream_t s)
{
    size_t bytes = sizeof(forward_room<T, D, M>);
    int64_t tiles = (f->time.q_n + 64 * M - 1) / (64 * M);
    unsigned blocks;
    SK_TRY(room_for(f, (const void *)forward<T, D, M>, bytes));
    SK_TRY(blocks_of(f, tiles * f->b * f->h * f->r, &blocks));
    forward<T, D, M><<<blocks, THREADS, bytes, s>>>(*f);
    return sk_cuda_launched(f->op);
}

template <typename T, int D>
static sk_status start_backward(const sk_flash *f, const float2 *rows, cudaStream_t s)
{
    size_t kv = sizeof(grad_kv_room<T, D>), q = sizeof(grad_q_room<T, D>);
    int64_t k_tiles = (f->time.k_n + 63) / 64 * f->b * f->h;
    int64_t q_tiles = (f->time.q_n + 63) / 64 * f->b * f->h * f->r;
    unsigned blocks;
    SK_TRY(room_for(f, (const void *)grad_kv<T, D>, kv));
    SK_TRY(room_for(f, (const void *)grad_q<T, D>, q));
    SK_TRY(blocks_of(f, k_tiles, &blocks));
    if (blocks) grad_kv<T, D><<<blocks, THREADS, kv, s>>>(*f, rows);
    SK_TRY(blocks_of(f, q_tiles, &blocks));
    if (blocks) grad_q<T, D><<<blocks, THREADS, q, s>>>(*f, rows);
    return sk_cuda_launched(f->op);
}

/* Do all rows start at 16 bytes? */
static bool aligned(const sk_flash *f)
{
    uintptr_t bits = (uintptr_t)f->q | (uintptr_t)f->k | (uintptr_t)f->v | (uintptr_t)f->y |
                     (uintptr_t)f->dy | (uintptr_t)f->dq | (uintptr_t)f->dk | (uintptr_t)f->dv;
    return !(bits % 16) && !((size_t)f->d * sk_dtype_size(f->type) % 16);
}

static bool quick(const sk_flash *f) { return f->type != SK_F32 && f->d <= 128 && aligned(f); }

const char *sk_flash_name(const sk_flash *f) { return quick(f) ? "flash" : "flash f32"; }

void sk_flash_took(const sk_flash *f, const char *why, double slower, sk_variant *took)
{
    took->name = sk_flash_name(f);
    if (f->type == SK_F32) return; /* cuDNN has none for it */
    took->wanted = "cuDNN", took->why = why;
    took->slower = quick(f) ? slower : SK_WITHOUT_TENSOR_CORES;
}

static sk_status check(const sk_flash *f)
{
    if (f->d > 256)
        return sk_fail(SK_ECONF, "%s: heads of %lld elements; the CUDA kernel knows up to 256",
                       f->op, (long long)f->d);
    if (f->time.full > INT32_MAX)
        return sk_fail(SK_ECONF, "%s: %lld positions; the CUDA kernel knows up to 2^31 - 1", f->op,
                       (long long)f->time.full);
    return SK_OK;
}

template <typename T> static sk_status quick_forward(const sk_flash *f, cudaStream_t s)
{
    return f->d > 64 ? start_forward<T, 128, 1>(f, s) : start_forward<T, 64, 2>(f, s);
}

template <typename T>
static sk_status quick_backward(const sk_flash *f, const float2 *rows, cudaStream_t s)
{
    return f->d > 64 ? start_backward<T, 128>(f, rows, s) : start_backward<T, 64>(f, rows, s);
}

sk_status sk_flash_forward(const sk_flash *f, const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    SK_TRY(check(f));
    if (f->b * f->h * f->r * f->time.q_n * f->d == 0) return SK_OK;
    if (!quick(f)) return sk_flash_plain_forward(f, s);
    return f->type == SK_F16 ? quick_forward<__half>(f, s) : quick_forward<__nv_bfloat16>(f, s);
}

template <typename T, int V>
static sk_status start_sums(const sk_flash *f, float2 *rows, int64_t n, cudaStream_t s)
{
    unsigned blocks;
    SK_TRY(blocks_of(f, (n * LANES + 255) / 256, &blocks));
    if (blocks) row_sums<T, V><<<blocks, 256, 0, s>>>(*f, rows, n);
    return sk_cuda_launched(f->op);
}

template <typename T>
static sk_status sums(const sk_flash *f, float2 *rows, int64_t n, cudaStream_t s)
{
    return aligned(f) ? start_sums<T, sk_pack<T>()>(f, rows, n, s)
                      : start_sums<T, 1>(f, rows, n, s);
}

sk_status sk_flash_backward(const sk_flash *f, const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    float2 *rows = (float2 *)l->workspace;
    int64_t n = f->b * f->h * f->r * f->time.q_n;
    SK_TRY(check(f));
    if (f->b * f->h * f->d == 0) return SK_OK;
    if ((size_t)n * sizeof *rows > l->workspace_bytes)
        return sk_fail(SK_EBUG, "%s: %lld rows need %lld bytes of room, %zu are there", f->op,
                       (long long)n, (long long)n * 8, l->workspace_bytes);
    SK_TRY(SK_FLOAT(f->type, sums<T>(f, rows, n, s)));
    if (!quick(f)) return sk_flash_plain_backward(f, rows, s);
    return f->type == SK_F16 ? quick_backward<__half>(f, rows, s)
                             : quick_backward<__nv_bfloat16>(f, rows, s);
}
