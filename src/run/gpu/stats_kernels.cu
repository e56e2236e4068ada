/* stats_kernels.cu - STATS: the norm of gradients and the sums of a step; SUMSQ: the squares of one
 * gradient; CLIP: what follows from the sums. */
#include "base/exact.h"
#include "run/gpu/inst_kernels_cuda.h"
#include "run/ordered_sums.h"

/* ---- STATS */

enum { STAT_PER_SM = 6, STAT_BLOCKS = 132 * STAT_PER_SM }; /* fixed: the same sums on any GPU */

/* The share of this thread of the sum of squares of n elements; if they do not count, 0 or NaN.
 * Sums of FLIGHT packs are in f32, as those of 4,096 elements are on a CPU. */
template <typename T> static __device__ double squares(const T *x, int64_t n, float counts)
{
    const int V = 16 / (int)sizeof(T);
    double sum = 0;
    int64_t full = (uintptr_t)x % 16 ? 0 : n / V;
    for (int64_t i = threadIdx.x; i < full; i += BLOCK * FLIGHT) {
        float v[FLIGHT][V], part = 0;
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            if (i + k * BLOCK < full) sk_take<V>(x + (i + k * BLOCK) * V, v[k]);
            else
                for (int e = 0; e < V; e++) v[k][e] = 0;
        }
#pragma unroll
        for (int k = 0; k < FLIGHT; k++)
#pragma unroll
            for (int e = 0; e < V; e++) part += v[k][e] * (v[k][e] * counts);
        sum += (double)part;
    }
    for (int64_t i = full * V + threadIdx.x; i < n; i += BLOCK) {
        float v = (float)x[i];
        sum += (double)(v * (v * counts));
    }
    return sum;
}

/* The same of elements [from, to) of a buffer of any type. */
static __device__ double squares_of(const void *data, sk_dtype type, int64_t from, int64_t to,
                                    float counts)
{
    if (type == SK_BF16) return squares((const __nv_bfloat16 *)data + from, to - from, counts);
    if (type == SK_F16) return squares((const __half *)data + from, to - from, counts);
    return squares((const float *)data + from, to - from, counts);
}

/* As in base/exact.c: squares of mantissas are added to a bin for each exponent, and the bins to
 * the limbs once a chunk.  Sums of integers: the order of atomics does not matter. */
template <typename T>
static __device__ void exact_chunk(const T *x, int64_t n, unsigned long long *bin, sk_exact *acc)
{
    const unsigned odd = 255;
    __syncthreads(); /* the bins of the chunk before have been read */
    for (int e = threadIdx.x; e <= (int)odd; e += BLOCK) bin[e] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n; i += BLOCK) {
        unsigned u = __float_as_uint((float)x[i]), e = sk_exact_exponent(u);
        if (e < odd) atomicAdd(&bin[e], (unsigned long long)sk_exact_square(u));
        else
            atomicAdd((unsigned long long *)&acc->limb[u << 9 ? SK_EXACT_NAN : SK_EXACT_INF], 1ull);
    }
    __syncthreads();
    for (unsigned e = 0; e < odd && !threadIdx.x; e++)
        if (bin[e]) sk_exact_at(acc, e, bin[e]);
    if (!threadIdx.x) sk_exact_carry(acc);
}

static __device__ void exact_add(int64_t *out, const sk_exact *acc)
{
    __syncthreads();
    if (threadIdx.x < SK_EXACT_LIMBS)
        atomicAdd((unsigned long long *)&out[threadIdx.x],
                  (unsigned long long)acc->limb[threadIdx.x]);
}

static __global__ void __launch_bounds__(BLOCK)
    exact_share(const sk_norm_piece *pieces, int n_pieces, int64_t chunks, int64_t *out)
{
    __shared__ sk_exact acc;
    __shared__ unsigned long long bin[256];
    if (threadIdx.x < SK_EXACT_LIMBS) acc.limb[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t c = blockIdx.x; c < chunks; c += gridDim.x) {
        const sk_norm_piece p = pieces[sk_piece_with(pieces, n_pieces, c)];
        int64_t from = (c - p.chunk) * SK_UPDATE_CHUNK, n = p.n - from;
        if (p.counts)
            exact_chunk((const float *)p.data + from, n < SK_UPDATE_CHUNK ? n : SK_UPDATE_CHUNK,
                        bin, &acc);
    }
    exact_add(out, &acc);
}

/* Each block has a share of all chunks, shard after shard.  exact: exact_share() sums the shards
 * that count. */
static __global__ void __launch_bounds__(BLOCK, STAT_PER_SM)
    stats_share(const sk_norm_piece *pieces, int n_pieces, int64_t chunks, double *partial,
                bool exact)
{
    int64_t c = chunks * blockIdx.x / gridDim.x, end = chunks * (blockIdx.x + 1) / gridDim.x;
    double sum = 0;
    for (int k = sk_piece_with(pieces, n_pieces, c); c < end; k++) {
        const sk_norm_piece p = pieces[k];
        int64_t from = (c - p.chunk) * SK_UPDATE_CHUNK, to = (end - p.chunk) * SK_UPDATE_CHUNK;
        float counts = p.counts ? 1 : 0;
        if (to > p.n) to = p.n;
        if (exact && p.counts) to = from;
        sum += squares_of(p.data, p.type, from, to, counts);
        c = p.chunk + (p.n + SK_UPDATE_CHUNK - 1) / SK_UPDATE_CHUNK;
    }
    sum = sk_block_sum(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(BLOCK)
    stats_end(const __grid_constant__ sk_stats_job j, const double *partial, int n)
{
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += BLOCK) sum += partial[i];
    sum = sk_block_sum(sum);
    for (int64_t i = 1 + (int)threadIdx.x; i < j.out_n; i += BLOCK)
        j.out[i] = i <= j.n_sums && j.sum[i - 1] ? (double)*j.sum[i - 1] : 0;
    if (threadIdx.x) return;
    if (j.more) sum += *j.more;
    if (j.full && *j.full) sum += INFINITY;
    if (j.full) *j.full = 0;
    j.out[0] = sum;
}

sk_status sk_gpu_stats(const sk_stats_job *j, const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    double *partial = (double *)l->workspace;
    int blocks = j->chunks < STAT_BLOCKS ? (int)j->chunks : (int)STAT_BLOCKS;
    if (blocks)
        stats_share<<<(unsigned)blocks, BLOCK, 0, s>>>(j->pieces, j->n_pieces, j->chunks, partial,
                                                       j->exact != NULL);
    if (blocks && j->exact)
        exact_share<<<(unsigned)blocks, BLOCK, 0, s>>>(j->pieces, j->n_pieces, j->chunks, j->exact);
    stats_end<<<1, BLOCK, 0, s>>>(*j, partial, blocks);
    return sk_cuda_launched("stats");
}

/* ---- SUMSQ */

/* Each block has a share of all chunks of one gradient. */
static __global__ void __launch_bounds__(BLOCK, STAT_PER_SM)
    sumsq_share(const void *data, sk_dtype type, int64_t n, double *partial)
{
    int64_t chunks = (n + SK_UPDATE_CHUNK - 1) / SK_UPDATE_CHUNK;
    int64_t from = chunks * blockIdx.x / gridDim.x * SK_UPDATE_CHUNK;
    int64_t to = chunks * (blockIdx.x + 1) / gridDim.x * SK_UPDATE_CHUNK;
    double sum = sk_block_sum(squares_of(data, type, from, to < n ? to : n, 1));
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(BLOCK) sumsq_end(double *to, const double *partial, int n)
{
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += BLOCK) sum += partial[i];
    sum = sk_block_sum(sum);
    if (threadIdx.x == 0) *to += sum;
}

/* In order=canonical: squares are added as integers. */
static __global__ void __launch_bounds__(BLOCK)
    sumsq_exact(const void *data, sk_dtype type, int64_t n, int64_t *out)
{
    __shared__ sk_exact acc;
    __shared__ unsigned long long bin[256];
    if (threadIdx.x < SK_EXACT_LIMBS) acc.limb[threadIdx.x] = 0;
    for (int64_t at = (int64_t)blockIdx.x * SK_UPDATE_CHUNK; at < n;
         at += (int64_t)gridDim.x * SK_UPDATE_CHUNK) {
        int64_t m = n - at < SK_UPDATE_CHUNK ? n - at : SK_UPDATE_CHUNK;
        if (type == SK_BF16) exact_chunk((const __nv_bfloat16 *)data + at, m, bin, &acc);
        else if (type == SK_F16) exact_chunk((const __half *)data + at, m, bin, &acc);
        else exact_chunk((const float *)data + at, m, bin, &acc);
    }
    exact_add(out, &acc);
}

sk_status sk_gpu_sumsq(void *sum, const void *data, sk_dtype type, int64_t n, bool exact,
                       const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    double *partial = (double *)l->workspace;
    int64_t chunks = sk_update_chunks(n);
    int blocks = chunks < STAT_BLOCKS ? (int)chunks : (int)STAT_BLOCKS;
    if (!blocks) return SK_OK;
    if (exact) {
        sumsq_exact<<<(unsigned)blocks, BLOCK, 0, s>>>(data, type, n, (int64_t *)sum);
        return sk_cuda_launched("sumsq");
    }
    sumsq_share<<<(unsigned)blocks, BLOCK, 0, s>>>(data, type, n, partial);
    sumsq_end<<<1, BLOCK, 0, s>>>((double *)sum, partial, blocks);
    return sk_cuda_launched("sumsq");
}

/* ---- CLIP: take_sums() and sk_do_clip() of run/cpu/grad_norm.c, by one thread */

static __device__ void take_sums(const sk_clip_job *j, const double *sums, const void *exact,
                                 double loss_scale)
{
    sk_step_scalars *p = j->pulse;
    double sum[SK_N_SUMS] = {0};
    for (int i = 0; i < j->n_sums; i++) {
        const double *cells = sums + 1 + j->n_sums + (int64_t)j->of[i].tree * j->n_blocks;
        sum[i] = j->of[i].trees ? sk_tree_sums(cells, j->n_blocks, j->of[i].trees) : sums[1 + i];
    }
    double tokens = sum[SK_SUM_WEIGHT] > 0 ? sum[SK_SUM_WEIGHT] : 1, squares = sums[0];
    if (exact) squares += sk_exact_value((const sk_exact *)exact);
    p->loss = sum[SK_SUM_LOSS] / tokens;
    p->tokens = sum[SK_SUM_WEIGHT];
    p->aux = sum[SK_SUM_AUX] / tokens;
    p->drops = sum[SK_SUM_DROPS];
    p->right = sum[SK_SUM_RIGHT];
    p->norm = sqrt(squares) / tokens / loss_scale;
    double small = j->small ? *j->small : 0;
    if (j->small_exact) small = sk_exact_value((const sk_exact *)j->small_exact);
    p->small = small / (tokens * loss_scale * tokens * loss_scale);
    p->finite = isfinite(p->loss) && isfinite(p->norm);
    p->again = j->train && ((j->no_drops && p->drops > 0) || (j->no_full && !isfinite(p->norm)));
}

static __global__ void clip_one(const __grid_constant__ sk_clip_job j)
{
    sk_step_scalars *p = j.pulse;
    double loss_scale = p->loss_scale > 0 ? p->loss_scale : 1;
    bool together = (int64_t)p->step < j.together;
    take_sums(&j, j.sums, j.exact, loss_scale);
    if (together) {
        double norm = p->norm, own = p->tokens > 0 ? p->tokens : 1;
        take_sums(&j, j.all, j.exact_all, loss_scale);
        p->norm = norm * own / (p->tokens > 0 ? p->tokens : 1);
        p->finite = isfinite(p->loss) && isfinite(p->norm);
    }
    double tokens = p->tokens > 0 ? p->tokens : 1;
    bool clips = j.clip > 0 && p->phase + 1 >= j.phases;
    double factor = clips ? j.clip / (p->norm + 1e-6) : 1;
    if (j.all && !together && !j.apart) {
        take_sums(&j, j.all, j.exact_all, loss_scale);
        p->norm *= sqrt(j.replicas);
    }
    if (!j.train) return;
    p->scale = (float)((factor < 1 ? factor : 1) / tokens / loss_scale);
    if (j.scale > 0) { /* updates were made already; the norm is that of the newest */
        p->norm *= tokens * (double)j.scale;
        p->finite = isfinite(p->loss) && isfinite(p->norm);
    }
    p->skip = !j.alone && (p->skip || !p->finite || p->again);
    p->hold = p->skip || p->phase + 1 < j.phases;
}

sk_status sk_gpu_clip(const sk_clip_job *j, const sk_launch *l)
{
    clip_one<<<1, 1, 0, (cudaStream_t)l->stream>>>(*j);
    return sk_cuda_launched("clip");
}
