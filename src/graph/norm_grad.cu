/* norm_grad.cu - see norm_grad.h.
 *
 * Rows of up to 4,096 bytes, aligned: a warp has a row, and its columns' sums of dw and db in
 * registers; its next row is under way, into shared memory.  Warps wait for nobody until the end,
 * where a block's add theirs up in order.
 *
 * Rows of up to 8,192 aligned elements: a group of warps has a row, with one pack for each thread
 * (two of a row beyond 4,096 in bf16), and goes on to another; a block is as many groups as 512
 * threads allow.  Threads keep their columns, so that sums of dw and db stay in registers, and
 * the next two rows are under way, into shared memory, while one is summed up.  At the end groups
 * add up their sums in order and a block leaves one row of partial sums.  Memory is crossed once.
 *
 * Other rows: a block a row, read twice for dx; sums of columns (graph/columns.h) for dw and db,
 * which need no sums along rows, and are also what runs when they are wanted alone. */
#include "graph/columns.h"
#include "graph/norm_grad.h"
#include "graph/cuda.h"

#include <cuda_pipeline.h>

enum { WARPS = 8 };
enum { BLOCK = 512, LONG_BLOCK = 256, SMS = 132, STAGES = 2 }; /* rows under way */

typedef struct job { /* the arguments of a kernel, with what was NULL as a flag */
    const void *x, *w, *dy, *res;
    void *dx;
    sk_any mean, rstd;
    int64_t rows, n;
    bool add;
    float *part; /* [blocks][1 or 2][n] */
} job;

static __device__ float2 warp_sum(float2 v)
{
#pragma unroll
    for (int k = 16; k; k /= 2) {
        v.x += __shfl_xor_sync(~0u, v.x, k);
        v.y += __shfl_xor_sync(~0u, v.y, k);
    }
    return v;
}

/* The sums over `warps` warps, the first of which has number `first` in the block: they meet at
 * barrier `id`.  `turn` alternates, so that nobody writes where others still read. */
static __device__ float2 group_sum(float2 v, int first, int warps, int id, int turn)
{
    __shared__ float2 all[2][BLOCK / 32];
    v = warp_sum(v);
    if (warps == 1) return v;
    int warp = (int)(threadIdx.y * blockDim.x + threadIdx.x) / 32;
    if (threadIdx.x % 32 == 0) all[turn][warp] = v;
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(warps * 32) : "memory");
    v = make_float2(0, 0);
    for (int k = 0; k < warps; k++) {
        v.x += all[turn][first + k].x;
        v.y += all[turn][first + k].y;
    }
    return v;
}

/* 16 bytes of T. */
template <typename T> struct pack {
    alignas(16) T v[16 / sizeof(T)];
    __device__ pack() {}
    __device__ explicit pack(const uint4 &raw) { *reinterpret_cast<uint4 *>(v) = raw; }
    __device__ uint4 raw() const { return *reinterpret_cast<const uint4 *>(v); }
};

/* A thread's own packs of the rows to come lie in shared memory, [STAGES][PACKS][x, dy,
 * res][threads].
 */
template <int PACKS> static __device__ uint4 *slot(uint4 *ring, int stage, int k, int which)
{
    int threads = (int)(blockDim.x * blockDim.y);
    int me = (int)(threadIdx.y * blockDim.x + threadIdx.x);
    return ring + ((stage * PACKS + k) * 3 + which) * threads + me;
}

/* Sets row r under way; what lies beyond the row, or beyond all rows, is left as it is. */
template <typename T, int PACKS>
static __device__ void fetch(const job &j, int64_t r, uint4 *ring, int stage)
{
    constexpr int V = 16 / (int)sizeof(T);
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int at = (int)(threadIdx.x + k * blockDim.x) * V;
        if (r >= j.rows || at >= (int)j.n) break;
        __pipeline_memcpy_async(slot<PACKS>(ring, stage, k, 0), (const T *)j.x + r * j.n + at, 16);
        __pipeline_memcpy_async(slot<PACKS>(ring, stage, k, 1), (const T *)j.dy + r * j.n + at, 16);
        if (j.res)
            __pipeline_memcpy_async(slot<PACKS>(ring, stage, k, 2), (const T *)j.res + r * j.n + at,
                                    16);
    }
    __pipeline_commit();
}

/* The mean and 1/deviation of row r. */
template <bool MEAN> static __device__ float2 facts(const job &j, int64_t r)
{
    if (r >= j.rows) return make_float2(0, 0);
    return make_float2(MEAN ? sk_get(j.mean, r) : 0, sk_get(j.rstd, r));
}

/* v and the sums of one pack: of g, and of g * (x - mean). */
template <typename T>
static __device__ float2 begin(float2 v, const uint4 &x_raw, const uint4 &dy_raw,
                               const uint4 &w_raw, float mean)
{
    const pack<T> x(x_raw), dy(dy_raw), w(w_raw);
#pragma unroll
    for (int e = 0; e < 16 / (int)sizeof(T); e++) {
        float g = (float)w.v[e] * (float)dy.v[e];
        v.x += g;
        v.y += g * ((float)x.v[e] - mean);
    }
    return v;
}

/* One pack of dx at element `at`, and its share of dw and db.  Element by element from packs as
 * they came: there are registers for few opened ones. */
template <typename T, bool MEAN, bool SUMS>
static __device__ void finish(const job &j, int64_t at, const uint4 &x_raw, const uint4 &dy_raw,
                              const uint4 &w_raw, const uint4 *res_raw, float mean, float rstd,
                              float shift, float slope, float *dw, float *db)
{
    constexpr int V = 16 / (int)sizeof(T);
    const pack<T> x(x_raw), dy(dy_raw), w(w_raw);
    pack<T> res(make_uint4(0, 0, 0, 0)), old(make_uint4(0, 0, 0, 0)), dx;
    if (j.res) res = pack<T>(*res_raw);
    if (j.add) old = pack<T>(*(const uint4 *)((const T *)j.dx + at));
#pragma unroll
    for (int e = 0; e < V; e++) {
        float d = (float)dy.v[e], hat = (float)x.v[e] - mean;
        float to = rstd * ((float)w.v[e] * d - shift - hat * slope);
        dx.v[e] = (T)(to + (float)res.v[e] + (float)old.v[e]);
        if (SUMS) dw[e] += d * (hat * rstd);
        if (SUMS && MEAN) db[e] += d;
    }
    *(uint4 *)((T *)j.dx + at) = dx.raw();
}

/* The block's sums of PACKS packs: groups add theirs in order, the last one writes. */
template <int V, int PACKS> static __device__ void leave(float (*sum)[V], float *part, int64_t n)
{
    __shared__ float all[BLOCK / 2 * V]; /* more than one group: n is no more than that */
    for (int g = 0; g < (int)blockDim.y; g++) {
        if (g) __syncthreads();
        if (g != (int)threadIdx.y) continue;
        for (int k = 0; k < PACKS; k++) {
            int at = (int)(threadIdx.x + k * blockDim.x) * V;
            if (at >= (int)n) break;
            for (int e = 0; e < V && g; e++) sum[k][e] += all[at + e];
            float *to = g < (int)blockDim.y - 1 ? all + at : part + at;
            for (int e = 0; e < V; e += 4)
                *(float4 *)(to + e) =
                    make_float4(sum[k][e], sum[k][e + 1], sum[k][e + 2], sum[k][e + 3]);
        }
    }
    __syncthreads(); /* before `all` is taken for other sums */
}

template <typename T, int PACKS, bool MEAN, bool SUMS>
static __global__ void __launch_bounds__(BLOCK, PACKS == 1 ? 2 : 1) by_groups(job j)
{
    constexpr int V = 16 / (int)sizeof(T);
    extern __shared__ uint4 ring[];
    int warps = (int)blockDim.x / 32, turn = 0;
    int64_t step = (int64_t)gridDim.x * blockDim.y;
    int64_t r = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    float dw[PACKS][V] = {}, db[PACKS][V] = {};
    uint4 w[PACKS], x[PACKS], dy[PACKS];
    float2 next = facts<MEAN>(j, r);
    for (int k = 0; k < PACKS; k++) {
        int at = (int)(threadIdx.x + k * blockDim.x);
        w[k] = x[k] = dy[k] = make_uint4(0, 0, 0, 0);
        if (at * V < (int)j.n) w[k] = ((const uint4 *)j.w)[at];
    }
    for (int k = 0; k < STAGES; k++) fetch<T, PACKS>(j, r + k * step, ring, k);
    for (int stage = 0; r < j.rows; r += step, turn ^= 1, stage = (stage + 1) % STAGES) {
        float2 v = make_float2(0, 0), now = next; /* mean and rstd */
        next = facts<MEAN>(j, r + step);
        __pipeline_wait_prior(STAGES - 1);
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            if ((int)(threadIdx.x + k * blockDim.x) * V >= (int)j.n) break;
            x[k] = *slot<PACKS>(ring, stage, k, 0), dy[k] = *slot<PACKS>(ring, stage, k, 1);
            v = begin<T>(v, x[k], dy[k], w[k], now.x);
        }
        v = group_sum(v, (int)threadIdx.y * warps, warps, 1 + (int)threadIdx.y, turn);
        float shift = MEAN ? v.x / (float)j.n : 0, slope = v.y / (float)j.n * now.y * now.y;
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            int at = (int)(threadIdx.x + k * blockDim.x) * V;
            if (at >= (int)j.n) break;
            finish<T, MEAN, SUMS>(j, r * j.n + at, x[k], dy[k], w[k],
                                  slot<PACKS>(ring, stage, k, 2), now.x, now.y, shift, slope, dw[k],
                                  db[k]);
        }
        fetch<T, PACKS>(j, r + STAGES * step, ring, stage); /* what was there has been used */
    }
    if (!SUMS) return;
    float *part = j.part + (int64_t)blockIdx.x * (MEAN ? 2 : 1) * j.n;
    leave<V, PACKS>(dw, part, j.n);
    if (MEAN) leave<V, PACKS>(db, part + j.n, j.n);
}

/* A lane's own packs of its warp's rows, this one and the next: [2][x, dy, res][P][32]. */
template <int P> static __device__ uint4 *own(uint4 *ring, int stage, int which, int k)
{
    return ring + (((threadIdx.y * 2 + stage) * 3 + which) * P + k) * 32 + threadIdx.x;
}

/* Sets row r under way. */
template <typename T, int P>
static __device__ void ask(const job &j, int64_t r, uint4 *ring, int stage)
{
    constexpr int V = 16 / (int)sizeof(T);
#pragma unroll
    for (int k = 0; k < P; k++) {
        int at = (int)(threadIdx.x + 32 * k) * V;
        if (r >= j.rows || at >= (int)j.n) break;
        __pipeline_memcpy_async(own<P>(ring, stage, 0, k), (const T *)j.x + r * j.n + at, 16);
        __pipeline_memcpy_async(own<P>(ring, stage, 1, k), (const T *)j.dy + r * j.n + at, 16);
        if (j.res)
            __pipeline_memcpy_async(own<P>(ring, stage, 2, k), (const T *)j.res + r * j.n + at, 16);
    }
    __pipeline_commit();
}

/* A warp a row, and the next row under way meanwhile.  dx may lie where x, dy or res lies: a lane
 * has read its part of a row before it writes there. */
template <typename T, int P, bool MEAN, bool SUMS>
static __global__ void __launch_bounds__(32 * WARPS, P <= 3 ? 2 : 1) by_warps(job j)
{
    constexpr int V = 16 / (int)sizeof(T);
    extern __shared__ uint4 ring[];
    int n = (int)j.n, stage = 0;
    int64_t step = (int64_t)gridDim.x * WARPS, r = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    float dw[P][V] = {}, db[P][V] = {};
    ask<T, P>(j, r, ring, 0);
    for (; r < j.rows; r += step, stage ^= 1) {
        float2 v = make_float2(0, 0), now = facts<MEAN>(j, r);
        ask<T, P>(j, r + step, ring, stage ^ 1);
        __pipeline_wait_prior(1);
#pragma unroll
        for (int k = 0; k < P; k++) {
            int at = (int)(threadIdx.x + 32 * k) * V;
            if (at < n)
                v = begin<T>(v, *own<P>(ring, stage, 0, k), *own<P>(ring, stage, 1, k),
                             *(const uint4 *)((const T *)j.w + at), now.x);
        }
        v = warp_sum(v);
        float shift = MEAN ? v.x / (float)n : 0, slope = v.y / (float)n * now.y * now.y;
#pragma unroll
        for (int k = 0; k < P; k++) {
            int at = (int)(threadIdx.x + 32 * k) * V;
            if (at >= n) break;
            finish<T, MEAN, SUMS>(j, r * n + at, *own<P>(ring, stage, 0, k),
                                  *own<P>(ring, stage, 1, k), *(const uint4 *)((const T *)j.w + at),
                                  own<P>(ring, stage, 2, k), now.x, now.y, shift, slope, dw[k],
                                  db[k]);
        }
    }
    if (!SUMS) return;
    float *part = j.part + (int64_t)blockIdx.x * (MEAN ? 2 : 1) * j.n;
    leave<V, P>(dw, part, j.n);
    if (MEAN) leave<V, P>(db, part + j.n, j.n);
}

/* dx of rows of any length and alignment. */
template <typename T, bool MEAN>
static __global__ void __launch_bounds__(LONG_BLOCK) by_blocks(job j)
{
    int turn = 0;
    const T *w = (const T *)j.w;
    for (int64_t r = blockIdx.x; r < j.rows; r += gridDim.x, turn ^= 1) {
        const T *x = (const T *)j.x + r * j.n, *dy = (const T *)j.dy + r * j.n;
        const T *res = j.res ? (const T *)j.res + r * j.n : nullptr;
        T *dx = (T *)j.dx + r * j.n;
        float rstd = sk_get(j.rstd, r), mean = MEAN ? sk_get(j.mean, r) : 0;
        float2 v = make_float2(0, 0);
        for (int64_t i = threadIdx.x; i < j.n; i += LONG_BLOCK) {
            float g = (float)w[i] * (float)dy[i];
            v.x += g;
            v.y += g * ((float)x[i] - mean);
        }
        v = group_sum(v, 0, LONG_BLOCK / 32, 1, turn);
        float shift = MEAN ? v.x / (float)j.n : 0, slope = v.y / (float)j.n * rstd * rstd;
        for (int64_t i = threadIdx.x; i < j.n; i += LONG_BLOCK) {
            float g = (float)w[i] * (float)dy[i] - shift - ((float)x[i] - mean) * slope;
            dx[i] = (T)(rstd * g + (res ? (float)res[i] : 0) + (j.add ? (float)dx[i] : 0));
        }
    }
}

/* dw and db alone, as sums of columns. */
template <typename T, bool MEAN> struct both {
    enum { SUMS = MEAN ? 2 : 1, DEPTH = 2 };
    const T *x, *dy;
    sk_any mean, rstd;
    template <int V> struct row {
        float x[V], dy[V], mean, rstd;
    };
    template <int V> __device__ void load(int64_t r, int64_t c, int64_t n, row<V> *to) const
    {
        sk_load<V>(x + r * n + c, to->x);
        sk_load<V>(dy + r * n + c, to->dy);
        to->rstd = sk_get(rstd, r);
        to->mean = MEAN ? sk_get(mean, r) : 0;
    }
    template <int V> __device__ void add(const row<V> &p, float (*sum)[V]) const
    {
        for (int e = 0; e < V; e++) {
            sum[0][e] += p.dy[e] * ((p.x[e] - p.mean) * p.rstd);
            if (MEAN) sum[SUMS - 1][e] += p.dy[e];
        }
    }
};

static sk_columns_out sums_of(const sk_norm_grad_job *j)
{
    return sk_columns_out{{j->dw, j->db}, (unsigned)j->add_dw | (unsigned)j->add_db << 1};
}

static bool aligned(const sk_norm_grad_job *j)
{
    uintptr_t bits =
        (uintptr_t)j->x | (uintptr_t)j->w | (uintptr_t)j->dy | (uintptr_t)j->res | (uintptr_t)j->dx;
    return !(bits % 16) && !((size_t)j->n * sk_dtype_size(j->type) % 16);
}

template <typename T, bool MEAN>
static sk_status columns(const sk_norm_grad_job *j, const sk_launch *l)
{
    both<T, MEAN> f = {(const T *)j->x, (const T *)j->dy, j->mean, j->rstd};
    if (aligned(j))
        return sk_columns<both<T, MEAN>, sk_pack<T>()>(j->op, f, j->rows, j->n, sums_of(j), l);
    return sk_columns<both<T, MEAN>, 1>(j->op, f, j->rows, j->n, sums_of(j), l);
}

template <typename T, int PACKS, bool MEAN>
static sk_status groups(const sk_norm_grad_job *j, job k, const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    int64_t each = 32 * PACKS * sk_pack<T>();
    unsigned threads = 32 * (unsigned)((j->n + each - 1) / each), tall = BLOCK / threads;
    if (tall > 15) tall = 15; /* barriers of a block, besides the one of __syncthreads */
    int64_t blocks = (j->rows + tall - 1) / tall, most = SMS * (PACKS == 1 ? 2 : 1);
    unsigned grid = (unsigned)(blocks < most ? blocks : most);
    int ring = STAGES * PACKS * 3 * 16 * (int)(threads * tall);
    auto *kernel = j->dw.data ? by_groups<T, PACKS, MEAN, true> : by_groups<T, PACKS, MEAN, false>;
    k.part = (float *)l->room;
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, ring);
    kernel<<<grid, dim3(threads, tall), (size_t)ring, s>>>(k);
    SK_TRY(sk_cuda_launched(j->op));
    if (!j->dw.data) return SK_OK;
    return sk_columns_end(j->op, k.part, grid, MEAN ? 2 : 1, j->n, sums_of(j), s);
}

template <typename T, int P, bool MEAN>
static sk_status warps(const sk_norm_grad_job *j, job k, const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    int64_t blocks = (j->rows + WARPS - 1) / WARPS, most = SMS * (P <= 3 ? 2 : 1);
    unsigned grid = (unsigned)(blocks < most ? blocks : most);
    auto *kernel = j->dw.data ? by_warps<T, P, MEAN, true> : by_warps<T, P, MEAN, false>;
    k.part = (float *)l->room;
    int ring = WARPS * 2 * 3 * P * 32 * 16;
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, ring);
    kernel<<<grid, dim3(32, WARPS), (size_t)ring, s>>>(k);
    SK_TRY(sk_cuda_launched(j->op));
    if (!j->dw.data) return SK_OK;
    return sk_columns_end(j->op, k.part, grid, MEAN ? 2 : 1, j->n, sums_of(j), s);
}

template <typename T, bool MEAN>
static sk_status short_rows(const sk_norm_grad_job *j, job k, const sk_launch *l)
{
    switch ((j->n + 32 * sk_pack<T>() - 1) / (32 * sk_pack<T>())) {
    case 1:
    case 2:
        return warps<T, 2, MEAN>(j, k, l);
    case 3:
        return warps<T, 3, MEAN>(j, k, l);
    case 4:
        return warps<T, 4, MEAN>(j, k, l);
    case 8:
        return warps<T, 8, MEAN>(j, k, l);
    default:
        return warps<T, 7, MEAN>(j, k, l);
    }
}

template <typename T, bool MEAN>
static sk_status long_rows(const sk_norm_grad_job *j, job k, const sk_launch *l)
{
    unsigned grid = j->rows < INT32_MAX ? (unsigned)j->rows : INT32_MAX; /* the kernel goes round */
    if (j->dw.data) SK_TRY((columns<T, MEAN>(j, l))); /* before dx takes over x or dy */
    by_blocks<T, MEAN><<<grid, LONG_BLOCK, 0, (cudaStream_t)l->stream>>>(k);
    return sk_cuda_launched(j->op);
}

template <typename T, bool MEAN> static sk_status run(const sk_norm_grad_job *j, const sk_launch *l)
{
    constexpr int V = sk_pack<T>();
    job k = {j->x, j->w, j->dy, j->res, j->dx, j->mean, j->rstd, j->rows, j->n, j->add_dx, nullptr};
    if (!j->n) return SK_OK;
    if (!j->dx || !j->rows) return j->dw.data ? columns<T, MEAN>(j, l) : SK_OK;
    if (!aligned(j) || j->n > BLOCK * 16) return long_rows<T, MEAN>(j, k, l);
    if (j->n <= 32 * 8 * V) return short_rows<T, MEAN>(j, k, l);
    if (j->n <= BLOCK * V) return groups<T, 1, MEAN>(j, k, l);
    if (j->n <= BLOCK * V * 2) return groups<T, 2, MEAN>(j, k, l);
    return groups<T, 16 / V, MEAN>(j, k, l); /* 4 of f32; 2 again of the others */
}

sk_status sk_norm_grad(const sk_norm_grad_job *j, const sk_launch *l)
{
    return j->mean.data ? SK_FLOAT(j->type, run<T, true>(j, l))
                        : SK_FLOAT(j->type, run<T, false>(j, l));
}
