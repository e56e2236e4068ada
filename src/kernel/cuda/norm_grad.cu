/* norm_grad.cu - see norm_grad.h.
 *
 * Rows of up to 8,192 aligned elements: a group of warps has a row or two, with one pack of each
 * for every thread (or more of a row that is too long for that), and goes on to others; its next
 * rows are under way into shared memory (kernel/cuda/bulk_copy.h).  Threads keep their columns, so
 * that sums of dw, db and dx stay in a few registers.  A block has a processor for itself, and as
 * many groups as it has threads for.  At the end groups add up their sums in order and a block
 * leaves one row of partial sums.  Memory is crossed once: with all sums 16,384 rows of 1,600 in
 * bf16 take 63 us on an H200, 65,536 of 768 take 103, where x + dy + res alone takes 50 and 95.
 *
 * What that took: no register may be spilled (eight of them made it a third slower, for shared
 * memory leaves little of the cache), two rows share their barrier and bookkeeping (a tenth), and
 * means are under way long before their row.
 *
 * Other rows: a block a row, read twice for dx; sums of columns (kernel/cuda/column_sums.h) for the
 * others, which need no sums along rows, and are also what runs when they are wanted alone.
 * Canonical order takes this way too, because a row there has a block of its own whichever rows are
 * here. */
#include "kernel/cuda/bulk_copy.h"
#include "kernel/cuda/ordered_reduce.h"
#include "kernel/cuda/norm_grad.h"

/* Rows of up to 512 packs: a pack a thread and two rows at a time.  Longer ones: 32 elements a
 * thread, which take as many registers as there are. */
enum { BLOCK = 512, LESS = 256, EACH = 32, MOST = LESS * EACH, LONG_BLOCK = 256, FAR = 1 << 30 };
enum { RING = 100 << 10 }; /* bytes of rows under way on a processor; 200 was 4 % slower */

typedef struct job { /* the arguments of a kernel, with what was NULL as a flag */
    const void *x, *w, *dy, *res;
    void *dx;
    sk_any mean, rstd;
    int64_t rows, n;
    bool add; /* by_blocks alone; others take dx for res */
    int stages;
    float *part; /* [blocks][sums][n] */
} job;

enum { NONE, OWN, ALL }; /* sums of columns: of dw and db; of dx too */

static __host__ __device__ constexpr int count(bool mean, int sums)
{
    return sums == NONE ? 0 : sums + mean;
}

/* The mean and 1/deviation of rows to come: a lane has those of the group's row `first` + lane, and
 * of the one 32 rows later, which are under way. */
template <int R, bool MEAN> struct facts {
    float2 now, later;
    int seen;

    __device__ void load(const job &j, const sk_ring<R> &ring, int first)
    {
        int k = first + (int)threadIdx.x % 32;
        int64_t r = ring.row + (int64_t)(k / R) * ring.step + k % R;
        if (r >= j.rows) return;
        later = make_float2(MEAN ? sk_get(j.mean, r) : 0, sk_get(j.rstd, r));
    }

    __device__ facts(const job &j, const sk_ring<R> &ring) : seen(0)
    {
        now = later = make_float2(0, 0);
        load(j, ring, 0);
    }

    /* Those of the group's next row. */
    __device__ float2 next(const job &j, const sk_ring<R> &ring)
    {
        if (seen == 0) now = later, load(j, ring, 32);
        float2 v =
            make_float2(MEAN ? __shfl_sync(~0u, now.x, seen) : 0, __shfl_sync(~0u, now.y, seen));
        seen = (seen + 1) % 32;
        return v;
    }
};

/* What a thread has of K packs of a row. */
template <typename T, int K> struct held {
    enum { V = sk_pack<T>() };
    float most[K][V], hat[K][V]; /* rstd * g + res; xhat */
    float rstd;
};

/* A thread's columns: their weights and sums. */
template <typename T, int K, int R, bool MEAN, int SUMS> struct mine {
    enum { V = sk_pack<T>(), N = count(MEAN, SUMS) };
    uint4 w[K];
    float sum[N ? N : 1][K][V];

    /* The element that pack k begins with. */
    static __device__ int at(int k) { return ((int)threadIdx.x + k * (int)blockDim.x) * V; }

    __device__ explicit mine(const job &j) : sum()
    {
#pragma unroll
        for (int k = 0; k < K; k++)
            if (at(k) < (int)j.n) w[k] = *(const uint4 *)((const T *)j.w + at(k));
    }

    /* Takes row i of the ring's; its share of the sums of g and of g * hat. */
    __device__ void begin(const job &j, const sk_ring<R> &ring, int i, float2 fact, held<T, K> *h,
                          float *v)
    {
        h->rstd = fact.y;
#pragma unroll
        for (int k = 0; k < K; k++) {
            float d[V], scale[V];
            if (at(k) >= (int)j.n) break;
            sk_open<T>(w[k], scale);
            sk_load<V>((const T *)ring.at(0, i) + at(k), h->hat[k]);
            sk_load<V>((const T *)ring.at(1, i) + at(k), d);
            if (j.res) sk_load<V>((const T *)ring.at(2, i) + at(k), h->most[k]);
            else
                for (int e = 0; e < V; e++) h->most[k][e] = 0;
#pragma unroll
            for (int e = 0; e < V; e++) {
                float hat = (h->hat[k][e] - fact.x) * fact.y, g = scale[e] * d[e];
                v[0] += g;
                v[1] += g * hat;
                if (SUMS) sum[0][k][e] += d[e] * hat;
                if (SUMS && MEAN) sum[N > 1][k][e] += d[e];
                h->hat[k][e] = hat;
                h->most[k][e] += fact.y * g;
            }
        }
    }

    /* v: the means of g and of g * hat over the row. */
    __device__ void finish(const job &j, int r, const held<T, K> &h, const float *v)
    {
        T *dx = (T *)j.dx + (int64_t)r * (int)j.n;
        float shift = MEAN ? h.rstd * v[0] : 0, slope = h.rstd * v[1];
#pragma unroll
        for (int k = 0; k < K; k++) {
            float d[V];
            if (at(k) >= (int)j.n) break;
#pragma unroll
            for (int e = 0; e < V; e++) d[e] = h.most[k][e] - shift - slope * h.hat[k][e];
            uint4 raw = sk_close<T>(d);
            *(uint4 *)(dx + at(k)) = raw;
            if (SUMS != ALL) continue;
            sk_open<T>(raw, d);
#pragma unroll
            for (int e = 0; e < V; e++) sum[N - 1][k][e] += d[e];
        }
    }

    /* The block's partial sums: groups' sums added in their order. */
    __device__ void leave(const job &j, float *shared)
    {
        int n = (int)j.n, all = 4 * (int)(blockDim.x * blockDim.y);
        float *part = j.part + (int64_t)blockIdx.x * N * n;
#pragma unroll
        for (int s = 0; s < N; s++, part += n) {
            __syncthreads(); /* nobody reads any more what is there */
#pragma unroll
            for (int k = 0; k < K; k++)
                if (at(k) < n)
                    sk_store_at<V>(shared + (int)threadIdx.y * n + at(k), sum[s][k], true);
            __syncthreads();
            for (int i = 4 * (int)(threadIdx.y * blockDim.x + threadIdx.x); i < n; i += all) {
                float4 v = *(const float4 *)(shared + i);
                for (int g = 1; g < (int)blockDim.y; g++) {
                    float4 x = *(const float4 *)(shared + g * n + i);
                    v.x += x.x, v.y += x.y, v.z += x.z, v.w += x.w;
                }
                *(float4 *)(part + i) = v;
            }
        }
    }
};

template <typename T, int K, int R, bool MEAN, int SUMS>
static __global__ void __launch_bounds__(K == 1 ? BLOCK : LESS, 1) by_groups(job j)
{
    extern __shared__ uint4 dynamic[];
    __shared__ sk_sums<2 * R> all;
    char *shared = (char *)dynamic;
    sk_ring<R> ring(shared, j.x, j.dy, j.res, (int)j.n * (int)sizeof(T), j.rows, j.stages);
    facts<R, MEAN> fact(j, ring);
    mine<T, K, R, MEAN, SUMS> c(j);
    float by = 1 / (float)j.n;
    all.clear();
    while (ring.row < ring.rows) {
        held<T, K> h[R];
        float v[2 * R] = {};
        int r = ring.row, left = ring.rows - r, turn = fact.seen / R % 2;
        ring.wait();
#pragma unroll
        for (int i = 0; i < R; i++) {
            float2 now = fact.next(j, ring);
            if (i < left) c.begin(j, ring, i, now, &h[i], v + 2 * i);
        }
        all.add_up(v, turn);
        ring.next();
        for (int i = 0; i < 2 * R; i++) v[i] *= by;
#pragma unroll
        for (int i = 0; i < R; i++)
            if (i < left) c.finish(j, r + i, h[i], v + 2 * i);
    }
    if (SUMS) c.leave(j, (float *)(shared + SK_RING_BARRIERS));
}

/* dx of rows of any length and alignment. */
template <typename T, bool MEAN>
static __global__ void __launch_bounds__(LONG_BLOCK) by_blocks(job j)
{
    __shared__ sk_sums<2> all;
    int turn = 0;
    const T *w = (const T *)j.w;
    all.clear();
    for (int64_t r = blockIdx.x; r < j.rows; r += gridDim.x, turn ^= 1) {
        const T *x = (const T *)j.x + r * j.n, *dy = (const T *)j.dy + r * j.n;
        const T *res = j.res ? (const T *)j.res + r * j.n : nullptr;
        T *dx = (T *)j.dx + r * j.n;
        float rstd = sk_get(j.rstd, r), mean = MEAN ? sk_get(j.mean, r) : 0;
        float v[2] = {};
        for (int64_t i = threadIdx.x; i < j.n; i += LONG_BLOCK) {
            float g = (float)w[i] * (float)dy[i];
            v[0] += g;
            v[1] += g * ((float)x[i] - mean);
        }
        all.add_up(v, turn);
        float shift = MEAN ? v[0] / (float)j.n : 0, slope = v[1] / (float)j.n * rstd * rstd;
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
    unsigned add = (unsigned)j->add_dw, n = 1;
    sk_columns_out out = {{j->dw}};
    if (j->mean.data) add |= (unsigned)j->add_db << n, out.to[n++] = j->db;
    if (j->sum.data) add |= (unsigned)j->add_sum << n, out.to[n++] = j->sum;
    out.add = add;
    return out;
}

static bool aligned(const sk_norm_grad_job *j)
{
    uintptr_t bits =
        (uintptr_t)j->x | (uintptr_t)j->w | (uintptr_t)j->dy | (uintptr_t)j->res | (uintptr_t)j->dx;
    return !(bits % 16) && !((size_t)j->n * sk_dtype_size(j->type) % 16);
}

/* A single row is one cell. */
static sk_borders cells_of(const sk_norm_grad_job *j)
{
    sk_borders one = {1, {0, j->rows}};
    const sk_view *x = j->cells;
    return x->n > 1 ? sk_borders_of(x, 0, sk_span(x, 1, x->n - 1)) : one;
}

template <typename T, typename F>
static sk_status columns(const sk_norm_grad_job *j, F f, sk_columns_out out, const sk_launch *l)
{
    if (j->cells) return sk_ordered_columns(j->op, f, cells_of(j), j->n, out, l);
    if (aligned(j)) return sk_columns<F, sk_pack<T>()>(j->op, f, j->rows, j->n, out, l);
    return sk_columns<F, 1>(j->op, f, j->rows, j->n, out, l);
}

template <typename T, bool MEAN>
static sk_status own_sums(const sk_norm_grad_job *j, const sk_launch *l)
{
    both<T, MEAN> f = {(const T *)j->x, (const T *)j->dy, j->mean, j->rstd};
    return j->dw.data ? columns<T>(j, f, sums_of(j), l) : SK_OK;
}

template <typename T> static sk_status sum_of_dx(const sk_norm_grad_job *j, const sk_launch *l)
{
    sk_columns_out out = {{j->sum}, j->add_sum};
    return j->sum.data ? columns<T>(j, sk_columns_plain<T>{(const T *)j->dx}, out, l) : SK_OK;
}

template <typename T, int K, int R, bool MEAN, int SUMS>
static sk_status groups(const sk_norm_grad_job *j, job k, const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    const int64_t each = 32 * K * sk_pack<T>(), bytes = j->n * (int64_t)sizeof(T);
    unsigned threads = 32 * (unsigned)((j->n + each - 1) / each);
    unsigned tall = (K == 1 ? BLOCK : LESS) / threads;
    if (tall > SK_MOST_GROUPS) tall = SK_MOST_GROUPS;
    unsigned grid = sk_ring_grid(j->rows, (int)tall * R);
    int arrays = k.res ? 3 : 2;
    k.stages = sk_ring_stages((int)tall, arrays, R, bytes, RING);
    int shared = sk_ring_bytes((int)tall, arrays, R, bytes, k.stages);
    auto *kernel = by_groups<T, K, R, MEAN, SUMS>;
    k.part = (float *)l->workspace;
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    kernel<<<grid, dim3(threads, tall), (size_t)shared, s>>>(k);
    SK_TRY(sk_cuda_launched(j->op));
    if (!SUMS) return SK_OK;
    return sk_columns_end(j->op, k.part, grid, count(MEAN, SUMS), j->n, sums_of(j), s);
}

template <typename T, int K, int R, bool MEAN>
static sk_status short_rows(const sk_norm_grad_job *j, job k, const sk_launch *l)
{
    if (!j->dw.data) {
        SK_TRY((groups<T, K, R, MEAN, NONE>(j, k, l)));
        return sum_of_dx<T>(j, l);
    }
    return j->sum.data ? groups<T, K, R, MEAN, ALL>(j, k, l) : groups<T, K, R, MEAN, OWN>(j, k, l);
}

template <typename T, bool MEAN>
static sk_status long_rows(const sk_norm_grad_job *j, job k, const sk_launch *l)
{
    unsigned grid = j->rows < INT32_MAX ? (unsigned)j->rows : INT32_MAX; /* the kernel goes round */
    SK_TRY((own_sums<T, MEAN>(j, l))); /* before dx takes over x or dy */
    if (!j->dx) return SK_OK;
    if (grid) by_blocks<T, MEAN><<<grid, LONG_BLOCK, 0, (cudaStream_t)l->stream>>>(k);
    SK_TRY(sk_cuda_launched(j->op));
    return sum_of_dx<T>(j, l);
}

template <typename T, bool MEAN> static sk_status run(const sk_norm_grad_job *j, const sk_launch *l)
{
    constexpr int V = sk_pack<T>();
    job k = {j->x, j->w, j->dy, j->res, j->dx, j->mean, j->rstd, j->rows, j->n, j->add_dx};
    if (!j->n) return SK_OK;
    bool two = j->res && j->add_dx, any = j->dx && j->rows;
    if (j->cells || !any || two || !aligned(j) || j->n > MOST || j->rows > FAR)
        return long_rows<T, MEAN>(j, k, l);
    if (j->add_dx) k.res = j->dx;
    if (j->n <= BLOCK * V) return short_rows<T, 1, 2, MEAN>(j, k, l);
    return short_rows<T, EACH / V, 1, MEAN>(j, k, l);
}

sk_status sk_norm_grad(const sk_norm_grad_job *j, const sk_launch *l)
{
    return j->mean.data ? SK_FLOAT(j->type, run<T, true>(j, l))
                        : SK_FLOAT(j->type, run<T, false>(j, l));
}
