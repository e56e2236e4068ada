/* xent_rows.cu - see xent_rows.h.
 *
 * A block takes one row after the other, as packs of 16 bytes, of which each thread has every
 * blockDim.x-th.  No thread reads a pack of another: each asks for its packs itself (cp.async into
 * shared memory, all of them in flight at once) and waits for them alone.  While a row is worked on
 * the next one comes, so that reads, writes and arithmetic overlap.  Threads synchronise only for
 * the maximum and for the sum, in a fixed order.  This holds for the first two of three ways:
 *
 * In registers (xent_registers.h): rows of two-byte elements that all begin at a border of 16
 * bytes, of 24,576 to 65,536 columns.  Of 16,384 rows of 50,304 columns in bf16, 3.3 GB are moved,
 * 0.77 ms at the speed of a copy, and 1.65e9 powers are taken, 0.4 ms at 16 a cycle on each SM;
 * measured on an H200: 0.96 ms (32,768 columns: 0.62, 65,536: 1.23).
 *
 * In shared memory (xent_shared.h): other rows that fit there.  The sizes above take 1.45 ms (0.97
 * and 1.90) so.
 *
 * With label smoothing or a z-loss rows of all such lengths lie in shared memory: of a training
 * step of GPT-2 the half millisecond is less than 1 %.
 *
 * In passes: longer rows are read three times, each time from memory. */
#include "kernel/cuda/xent_registers.h"
#include "kernel/cuda/xent_shared.h"

enum {
    PACKS = 4,   /* so many has a thread at least, in a block of more than one warp */
    SLACK = 2048 /* bytes of shared memory that a block needs beside its row, and more */
};

/* ---- rows of any length */

template <typename T, int V, bool SOFT>
static __global__ void __launch_bounds__(MOST_THREADS) in_passes(sk_xent_job j)
{
    constexpr int WARPS = MOST_THREADS / 32;
    for (int64_t r = blockIdx.x; r < j.rows; r += gridDim.x) {
        const T *x = (const T *)j.logits + r * j.n;
        T *dx = (T *)j.dlogits + r * j.n;
        int64_t at = j.target[r] - j.at;
        float t = at >= 0 && at < j.n ? (float)x[at] : 0, top = -INFINITY, sum = 0, all = 0,
              even = 0;
        sk_rows<T, V, WARPS, 1> row({x}, j.n);
        row.pass([&](int64_t, const float(*v)[V], int count) {
            for (int e = 0; e < count; e++) top = fmaxf(top, v[0][e]);
        });
        top = most(top) + 0.0f;
        row.pass([&](int64_t, const float(*v)[V], int count) {
            for (int e = 0; e < count; e++) {
                sum += sk_row_exp<T>(v[0][e] - top);
                if (SOFT) all += v[0][e];
            }
        });
        sum = total(sum);
        float d = j.weight[r] * *j.scale, ds = d / sum;
        if (SOFT) {
            softer f = softer_of(j);
            t = f.own * t + f.even * total(all), even = f.even * d;
            ds *= z_factor(j, top, sum), d *= f.own;
        }
        row.pass([&](int64_t i, const float(*v)[V], int count) {
            float to[V];
            for (int e = 0; e < count; e++) {
                to[e] = sk_row_exp<T>(v[0][e] - top) * ds;
                if (SOFT) to[e] -= even;
            }
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
    return sk_fail(SK_EIO,
                   "xent_rows: no shared memory for a block of %d threads and %lld bytes: %s", n,
                   (long long)bytes, cudaGetErrorString(e));
}

static bool soft(const sk_xent_job *j) { return j->smooth != 0 || j->z != 0; }

template <typename T>
static sk_status hold(const sk_xent_job *j, int64_t packs, const limits *x, cudaStream_t s)
{
    size_t bytes = (size_t)packs * 16;
    int n = threads_for(packs), in_sm = 0;
    auto kernel = soft(j) ? in_shared<T, true> : in_shared<T, false>;
    SK_TRY(fit(kernel, n, bytes, x, &in_sm));
    int64_t blocks = (int64_t)in_sm * x->sms;
    if (blocks > j->rows) blocks = j->rows;
    kernel<<<(unsigned)blocks, n, bytes, s>>>(*j, sk_cuda_alike(j->logits, j->dlogits));
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
    return !soft(j) && j->type != SK_F32 && !(bits % 16) && !(j->n % 8) && packs >= FEWEST &&
           packs <= MOST && packs <= (x->in_block - SLACK) / 16;
}

template <typename T, int V> static sk_status pass(const sk_xent_job *j, cudaStream_t s)
{
    auto kernel = soft(j) ? in_passes<T, V, true> : in_passes<T, V, false>;
    kernel<<<sk_cuda_blocks(j->rows, 1), MOST_THREADS, 0, s>>>(*j);
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
