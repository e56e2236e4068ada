/* flash_plain.cu - flash attention in f32 arithmetic, for any type and shape; see flash.h.
 *
 * A block of 16 x 16 threads works on 64 rows that it owns and 64 that it walks over, as floats in
 * shared memory: D elements a row, d rounded up to 64, 128 or 256, with zeros behind d, and 4 more
 * so that columns of rows lie in different banks.  A thread has 4 x 4 of the 64 x 64 scores, rows
 * ty + 16 i and columns tx + 16 j; of a sum it has the same rows and columns 4 tx + 64 j to + 3.
 * One buffer serves keys and values, or queries and dy, in turn: what is loaded twice comes from
 * the cache. */
#include "kernel/cuda/flash_tile.h"

enum { SIDE = 16, THREADS = SIDE * SIDE, ROWS = 64, WEIGHTS = ROWS + 4 };

template <int D> struct plain_tiles {
    float mine[ROWS * (D + 4)], other[ROWS * (D + 4)];
    float weight[ROWS * WEIGHTS];
    float2 row[ROWS]; /* backward: of the queries, whichever side they are on */
    int place[ROWS];  /* of the other side */
};

template <int D> struct plain_grad_tiles {
    float second[ROWS * (D + 4)]; /* dy beside queries, values beside keys */
    plain_tiles<D> r;
};

/* Rows [0, here) of d elements; the rest of the tile becomes 0. */
template <int D>
static __device__ void fetch(float *to, sk_any x, int64_t from, int64_t step, int64_t here, int d)
{
    for (int i = (int)threadIdx.x; i < ROWS * D; i += THREADS) {
        int row = i / D, c = i % D;
        to[row * (D + 4) + c] = row < here && c < d ? sk_get(x, from + row * step + c) : 0;
    }
}

/* s[i][j] = row ty + 16 i of a times row tx + 16 j of b. */
template <int D>
static __device__ void meet(const float *a, const float *b, int d, float (&s)[4][4])
{
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) s[i][j] = 0;
    for (int c = 0; c < d; c += 4) {
        float4 x[4], y[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[i] = *(const float4 *)(a + (ty + SIDE * i) * (D + 4) + c);
            y[i] = *(const float4 *)(b + (tx + SIDE * i) * (D + 4) + c);
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                s[i][j] = fmaf(x[i].x, y[j].x, s[i][j]);
                s[i][j] = fmaf(x[i].y, y[j].y, s[i][j]);
                s[i][j] = fmaf(x[i].z, y[j].z, s[i][j]);
                s[i][j] = fmaf(x[i].w, y[j].w, s[i][j]);
            }
    }
}

/* The thread's weights, where all can read them. */
static __device__ void show(float *weight, const float (&s)[4][4])
{
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) weight[(ty + SIDE * i) * WEIGHTS + tx + SIDE * j] = s[i][j];
}

/* sum[i][.] += weights of row ty + 16 i times the rows of v. */
template <int D>
static __device__ void weigh(const float *weight, const float *v, float (&sum)[4][D / 16])
{
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
    for (int k = 0; k < ROWS; k++) {
        float w[4];
#pragma unroll
        for (int i = 0; i < 4; i++) w[i] = weight[(ty + SIDE * i) * WEIGHTS + k];
#pragma unroll
        for (int j = 0; j < D / 64; j++) {
            float4 x = *(const float4 *)(v + k * (D + 4) + 4 * tx + 64 * j);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                sum[i][4 * j] = fmaf(w[i], x.x, sum[i][4 * j]);
                sum[i][4 * j + 1] = fmaf(w[i], x.y, sum[i][4 * j + 1]);
                sum[i][4 * j + 2] = fmaf(w[i], x.z, sum[i][4 * j + 2]);
                sum[i][4 * j + 3] = fmaf(w[i], x.w, sum[i][4 * j + 3]);
            }
        }
    }
}

/* Over the 16 threads of a row. */
static __device__ float row_max(float x)
{
#pragma unroll
    for (int k = SIDE / 2; k; k /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, k));
    return x;
}

static __device__ float row_sum(float x)
{
#pragma unroll
    for (int k = SIDE / 2; k; k /= 2) x += __shfl_xor_sync(~0u, x, k);
    return x;
}

/* to (+)= scale * sum; `here` rows are there. */
template <int D>
static __device__ void put_rows(sk_any to, int64_t from, int64_t step, int64_t here, int d,
                                const float (&sum)[4][D / 16], float scale, bool add)
{
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            int row = ty + SIDE * i, at = 4 * tx + c / 4 * 64 + c % 4;
            if (row >= here || at >= d) continue;
            int64_t p = from + row * step + at;
            float x = scale * sum[i][c];
            sk_put(to, p, add ? sk_get(to, p) + x : x);
        }
}

/* ---- forward */

/* Scores become exponentials against the new top; sums are brought to it. */
template <int D>
static __device__ void soften(float (&s)[4][4], float (&sum)[4][D / 16], float (&top)[4],
                              float (&all)[4], const int *place, const int (&mine)[4], float scale)
{
    int tx = (int)threadIdx.x % SIDE;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float high = -INFINITY, add = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            s[i][j] = place[tx + SIDE * j] > mine[i] ? -INFINITY : s[i][j] * scale;
            high = fmaxf(high, s[i][j]);
        }
        high = fmaxf(top[i], row_max(high));
        float base = high == -INFINITY ? 0 : high, keep = expf(top[i] - base);
        top[i] = high;
#pragma unroll
        for (int j = 0; j < 4; j++) s[i][j] = expf(s[i][j] - base), add += s[i][j];
        all[i] = all[i] * keep + row_sum(add);
#pragma unroll
        for (int c = 0; c < D / 16; c++) sum[i][c] *= keep;
    }
}

template <int D>
static __device__ void end_rows(const sk_flash &f, int64_t y, int64_t lse, int64_t here,
                                const float (&sum)[4][D / 16], const float (&top)[4],
                                const float (&all)[4])
{
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
    sk_any to = {f.y, f.type};
    float was[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        was[i] = f.merge && ty + SIDE * i < here ? sk_get(f.lse, lse + ty + SIDE * i) : 0;
    __syncwarp(); /* all threads of a row have read lse */
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int row = ty + SIDE * i;
        sk_ending e = sk_end_row(top[i], all[i], f.merge, was[i]);
        if (row >= here || e.leave) continue;
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            int at = 4 * tx + c / 4 * 64 + c % 4;
            if (at >= (int)f.d) continue;
            int64_t p = y + row * f.at_y.time + at;
            float x = e.nothing ? 0 : e.take * sum[i][c];
            sk_put(to, p, e.keep > 0 ? e.keep * sk_get(to, p) + x : x);
        }
        if (!tx) sk_put(f.lse, lse + row, e.lse);
    }
}

template <int D>
static __global__ void __launch_bounds__(THREADS) forward(const __grid_constant__ sk_flash f)
{
    extern __shared__ __align__(16) char shared[];
    plain_tiles<D> &buf = *reinterpret_cast<plain_tiles<D> *>(shared);
    int ty = (int)threadIdx.x / SIDE, d = (int)f.d;
    int64_t tiles = (f.time.q_n + ROWS - 1) / ROWS, end = (f.time.k_n + ROWS - 1) / ROWS;
    int64_t head = blockIdx.x / tiles, tile = tiles - 1 - blockIdx.x % tiles; /* long ones first */
    int64_t j = head % f.r, g = head / f.r % f.h, b = head / f.r / f.h, at = tile * ROWS;
    int64_t kv = sk_head(f.at_kv, b, g, 0), here = f.time.q_n - at;
    sk_any k = {(void *)f.k, f.type}, v = {(void *)f.v, f.type};
    float sum[4][D / 16] = {}, top[4], all[4] = {}, scale = 1 / sqrtf((float)d);
    int last = sk_reach_q(f.time, tile, ROWS).y, mine[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        top[i] = -INFINITY;
        mine[i] = sk_place(f.time, f.time.q_at, f.time.q_n, at + ty + SIDE * i, -1);
    }
    fetch<D>(buf.mine, sk_any{(void *)f.q, f.type}, sk_head(f.at_q, b, g, j) + at * f.at_q.time,
             f.at_q.time, here, d);
    for (int64_t n = sk_next_k(f.time, 0, end, ROWS, last); n < end;
         n = sk_next_k(f.time, n + 1, end, ROWS, last)) {
        int64_t from = kv + n * ROWS * f.at_kv.time, there = f.time.k_n - n * ROWS;
        float s[4][4];
        fetch<D>(buf.other, k, from, f.at_kv.time, there, d);
        if (threadIdx.x < ROWS)
            buf.place[threadIdx.x] =
                sk_place(f.time, f.time.k_at, f.time.k_n, n * ROWS + threadIdx.x, INT32_MAX);
        __syncthreads();
        meet<D>(buf.mine, buf.other, d, s);
        soften<D>(s, sum, top, all, buf.place, mine, scale);
        show(buf.weight, s);
        __syncthreads();
        fetch<D>(buf.other, v, from, f.at_kv.time, there, d);
        __syncthreads();
        weigh<D>(buf.weight, buf.other, sum);
        __syncthreads();
    }
    end_rows<D>(f, sk_head(f.at_y, b, g, j) + at * f.at_y.time, head * f.time.q_n + at, here, sum,
                top, all);
}

/* ---- backward */

template <int D>
static __global__ void __launch_bounds__(THREADS)
    grad_kv(const __grid_constant__ sk_flash f, const float2 *rows)
{
    extern __shared__ __align__(16) char shared[];
    plain_grad_tiles<D> &two = *reinterpret_cast<plain_grad_tiles<D> *>(shared);
    plain_tiles<D> &buf = two.r;
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE, d = (int)f.d;
    int64_t k_tiles = (f.time.k_n + ROWS - 1) / ROWS, tiles = (f.time.q_n + ROWS - 1) / ROWS;
    int64_t group = blockIdx.x / k_tiles, tile = blockIdx.x % k_tiles, at = tile * ROWS;
    int64_t b = group / f.h, g = group % f.h, here = f.time.k_n - at, end = f.r * tiles;
    int64_t from = sk_head(f.at_kv, b, g, 0) + at * f.at_kv.time;
    sk_any q = {(void *)f.q, f.type}, dy = {(void *)f.dy, f.type};
    float dk[4][D / 16] = {}, dv[4][D / 16] = {}, scale = 1 / sqrtf((float)d);
    int first = sk_reach_k(f.time, tile, ROWS).x, mine[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        mine[i] = sk_place(f.time, f.time.k_at, f.time.k_n, at + ty + SIDE * i, INT32_MAX);
    fetch<D>(buf.mine, sk_any{(void *)f.k, f.type}, from, f.at_kv.time, here, d);
    fetch<D>(two.second, sk_any{(void *)f.v, f.type}, from, f.at_kv.time, here, d);
    for (int64_t n = sk_next_q(f.time, 0, end, tiles, ROWS, first); n < end;
         n = sk_next_q(f.time, n + 1, end, tiles, ROWS, first)) {
        int64_t j = n / tiles, to = n % tiles * ROWS, there = f.time.q_n - to;
        int64_t from_q = sk_head(f.at_q, b, g, j) + to * f.at_q.time;
        float s[4][4], ds[4][4];
        fetch<D>(buf.other, q, from_q, f.at_q.time, there, d);
        if (threadIdx.x < ROWS) {
            int64_t i = to + threadIdx.x;
            buf.row[threadIdx.x] =
                sk_row_at(rows, (group * f.r + j) * f.time.q_n + i, i < f.time.q_n);
            buf.place[threadIdx.x] = sk_place(f.time, f.time.q_at, f.time.q_n, i, -1);
        }
        __syncthreads();
        meet<D>(buf.mine, buf.other, d, s);
        __syncthreads();
        fetch<D>(buf.other, dy, sk_head(f.at_y, b, g, j) + to * f.at_y.time, f.at_y.time, there, d);
        __syncthreads();
        meet<D>(two.second, buf.other, d, ds);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                float2 row = buf.row[tx + SIDE * c];
                bool sees = mine[i] <= buf.place[tx + SIDE * c];
                s[i][c] = sees ? expf(s[i][c] * scale - row.x) : 0;
                ds[i][c] = s[i][c] * (ds[i][c] - row.y) * scale;
            }
        show(buf.weight, s);
        __syncthreads();
        weigh<D>(buf.weight, buf.other, dv);
        __syncthreads();
        show(buf.weight, ds);
        fetch<D>(buf.other, q, from_q, f.at_q.time, there, d);
        __syncthreads();
        weigh<D>(buf.weight, buf.other, dk);
        __syncthreads();
    }
    put_rows<D>(sk_any{f.dk, f.type}, from, f.at_kv.time, here, d, dk, 1, f.add_kv);
    put_rows<D>(sk_any{f.dv, f.type}, from, f.at_kv.time, here, d, dv, 1, f.add_kv);
}

template <int D>
static __global__ void __launch_bounds__(THREADS)
    grad_q(const __grid_constant__ sk_flash f, const float2 *rows)
{
    extern __shared__ __align__(16) char shared[];
    plain_grad_tiles<D> &two = *reinterpret_cast<plain_grad_tiles<D> *>(shared);
    plain_tiles<D> &buf = two.r;
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE, d = (int)f.d;
    int64_t tiles = (f.time.q_n + ROWS - 1) / ROWS, end = (f.time.k_n + ROWS - 1) / ROWS;
    int64_t head = blockIdx.x / tiles, tile = tiles - 1 - blockIdx.x % tiles, at = tile * ROWS;
    int64_t j = head % f.r, g = head / f.r % f.h, b = head / f.r / f.h, here = f.time.q_n - at;
    int64_t from = sk_head(f.at_q, b, g, j) + at * f.at_q.time, kv = sk_head(f.at_kv, b, g, 0);
    sk_any k = {(void *)f.k, f.type}, v = {(void *)f.v, f.type};
    float dq[4][D / 16] = {}, scale = 1 / sqrtf((float)d);
    int last = sk_reach_q(f.time, tile, ROWS).y, mine[4];
    float2 row[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int64_t me = at + ty + SIDE * i;
        mine[i] = sk_place(f.time, f.time.q_at, f.time.q_n, me, -1);
        row[i] = sk_row_at(rows, head * f.time.q_n + me, me < f.time.q_n);
    }
    fetch<D>(buf.mine, sk_any{(void *)f.q, f.type}, from, f.at_q.time, here, d);
    fetch<D>(two.second, sk_any{(void *)f.dy, f.type}, sk_head(f.at_y, b, g, j) + at * f.at_y.time,
             f.at_y.time, here, d);
    for (int64_t n = sk_next_k(f.time, 0, end, ROWS, last); n < end;
         n = sk_next_k(f.time, n + 1, end, ROWS, last)) {
        int64_t to = kv + n * ROWS * f.at_kv.time, there = f.time.k_n - n * ROWS;
        float s[4][4], ds[4][4];
        fetch<D>(buf.other, v, to, f.at_kv.time, there, d);
        if (threadIdx.x < ROWS)
            buf.place[threadIdx.x] =
                sk_place(f.time, f.time.k_at, f.time.k_n, n * ROWS + threadIdx.x, INT32_MAX);
        __syncthreads();
        meet<D>(two.second, buf.other, d, ds);
        __syncthreads();
        fetch<D>(buf.other, k, to, f.at_kv.time, there, d);
        __syncthreads();
        meet<D>(buf.mine, buf.other, d, s);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                bool sees = buf.place[tx + SIDE * c] <= mine[i];
                float p = sees ? expf(s[i][c] * scale - row[i].x) : 0;
                ds[i][c] = p * (ds[i][c] - row[i].y) * scale;
            }
        show(buf.weight, ds);
        __syncthreads();
        weigh<D>(buf.weight, buf.other, dq);
        __syncthreads();
    }
    put_rows<D>(sk_any{f.dq, f.type}, from, f.at_q.time, here, d, dq, 1, f.add_q);
}

/* ---- launches */

template <int D> static sk_status start_forward(const sk_flash *f, cudaStream_t s)
{
    unsigned blocks;
    SK_TRY(sk_flash_shared_memory(f, (const void *)forward<D>, sizeof(plain_tiles<D>)));
    SK_TRY(sk_flash_blocks(f, (f->time.q_n + ROWS - 1) / ROWS * f->b * f->h * f->r, &blocks));
    if (blocks) forward<D><<<blocks, THREADS, sizeof(plain_tiles<D>), s>>>(*f);
    return sk_cuda_launched(f->op);
}

template <int D>
static sk_status start_backward(const sk_flash *f, const float2 *rows, cudaStream_t s)
{
    size_t bytes = sizeof(plain_grad_tiles<D>);
    unsigned blocks;
    SK_TRY(sk_flash_shared_memory(f, (const void *)grad_kv<D>, bytes));
    SK_TRY(sk_flash_shared_memory(f, (const void *)grad_q<D>, bytes));
    SK_TRY(sk_flash_blocks(f, (f->time.k_n + ROWS - 1) / ROWS * f->b * f->h, &blocks));
    if (blocks) grad_kv<D><<<blocks, THREADS, bytes, s>>>(*f, rows);
    SK_TRY(sk_flash_blocks(f, (f->time.q_n + ROWS - 1) / ROWS * f->b * f->h * f->r, &blocks));
    if (blocks) grad_q<D><<<blocks, THREADS, bytes, s>>>(*f, rows);
    return sk_cuda_launched(f->op);
}

sk_status sk_flash_plain_forward(const sk_flash *f, cudaStream_t s)
{
    if (f->d <= 64) return start_forward<64>(f, s);
    return f->d <= 128 ? start_forward<128>(f, s) : start_forward<256>(f, s);
}

sk_status sk_flash_plain_backward(const sk_flash *f, const float2 *rows, cudaStream_t s)
{
    if (f->d <= 64) return start_backward<64>(f, rows, s);
    return f->d <= 128 ? start_backward<128>(f, rows, s) : start_backward<256>(f, rows, s);
}
