/* xent_rows.cu - see xent_rows.h.
 *
 * A block takes one row after the other, as packs of 16 bytes, of which each thread has every
 * blockDim.x-th.  No thread ever looks at a pack of another: it asks for its packs itself (cp.async
 * into shared memory, all of them under way at once) and waits for them alone.  While a row is
 * worked at the next one comes, so that reads, writes and arithmetic go on together.  Threads meet
 * only for the maximum and for the sum, in a fixed order.  So it is in the first two of three ways:
 *
 * In registers: rows of two-byte elements that all begin at a border of 16 bytes, neither short nor
 * long: 24,576 to 65,536 columns.  The row goes from shared memory into registers at once, and the
 * whole of its place in shared memory is free for the next.  Of 16,384 rows of 50,304 columns in
 * bf16 3.3 GB are moved, 0.77 ms at the speed of a copy, and 1.65e9 powers are taken, 0.4 ms at 16
 * a cycle on each SM; measured on an H200: 0.96 ms (32,768 columns: 0.62, 65,536: 1.23).
 *
 * In shared memory: other rows for which that is large enough.  As soon as a thread has made the
 * gradient of a pack it asks for the same pack of the next row.  The sizes above take 1.45 ms (0.97
 * and 1.90) so.  A row that starts between two borders of 16 bytes is read from the border before
 * it to the border behind it; elements that belong to its neighbours count as -infinity, and are
 * not written.
 *
 * In passes: longer rows are read three times, each time from memory. */
#include "kernel/cuda/xent_rows.h"
#include "kernel/cuda/cuda_rows.h"

enum {
    MOST_THREADS = 1024,
    PACKS = 4,   /* so many has a thread at least, in a block of more than one warp */
    SLACK = 2048 /* bytes of shared memory that a block needs beside its row, and more */
};

/* ---- rows in shared memory */

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

static __device__ inline void ask_for(uint4 *to, const void *from)
{
    unsigned place = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
}

static __device__ inline void have_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

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

/* x of all threads, folded by f: the same in each of them.  `none` changes nothing. */
template <typename F> static __device__ inline float meet(float x, float none, F f)
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
    return meet(x, -INFINITY, [](float a, float b) { return fmaxf(a, b); });
}

static __device__ inline float total(float x)
{
    return meet(x, 0, [](float a, float b) { return a + b; });
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

/* The gradient of one pack.  `to` is where its row's `base` would be. */
template <typename T>
static __device__ inline void put_pack(const uint4 *tile, const span<T> &row, int q, int target,
                                       float top, float ds, float d, T *to, bool alike)
{
    constexpr int V = sk_pack<T>();
    float v[V];
    look_at(tile, row, q, v);
#pragma unroll
    for (int e = 0; e < V; e++) v[e] = sk_row_exp<T>(v[e] - top) * ds;
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

/* m and s by thread 0, t by the thread that has the target's pack. */
template <typename T>
static __device__ inline void put_numbers(const sk_xent_job &j, int64_t r, const uint4 *tile,
                                          int target, float top, float sum)
{
    constexpr int V = sk_pack<T>();
    if (threadIdx.x == 0) {
        if (j.m) j.m[r] = top;
        if (j.s) j.s[r] = sum;
        if (j.t && target < 0) j.t[r] = 0;
    }
    if (j.t && target >= 0 && target / V % blockDim.x == threadIdx.x)
        j.t[r] = (float)reinterpret_cast<const T *>(tile)[target];
}

template <typename T>
static __global__ void __launch_bounds__(MOST_THREADS, 2) in_shared(sk_xent_job j, bool alike)
{
    extern __shared__ uint4 tile[];
    constexpr int V = sk_pack<T>();
    const int me = (int)threadIdx.x, threads = (int)blockDim.x;
    float scale = *j.scale;
    span<T> row = span_of<T>(j, blockIdx.x);
    for (int q = me; q < row.packs; q += threads) ask_for(&tile[q], row.base + q * V);
    for (int64_t r = blockIdx.x; r < j.rows; r += gridDim.x) {
        have_all();
        span<T> next = span_of<T>(j, r + gridDim.x);
        float top = largest(tile, row), sum = exp_sum(tile, row, top);
        float d = row.weight * scale, ds = d / sum;
        int target = target_of(j, row);
        T *to = (T *)j.dlogits + r * j.n - row.skip;
        put_numbers<T>(j, r, tile, target, top, sum);
        for (int q = me; q < row.packs || q < next.packs; q += threads) {
            if (q < row.packs) put_pack(tile, row, q, target, top, ds, d, to, alike);
            if (q < next.packs) ask_for(&tile[q], next.base + q * V);
        }
        row = next;
    }
}

/* ---- rows in registers */

#define LOG2E 1.44269504f

/* Two elements in 32 bits: -infinity, the larger of each, as floats, and back. */
template <typename T> struct pair;

template <> struct pair<__nv_bfloat16> {
    static constexpr unsigned none = 0xff80ff80u;
    static __device__ inline unsigned most(unsigned a, unsigned b)
    {
        unsigned y;
        asm("max.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
        return y;
    }
    static __device__ inline float2 wide(unsigned x)
    {
        return make_float2(__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u));
    }
    static __device__ inline unsigned narrow(float low, float high)
    {
        unsigned y;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
        return y;
    }
};

template <> struct pair<__half> {
    static constexpr unsigned none = 0xfc00fc00u;
    static __device__ inline unsigned most(unsigned a, unsigned b)
    {
        unsigned y;
        asm("max.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
        return y;
    }
    static __device__ inline float2 wide(unsigned x)
    {
        __half2 h;
        memcpy(&h, &x, sizeof h);
        return __half22float2(h);
    }
    static __device__ inline unsigned narrow(float low, float high)
    {
        unsigned y;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
        return y;
    }
};

static __device__ inline float two_to(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* A pack, if `there`: no branch, which would part the arithmetic around it.  Nobody reads it soon.
 */
static __device__ inline void store_if(uint4 *to, uint4 x, bool there)
{
    asm volatile("{\n\t"
                 ".reg .pred p;\n\t"
                 "setp.ne.u32 p, %5, 0;\n\t"
                 "@p st.global.cs.v4.u32 [%4], {%0, %1, %2, %3};\n\t"
                 "}" ::"r"(x.x),
                 "r"(x.y), "r"(x.z), "r"(x.w), "l"(to), "r"((unsigned)there)
                 : "memory");
}

/* P packs of a row, of which the first SURE are there in any case.  `left` is what there is from
 * this thread's first pack on. */
template <typename T, int P, int SURE, int THREADS> struct held {
    uint4 x[P];

    static __device__ inline bool has(int k, int left) { return k < SURE || k * THREADS < left; }

    __device__ inline void clear()
    {
        constexpr unsigned none = pair<T>::none;
#pragma unroll
        for (int k = 0; k < P; k++) x[k] = make_uint4(none, none, none, none);
    }

    /* What there is, from this thread's first pack in shared memory on. */
    __device__ inline void take(const uint4 *tile, int left)
    {
#pragma unroll
        for (int k = 0; k < P; k++)
            if (has(k, left)) x[k] = tile[k * THREADS];
    }

    static __device__ inline void ask(uint4 *tile, const uint4 *from, int left)
    {
#pragma unroll
        for (int k = 0; k < P; k++)
            if (has(k, left)) ask_for(tile + k * THREADS, from + k * THREADS);
    }

    /* The packs are what they were, and the compiler does not know: it would keep every element
     * as a float from the sum to the gradient.  `zero` is a zero of which it does not know. */
    __device__ inline void forget(unsigned zero)
    {
#pragma unroll
        for (int k = 0; k < P; k++) x[k].x ^= zero, x[k].y ^= zero, x[k].z ^= zero, x[k].w ^= zero;
    }

    __device__ inline float most() const
    {
        uint4 y = x[0];
#pragma unroll
        for (int k = 1; k < P; k++) {
            y.x = pair<T>::most(y.x, x[k].x), y.y = pair<T>::most(y.y, x[k].y);
            y.z = pair<T>::most(y.z, x[k].z), y.w = pair<T>::most(y.w, x[k].w);
        }
        y.x = pair<T>::most(pair<T>::most(y.x, y.y), pair<T>::most(y.z, y.w));
        float2 v = pair<T>::wide(y.x);
        return fmaxf(v.x, v.y);
    }

    /* The sum of exp(x - shift / LOG2E). */
    __device__ inline float exp_sum(float shift) const
    {
        float sum[4] = {0, 0, 0, 0};
#pragma unroll
        for (int k = 0; k < P; k++) {
            const unsigned w[4] = {x[k].x, x[k].y, x[k].z, x[k].w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float2 v = pair<T>::wide(w[i]);
                sum[i] += two_to(fmaf(v.x, LOG2E, -shift));
                sum[i] += two_to(fmaf(v.y, LOG2E, -shift));
            }
        }
        return (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }

    __device__ inline uint4 gradient(int k, float shift, float ds) const
    {
        const unsigned w[4] = {x[k].x, x[k].y, x[k].z, x[k].w};
        unsigned y[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 v = pair<T>::wide(w[i]);
            y[i] = pair<T>::narrow(two_to(fmaf(v.x, LOG2E, -shift)) * ds,
                                   two_to(fmaf(v.y, LOG2E, -shift)) * ds);
        }
        return make_uint4(y[0], y[1], y[2], y[3]);
    }
};

/* The maximum and the sum of the row from those of its warps, whose sums are of exp(x - the warp's
 * maximum).  Each warp does it, in one order.  A warp of -infinity adds 0. */
template <int WARPS> static __device__ inline float2 gather(const float2 *part)
{
    float2 mine = part[threadIdx.x % WARPS];
    float top = mine.x;
#pragma unroll
    for (int k = WARPS / 2; k; k /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, k));
    float sum = mine.y * two_to(__fsub_rn(__fmul_rn(mine.x, LOG2E), __fmul_rn(top, LOG2E)));
#pragma unroll
    for (int k = WARPS / 2; k; k /= 2) sum += __shfl_xor_sync(~0u, sum, k);
    return make_float2(top + 0.0f, sum); /* -0 becomes 0 */
}

/* The largest x of the warp, and its sum of exp(x - that). */
template <typename H> static __device__ inline float2 of_warp(H &h)
{
    float top = h.most();
#pragma unroll
    for (int k = 16; k; k /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, k));
    float sum = h.exp_sum(top == -INFINITY ? 0 : __fmul_rn(top, LOG2E));
#pragma unroll
    for (int k = 16; k; k /= 2) sum += __shfl_xor_sync(~0u, sum, k);
    return make_float2(top, sum);
}

/* What a block knows of its rows, four in turn: nobody is ever two rows behind another. */
template <int WARPS> struct desk {
    float2 part[4][WARPS];
    int32_t word[4];
    float weight[4], scale;
};

static __device__ inline void ask_for_word(void *to, const void *from)
{
    unsigned place = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(place), "l"(from) : "memory");
}

/* By one thread. */
template <typename D>
static __device__ inline void ask_row(const sk_xent_job &j, D *desk, int64_t r, int turn)
{
    ask_for_word(&desk->word[turn], j.target + r);
    ask_for_word(&desk->weight[turn], j.weight + r);
}

/* The target's column; -1: it is not in this row. */
static __device__ inline int place(const sk_xent_job &j, int32_t word)
{
    int64_t at = word - j.at;
    return at >= 0 && at < j.n ? (int)at : -1;
}

template <typename T, int P, int SURE, int THREADS, int BLOCKS>
static __global__ void __launch_bounds__(THREADS, BLOCKS) in_registers(sk_xent_job j)
{
    extern __shared__ uint4 tile[];
    __shared__ desk<THREADS / 32> desk;
    typedef held<T, P, SURE, THREADS> row;
    constexpr int V = sk_pack<T>();
    const int me = (int)threadIdx.x, packs = (int)(j.n / V), left = packs - me;
    const uint4 *in = (const uint4 *)j.logits + me;
    row h;
    h.clear();
    if (me == 0) ask_for_word(&desk.scale, j.scale), ask_row(j, &desk, blockIdx.x, 0);
    row::ask(tile + me, in + blockIdx.x * (int64_t)packs, left);
    int turn = 0;
    for (int64_t r = blockIdx.x; r < j.rows; r += gridDim.x, turn = (turn + 1) & 3) {
        int64_t next = r + gridDim.x;
        have_all();
        h.take(tile + me, left);
        if (next < j.rows) {
            if (me == 0) ask_row(j, &desk, next, (turn + 1) & 3);
            row::ask(tile + me, in + next * packs, left);
        }
        float2 mine = of_warp(h);
        h.forget((unsigned)(j.rows >> 63));
        if (me % 32 == 0) desk.part[turn][me / 32] = mine;
        __syncthreads();
        float2 all = gather<THREADS / 32>(desk.part[turn]);
        if (me == 0 && j.m) j.m[r] = all.x;
        if (me == 0 && j.s) j.s[r] = all.y * two_to(__fmul_rn(all.x, LOG2E) - all.x * LOG2E);
        float ds = __fdividef(desk.weight[turn] * desk.scale, all.y),
              shift = __fmul_rn(all.x, LOG2E), t = 0;
        int at = place(j, desk.word[turn]);
        if (at >= 0 && at / V % THREADS == me) t = (float)((const T *)j.logits)[r * j.n + at];
        uint4 *to = (uint4 *)j.dlogits + r * packs + me;
#pragma unroll
        for (int k = 0; k < P; k++)
            store_if(to + k * THREADS, h.gradient(k, shift, ds), row::has(k, left));
        at = place(j, desk.word[turn]); /* again: there is no register to spare above */
        if (j.t && (at < 0 ? 0 : at / V % THREADS) == me) j.t[r] = t;
        if (at >= 0 && at / V % THREADS == me) /* this thread's pack has been written */
            ((T *)j.dlogits)[r * j.n + at] =
                (T)(two_to(fmaf(t, LOG2E, -shift)) * ds - desk.weight[turn] * desk.scale);
    }
}

/* ---- rows of any length */

template <typename T, int V>
static __global__ void __launch_bounds__(MOST_THREADS) in_passes(sk_xent_job j)
{
    constexpr int WARPS = MOST_THREADS / 32;
    for (int64_t r = blockIdx.x; r < j.rows; r += gridDim.x) {
        const T *x = (const T *)j.logits + r * j.n;
        T *dx = (T *)j.dlogits + r * j.n;
        int64_t at = j.target[r] - j.at;
        float t = at >= 0 && at < j.n ? (float)x[at] : 0, top = -INFINITY, sum = 0;
        sk_rows<T, V, WARPS, 1> row({x}, j.n);
        row.pass([&](int64_t, const float(*v)[V], int count) {
            for (int e = 0; e < count; e++) top = fmaxf(top, v[0][e]);
        });
        top = most(top) + 0.0f;
        row.pass([&](int64_t, const float(*v)[V], int count) {
            for (int e = 0; e < count; e++) sum += sk_row_exp<T>(v[0][e] - top);
        });
        sum = total(sum);
        float d = j.weight[r] * *j.scale, ds = d / sum;
        row.pass([&](int64_t i, const float(*v)[V], int count) {
            float to[V];
            for (int e = 0; e < count; e++) to[e] = sk_row_exp<T>(v[0][e] - top) * ds;
            if (at >= i && at < i + count)
                for (int e = 0; e < count; e++)
                    if (i + e == at) to[e] -= d;
            sk_row_put<V>(dx + i, to, count);
        });
        if (threadIdx.x) continue;
        if (j.m) j.m[r] = top;
        if (j.s) j.s[r] = sum;
        if (j.t) j.t[r] = t;
    }
}

/* ---- starting */

typedef struct limits {
    int sms, in_block; /* the last: bytes of shared memory */
} limits;

static sk_status ask(limits *x)
{
    int d = 0;
    cudaError_t e = cudaGetDevice(&d);
    if (!e) e = cudaDeviceGetAttribute(&x->sms, cudaDevAttrMultiProcessorCount, d);
    if (!e) e = cudaDeviceGetAttribute(&x->in_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, d);
    if (!e) return SK_OK;
    return sk_fail(SK_EIO, "xent_rows: the GPU does not say what it is: %s", cudaGetErrorString(e));
}

static int threads_for(int64_t packs)
{
    int n = 32;
    while (n < MOST_THREADS && (int64_t)n * PACKS < packs) n *= 2;
    return n;
}

/* Blocks of n threads that an SM takes, with as much shared memory as it can spare. */
template <typename F> static sk_status fit(F f, int n, size_t bytes, const limits *x, int *in_sm)
{
    cudaError_t e =
        cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, x->in_block - SLACK);
    if (!e)
        e = cudaFuncSetAttribute(f, cudaFuncAttributePreferredSharedMemoryCarveout,
                                 cudaSharedmemCarveoutMaxShared);
    if (!e) e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(in_sm, f, n, bytes);
    if (!e && *in_sm) return SK_OK;
    return sk_fail(SK_EIO, "xent_rows: no room for a block of %d threads and %lld bytes: %s", n,
                   (long long)bytes, cudaGetErrorString(e));
}

template <typename T>
static sk_status hold(const sk_xent_job *j, int64_t packs, const limits *x, cudaStream_t s)
{
    size_t bytes = (size_t)packs * 16;
    int n = threads_for(packs), in_sm = 0;
    SK_TRY(fit(in_shared<T>, n, bytes, x, &in_sm));
    int64_t blocks = (int64_t)in_sm * x->sms;
    if (blocks > j->rows) blocks = j->rows;
    in_shared<T><<<(unsigned)blocks, n, bytes, s>>>(*j, sk_cuda_alike(j->logits, j->dlogits));
    return sk_cuda_launched("xent_rows");
}

template <typename T, int P, int SURE, int THREADS, int BLOCKS>
static sk_status start(const sk_xent_job *j, const limits *x, cudaStream_t s)
{
    auto kernel = in_registers<T, P, SURE, THREADS, BLOCKS>;
    size_t bytes = (size_t)j->n * sizeof(T);
    int in_sm = 0;
    SK_TRY(fit(kernel, THREADS, bytes, x, &in_sm));
    int64_t blocks = (int64_t)in_sm * x->sms;
    if (blocks > j->rows) blocks = j->rows;
    kernel<<<(unsigned)blocks, THREADS, bytes, s>>>(*j);
    return sk_cuda_launched("xent_rows");
}

enum { FEWEST = 12 * 256, MOST = 16 * 512 }; /* packs of rows that registers are for */

template <typename T> static sk_status keep(const sk_xent_job *j, const limits *x, cudaStream_t s)
{
    int64_t packs = j->n / sk_pack<T>();
    if (packs <= 16 * 256) return start<T, 16, 12, 256, 3>(j, x, s);
    if (packs <= 20 * 256) return start<T, 20, 16, 256, 2>(j, x, s);
    if (packs <= 25 * 256) return start<T, 25, 20, 256, 2>(j, x, s);
    return start<T, 16, 12, 512, 1>(j, x, s);
}

/* Rows of two-byte elements that begin at 16 bytes, each of them, and are neither short nor
 * long. */
static bool for_registers(const sk_xent_job *j, const limits *x)
{
    int64_t packs = j->n / 8;
    uintptr_t bits = (uintptr_t)j->logits | (uintptr_t)j->dlogits;
    return j->type != SK_F32 && !(bits % 16) && !(j->n % 8) && packs >= FEWEST && packs <= MOST &&
           packs <= (x->in_block - SLACK) / 16;
}

template <typename T, int V> static sk_status pass(const sk_xent_job *j, cudaStream_t s)
{
    in_passes<T, V><<<sk_cuda_blocks(j->rows, 1), MOST_THREADS, 0, s>>>(*j);
    return sk_cuda_launched("xent_rows");
}

template <typename T> static sk_status run(const sk_xent_job *j, cudaStream_t s)
{
    constexpr int V = sk_pack<T>();
    limits x = {};
    SK_TRY(ask(&x));
    if constexpr (sizeof(T) == 2)
        if (for_registers(j, &x)) return keep<T>(j, &x, s);
    int64_t packs = (j->n + 2 * (V - 1)) / V; /* wherever a row begins */
    if (packs <= (x.in_block - SLACK) / 16) return hold<T>(j, packs, &x, s);
    return sk_cuda_alike(j->logits, j->dlogits) ? pass<T, V>(j, s) : pass<T, 1>(j, s);
}

sk_status sk_xent_rows(const sk_xent_job *j, const sk_launch *l)
{
    if (j->type != SK_F32 && j->type != SK_BF16 && j->type != SK_F16)
        return sk_fail(SK_ECONF, "xent_rows: logits are %s, the CUDA kernel needs f32, bf16 or f16",
                       sk_dtype_name(j->type));
    if (!j->rows) return SK_OK;
    return SK_FLOAT(j->type, run<T>(j, (cudaStream_t)l->stream));
}
