/* acts.cu - the engine's own work on a GPU: copies of boxes, sums, conversions, statistics,
 * clipping, packed results.
 *
 * All of it but CLIP is bound by memory: accesses of 16 bytes wherever addresses and sizes allow,
 * and four of them under way per thread. */
#include "kernel/cuda/optim_pass.h"
#include "base/exact.h"
#include "run/gpu/inst_kernels.h"
#include "run/ordered_sums.h"

enum { BLOCK = SK_PASS_BLOCK, FLIGHT = 4 };

static unsigned blocks_for(int64_t n, int64_t each) { return (unsigned)((n + each - 1) / each); }

/* ---- boxes of bytes */

/* Counted loops, the first the outermost; steps are in bytes. */
typedef struct loops {
    int n;
    int64_t size[SK_MAX_DIM + 2], from[SK_MAX_DIM + 2], to[SK_MAX_DIM + 2];
} loops;

/* `total` words; each finds its place by division, in 32 bits if they suffice. */
template <typename W, typename I>
static __global__ void __launch_bounds__(BLOCK)
    copy_words(const __grid_constant__ loops b, const char *from, char *to, int64_t total)
{
    W word[FLIGHT];
    int64_t there[FLIGHT];
    int64_t first = (int64_t)blockIdx.x * BLOCK * FLIGHT + threadIdx.x;
#pragma unroll
    for (int k = 0; k < FLIGHT; k++) {
        I rest = (I)(first + k * BLOCK);
        int64_t here = 0;
        there[k] = 0;
        if (first + k * BLOCK >= total) break;
        for (int d = b.n - 1; d > 0; d--) {
            I next = rest / (I)b.size[d], i = rest - next * (I)b.size[d];
            here += (int64_t)i * b.from[d];
            there[k] += (int64_t)i * b.to[d];
            rest = next;
        }
        there[k] += (int64_t)rest * b.to[0];
        word[k] = *(const W *)(from + here + (int64_t)rest * b.from[0]);
    }
#pragma unroll
    for (int k = 0; k < FLIGHT; k++)
        if (first + k * BLOCK < total) *(W *)(to + there[k]) = word[k];
}

template <typename W> static void copy_as(loops *b, const char *from, char *to, cudaStream_t s)
{
    int last = b->n - 1;
    int64_t total = 1;
    b->size[last] /= (int64_t)sizeof(W); /* the innermost loop was one of bytes */
    b->from[last] = b->to[last] = (int64_t)sizeof(W);
    for (int d = 0; d < b->n; d++) total *= b->size[d];
    unsigned blocks = blocks_for(total, BLOCK * FLIGHT);
    if (total < INT32_MAX) copy_words<W, unsigned><<<blocks, BLOCK, 0, s>>>(*b, from, to, total);
    else copy_words<W, uint64_t><<<blocks, BLOCK, 0, s>>>(*b, from, to, total);
}

/* The innermost loop must be of bytes that lie together. */
static sk_status copy(loops *b, const char *from, char *to, cudaStream_t s)
{
    uintptr_t bits = (uintptr_t)from | (uintptr_t)to | (uintptr_t)b->size[b->n - 1];
    for (int d = 0; d < b->n - 1; d++) bits |= (uintptr_t)b->from[d] | (uintptr_t)b->to[d];
    for (int d = 0; d < b->n; d++)
        if (!b->size[d]) return SK_OK;
    if (!(bits % 16)) copy_as<uint4>(b, from, to, s);
    else if (!(bits % 8)) copy_as<uint2>(b, from, to, s);
    else if (!(bits % 4)) copy_as<unsigned>(b, from, to, s);
    else if (!(bits % 2)) copy_as<unsigned short>(b, from, to, s);
    else copy_as<unsigned char>(b, from, to, s);
    return sk_cuda_launched("copy");
}

/* One more loop around those of b, which are in reverse order; it melts into the last if elements
 * go on there as if there were no border. */
static void around(loops *b, int64_t size, int64_t from, int64_t to)
{
    int k = b->n - 1;
    if (size == 1) return;
    if (from == b->from[k] * b->size[k] && to == b->to[k] * b->size[k]) {
        b->size[k] *= size;
        return;
    }
    b->size[++k] = size, b->from[k] = from, b->to[k] = to;
    b->n = k + 1;
}

static void turn_round(loops *b)
{
    loops x = *b;
    for (int d = 0; d < b->n; d++) {
        b->size[d] = x.size[b->n - 1 - d];
        b->from[d] = x.from[b->n - 1 - d];
        b->to[d] = x.to[b->n - 1 - d];
    }
}

/* Copies between a part and the box of it in the whole. */
static sk_status copy_box(const sk_view *part, const sk_view *whole, bool out, cudaStream_t s)
{
    int64_t bytes = (int64_t)sk_dtype_size(part->type), step = bytes, at = 0;
    loops b = {1, {bytes}, {1}, {1}};
    for (int d = part->n - 1; d >= 0; d--) {
        int64_t far = whole->step[d] * bytes;
        at += (part->at[d] - whole->at[d]) * far;
        around(&b, part->size[d], out ? far : step, out ? step : far);
        step *= part->size[d];
    }
    turn_round(&b);
    if (!sk_count(part)) return SK_OK;
    char *there = (char *)whole->data + at, *here = (char *)part->data;
    return out ? copy(&b, there, here, s) : copy(&b, here, there, s);
}

static sk_status slice(const sk_view *from, const sk_view *to, void *stream)
{
    return copy_box(to, from, true, (cudaStream_t)stream);
}

static sk_status paste(const sk_view *from, const sk_view *to, void *stream)
{
    return copy_box(from, to, false, (cudaStream_t)stream);
}

static sk_status gather(void *to, int64_t to_step, const void *from, int64_t from_step,
                        int64_t unit, int64_t units, void *stream)
{
    loops b = {1, {unit}, {1}, {1}};
    around(&b, units, from_step, to_step);
    turn_round(&b);
    return copy(&b, (const char *)from, (char *)to, (cudaStream_t)stream);
}

/* ---- element by element */

/* A block has BLOCK * FLIGHT packs of V elements; one by one what is not in packs. */
template <int V, typename T>
static __global__ void __launch_bounds__(BLOCK)
    add_some(T *to, const T *from, int64_t n, bool packs)
{
    int64_t at = (int64_t)blockIdx.x * BLOCK * FLIGHT * V;
    int m = (int)(n - at < BLOCK * FLIGHT * V ? n - at : BLOCK * FLIGHT * V),
        full = packs ? m / V : 0;
    float x[FLIGHT][V], y[FLIGHT][V];
    to += at, from += at;
#pragma unroll
    for (int k = 0; k < FLIGHT; k++) {
        int i = ((int)threadIdx.x + k * BLOCK);
        if (i < full) sk_take<V>(to + i * V, x[k]), sk_take<V>(from + i * V, y[k]);
    }
#pragma unroll
    for (int k = 0; k < FLIGHT; k++) {
        int i = ((int)threadIdx.x + k * BLOCK);
#pragma unroll
        for (int e = 0; e < V; e++) x[k][e] += y[k][e];
        if (i < full) sk_leave<V>(to + i * V, x[k]);
    }
    for (int i = full * V + threadIdx.x; i < m; i += BLOCK)
        to[i] = (T)((float)to[i] + (float)from[i]);
}

template <typename T> static void add_as(void *to, const void *from, int64_t n, cudaStream_t s)
{
    const int V = sk_pack<T>();
    bool packs = !(((uintptr_t)to | (uintptr_t)from) % 16);
    add_some<V, T>
        <<<blocks_for(n, BLOCK * FLIGHT * V), BLOCK, 0, s>>>((T *)to, (const T *)from, n, packs);
}

static sk_status add(void *to, const void *from, int64_t n, sk_dtype type, void *stream)
{
    SK_TRY(sk_inst_kernel_takes("add", type));
    if (n) SK_FLOAT(type, add_as<T>(to, from, n, (cudaStream_t)stream));
    return sk_cuda_launched("add");
}

/* ---- a sum over members: like the carries of a binary counter, slot l has the sum of 2^l of them
 */

template <typename T>
static __global__ void __launch_bounds__(BLOCK) tree_some(const __grid_constant__ sk_tree_job j)
{
    enum { SLOTS = 20 };
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    T slot[SLOTS], x;
    if (i >= j.n) return;
    for (int k = 0; k < j.members; k++) {
        int l = 0;
        x = ((const T *)(k == j.me ? j.mine : j.room + k * j.step))[i];
        for (; k >> l & 1; l++) x = slot[l] + x;
        slot[l] = x;
    }
    bool any = false;
    for (int l = 0; l < SLOTS; l++) {
        if (!(j.members >> l & 1)) continue;
        x = any ? slot[l] + x : slot[l];
        any = true;
    }
    ((T *)j.to)[i] = j.mean ? x / (T)j.members : x;
}

static sk_status tree(const sk_tree_job *j, void *stream)
{
    unsigned blocks = blocks_for(j->n, BLOCK);
    cudaStream_t s = (cudaStream_t)stream;
    if (j->type != SK_F32 && j->type != SK_F64)
        return sk_fail(SK_ECONF, "order=canonical: a sum of %s between GPUs; f32 and f64 are known",
                       sk_dtype_name(j->type));
    if (j->n && j->type == SK_F64) tree_some<double><<<blocks, BLOCK, 0, s>>>(*j);
    else if (j->n) tree_some<float><<<blocks, BLOCK, 0, s>>>(*j);
    return sk_cuda_launched("tree");
}

/* A pack is 16 bytes of the wider type. */
template <int V, typename T, typename F>
static __global__ void __launch_bounds__(BLOCK)
    convert_some(T *to, const F *from, int64_t n, bool packs)
{
    int64_t at = (int64_t)blockIdx.x * BLOCK * FLIGHT * V;
    int m = (int)(n - at < BLOCK * FLIGHT * V ? n - at : BLOCK * FLIGHT * V),
        full = packs ? m / V : 0;
    float x[FLIGHT][V];
    to += at, from += at;
#pragma unroll
    for (int k = 0; k < FLIGHT; k++)
        if ((int)threadIdx.x + k * BLOCK < full)
            sk_take<V>(from + ((int)threadIdx.x + k * BLOCK) * V, x[k]);
#pragma unroll
    for (int k = 0; k < FLIGHT; k++)
        if ((int)threadIdx.x + k * BLOCK < full)
            sk_leave<V>(to + ((int)threadIdx.x + k * BLOCK) * V, x[k]);
    for (int i = full * V + threadIdx.x; i < m; i += BLOCK) to[i] = (T)(float)from[i];
}

template <typename T, typename F>
static void convert_as(void *to, const void *from, int64_t n, cudaStream_t s)
{
    const int V = 16 / (int)(sizeof(T) > sizeof(F) ? sizeof(T) : sizeof(F));
    bool packs = !((uintptr_t)to % (V * sizeof(T))) && !((uintptr_t)from % (V * sizeof(F)));
    convert_some<V, T, F>
        <<<blocks_for(n, BLOCK * FLIGHT * V), BLOCK, 0, s>>>((T *)to, (const F *)from, n, packs);
}

template <typename F>
static void convert_from(void *to, sk_dtype type, const void *from, int64_t n, cudaStream_t s)
{
    SK_FLOAT(type, convert_as<T, F>(to, from, n, s));
}

static __device__ double number(const void *p, sk_dtype type, int64_t i)
{
    if (type == SK_F64) return ((const double *)p)[i];
    if (type == SK_I32) return ((const int32_t *)p)[i];
    if (type == SK_I64) return (double)((const int64_t *)p)[i];
    if (type == SK_U8) return ((const uint8_t *)p)[i];
    return sk_get(sk_any{(void *)p, type}, i);
}

/* Types that only small things have. */
static __global__ void __launch_bounds__(BLOCK)
    convert_rare(void *to, sk_dtype to_type, const void *from, sk_dtype type, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n) return;
    double x = number(from, type, i);
    if (to_type == SK_F64) ((double *)to)[i] = x;
    else if (to_type == SK_I32) ((int32_t *)to)[i] = (int32_t)x;
    else if (to_type == SK_I64) ((int64_t *)to)[i] = (int64_t)x;
    else if (to_type == SK_U8) ((uint8_t *)to)[i] = (uint8_t)x;
    else sk_put(sk_any{to, to_type}, i, (float)x);
}

static sk_status convert(void *to, sk_dtype to_type, const void *from, sk_dtype type, int64_t n,
                         void *stream)
{
    cudaStream_t s = (cudaStream_t)stream;
    int64_t bytes = n * (int64_t)sk_dtype_size(type);
    if (to_type == type) return gather(to, bytes, from, bytes, bytes, 1, stream);
    if (n && (type > SK_F16 || to_type > SK_F16))
        convert_rare<<<blocks_for(n, BLOCK), BLOCK, 0, s>>>(to, to_type, from, type, n);
    else if (n) SK_FLOAT(type, convert_from<T>(to, to_type, from, n, s));
    return sk_cuda_launched("convert");
}

/* ---- STATS */

enum { STAT_PER_SM = 6, STAT_BLOCKS = 132 * STAT_PER_SM }; /* fixed: sums are alike on any GPU */

/* The squares of n elements, or 0 and NaN, as far as this thread sees them.  Sums of FLIGHT packs
 * are of f32, as those of 4,096 elements are on a CPU. */
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

/* As base/exact.c has it: squares of mantissas in a bin for each exponent, which go to the limbs
 * once a chunk.  Integers: atomics change nothing. */
static __device__ void exact_chunk(const float *x, int64_t n, unsigned long long *bin,
                                   sk_exact *acc)
{
    const unsigned odd = 255;
    __syncthreads(); /* the bins before these have been read */
    for (int e = threadIdx.x; e <= (int)odd; e += BLOCK) bin[e] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n; i += BLOCK) {
        unsigned u = __float_as_uint(x[i]), e = sk_exact_exponent(u);
        if (e < odd) atomicAdd(&bin[e], (unsigned long long)sk_exact_square(u));
        else
            atomicAdd((unsigned long long *)&acc->limb[u << 9 ? SK_EXACT_NAN : SK_EXACT_INF], 1ull);
    }
    __syncthreads();
    for (unsigned e = 0; e < odd && !threadIdx.x; e++)
        if (bin[e]) sk_exact_at(acc, e, bin[e]);
    if (!threadIdx.x) sk_exact_carry(acc);
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
    __syncthreads();
    if (threadIdx.x < SK_EXACT_LIMBS)
        atomicAdd((unsigned long long *)&out[threadIdx.x],
                  (unsigned long long)acc.limb[threadIdx.x]);
}

/* Each block has its share of all chunks, and sees the pieces they are of one after the other.
 * exact: what counts is seen elsewhere. */
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
        if (p.type == SK_BF16)
            sum += squares((const __nv_bfloat16 *)p.data + from, to - from, counts);
        else if (p.type == SK_F16) sum += squares((const __half *)p.data + from, to - from, counts);
        else sum += squares((const float *)p.data + from, to - from, counts);
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

static sk_status stats(const sk_stats_job *j, const sk_launch *l)
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

/* ---- CLIP: take_sums() and sk_do_clip() of run/cpu/optimize.c, by one thread */

static __device__ void take_sums(const sk_clip_job *j, double loss_scale)
{
    sk_step_scalars *p = j->pulse;
    double sum[SK_N_SUMS] = {0};
    for (int i = 0; i < j->n_sums; i++) sum[i] = j->sums[1 + i];
    double tokens = sum[SK_SUM_WEIGHT] > 0 ? sum[SK_SUM_WEIGHT] : 1, squares = j->sums[0];
    if (j->cells) sum[SK_SUM_LOSS] = sk_tree_sum_blocks(j->sums + 1 + j->n_sums, j->cells);
    if (j->exact) squares += sk_exact_value((const sk_exact *)j->exact);
    p->loss = sum[SK_SUM_LOSS] / tokens;
    p->tokens = sum[SK_SUM_WEIGHT];
    p->aux = sum[SK_SUM_AUX] / tokens;
    p->drops = sum[SK_SUM_DROPS];
    p->norm = sqrt(squares) / tokens / loss_scale;
    p->finite = isfinite(p->loss) && isfinite(p->norm);
    p->again = j->train && ((j->no_drops && p->drops > 0) || (j->no_full && !isfinite(p->norm)));
}

static __global__ void clip_one(const __grid_constant__ sk_clip_job j)
{
    sk_step_scalars *p = j.pulse;
    double loss_scale = p->loss_scale > 0 ? p->loss_scale : 1;
    take_sums(&j, loss_scale);
    if (!j.train) return;
    double tokens = p->tokens > 0 ? p->tokens : 1;
    double factor = j.clip > 0 ? j.clip / (p->norm + 1e-6) : 1;
    p->scale = (float)((factor < 1 ? factor : 1) / tokens / loss_scale);
    if (j.scale > 0) { /* the updates are made; the norm is of the newest */
        p->norm *= tokens * (double)j.scale;
        p->finite = isfinite(p->loss) && isfinite(p->norm);
    }
    p->skip = !j.alone && (!p->finite || p->again);
}

static sk_status clip(const sk_clip_job *j, const sk_launch *l)
{
    clip_one<<<1, 1, 0, (cudaStream_t)l->stream>>>(*j);
    return sk_cuda_launched("clip");
}

/* ---- PACK: run/cpu/pack_bits.h says what it looks like
 *
 * A thread has 8 elements, so a byte of bits.  Where values are kept, segments are counted first,
 * then it is added up where the values of each begin, and then a block of threads does a segment,
 * whose bytes it counts up once more as it goes. */

enum { SEGMENT = 8 * BLOCK * 8 }; /* elements of a block */

typedef struct packed_data {
    void *data;
    unsigned char *bits;
    char *values;
    int64_t n, bytes; /* bytes of bits: whole words of 64 elements */
    int64_t room;
    unsigned most; /* a bit is set if the element's own bits, as a number, are 1 to this */
    unsigned one;  /* what a set bit becomes where there are no values */
    bool packs;
} packed_data;

/* 8 elements as numbers; those beyond the end are 0. */
template <typename U> static __device__ void take_bits(const packed_data &p, int64_t byte, U *x)
{
    const U *from = (const U *)p.data + 8 * byte;
    if (p.packs && 8 * byte + 8 <= p.n) {
#pragma unroll
        for (int k = 0; k < (int)sizeof(U) / 2; k++)
            *reinterpret_cast<uint4 *>((char *)x + 16 * k) = ((const uint4 *)from)[k];
        return;
    }
#pragma unroll
    for (int e = 0; e < 8; e++) x[e] = 8 * byte + e < p.n ? from[e] : (U)0;
}

template <typename U> static __device__ void leave_bits(const packed_data &p, int64_t byte, U *x)
{
    U *to = (U *)p.data + 8 * byte;
    if (p.packs && 8 * byte + 8 <= p.n) {
#pragma unroll
        for (int k = 0; k < (int)sizeof(U) / 2; k++)
            ((uint4 *)to)[k] = *reinterpret_cast<const uint4 *>((char *)x + 16 * k);
        return;
    }
#pragma unroll
    for (int e = 0; e < 8; e++)
        if (8 * byte + e < p.n) to[e] = x[e];
}

/* Sums over the threads of a block up to each one, without itself; *all is that of all. */
static __device__ int sum_before(int x, int *all)
{
    __shared__ int part[BLOCK / 32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, up = x;
#pragma unroll
    for (int k = 1; k < 32; k *= 2) {
        int y = __shfl_up_sync(~0u, up, k);
        if (lane >= k) up += y;
    }
    __syncthreads(); /* those before have been read */
    if (lane == 31) part[warp] = up;
    __syncthreads();
    int before = 0, total = 0;
#pragma unroll
    for (int w = 0; w < BLOCK / 32; w++) {
        if (w < warp) before += part[w];
        total += part[w];
    }
    *all = total;
    return before + up - x;
}

/* The bits of a segment, and how many are set. */
template <typename U>
static __global__ void __launch_bounds__(BLOCK)
    pack_bits(const __grid_constant__ packed_data p, int64_t *count)
{
    int64_t at = (int64_t)blockIdx.x * (SEGMENT / 8) + threadIdx.x;
    int set = 0, all = 0;
#pragma unroll 4
    for (int k = 0; k < SEGMENT / 8 / BLOCK; k++) {
        alignas(16) U x[8];
        unsigned bits = 0;
        if (at + k * BLOCK >= p.bytes) break;
        take_bits(p, at + k * BLOCK, x);
#pragma unroll
        for (int e = 0; e < 8; e++) bits |= (unsigned)(x[e] > 0 && x[e] <= p.most) << e;
        p.bits[at + k * BLOCK] = (unsigned char)bits;
        set += __popc(bits);
    }
    if (!count) return;
    sum_before(set, &all);
    if (threadIdx.x == 0) count[blockIdx.x] = all;
}

static __global__ void __launch_bounds__(BLOCK)
    count_bits(const __grid_constant__ packed_data p, int64_t *count)
{
    int64_t at = (int64_t)blockIdx.x * (SEGMENT / 8) + threadIdx.x;
    int set = 0, all = 0;
    for (int k = 0; k < SEGMENT / 8 / BLOCK; k++)
        if (at + k * BLOCK < p.bytes) set += __popc(p.bits[at + k * BLOCK]);
    sum_before(set, &all);
    if (threadIdx.x == 0) count[blockIdx.x] = all;
}

/* count[i] becomes the sum of those before it; by one block, BLOCK of them at a time. */
static __global__ void __launch_bounds__(BLOCK)
    add_up(int64_t *count, int64_t n, int64_t room, int32_t *full)
{
    int64_t base = 0;
    for (int64_t i = 0; i < n; i += BLOCK) {
        int all, mine = i + threadIdx.x < n ? (int)count[i + threadIdx.x] : 0;
        int before = sum_before(mine, &all);
        if (i + threadIdx.x < n) count[i + threadIdx.x] = base + before;
        base += all;
    }
    if (full && threadIdx.x == 0 && base > room) *full = 1;
}

template <typename U>
static __global__ void __launch_bounds__(BLOCK)
    pack_values(const __grid_constant__ packed_data p, const int64_t *before)
{
    int64_t first = (int64_t)blockIdx.x * (SEGMENT / 8) + threadIdx.x, base = before[blockIdx.x];
    for (int k = 0; k < SEGMENT / 8 / BLOCK; k++) {
        int64_t byte = first + k * BLOCK;
        alignas(16) U x[8];
        int all;
        unsigned bits = byte < p.bytes ? p.bits[byte] : 0;
        int64_t at = base + sum_before(__popc(bits), &all);
        if (bits) take_bits(p, byte, x);
#pragma unroll
        for (int e = 0; e < 8; e++) {
            if (!(bits >> e & 1)) continue;
            if (at < p.room) ((U *)p.values)[at] = x[e];
            at++;
        }
        base += all;
    }
}

/* The other way round; without values, a set bit is 1. */
template <typename U>
static __global__ void __launch_bounds__(BLOCK)
    unpack_values(const __grid_constant__ packed_data p, const int64_t *before)
{
    int64_t first = (int64_t)blockIdx.x * (SEGMENT / 8) + threadIdx.x;
    int64_t base = before ? before[blockIdx.x] : 0;
    for (int k = 0; k < SEGMENT / 8 / BLOCK; k++) {
        int64_t byte = first + k * BLOCK, at = base;
        alignas(16) U x[8];
        int all = 0;
        unsigned bits = byte < p.bytes ? p.bits[byte] : 0;
        if (before) at += sum_before(__popc(bits), &all);
#pragma unroll
        for (int e = 0; e < 8; e++) {
            bool set = bits >> e & 1;
            x[e] = !set          ? (U)0
                   : !before     ? (U)p.one
                   : at < p.room ? ((const U *)p.values)[at]
                                 : (U)0;
            at += set;
        }
        if (byte < p.bytes) leave_bits(p, byte, x);
        base += all;
    }
}

static sk_status lay_out(const char *what, void *data, char *packed, sk_dtype type, int64_t n,
                         int64_t room, const sk_launch *l, packed_data *p)
{
    size_t need = (size_t)blocks_for(n, SEGMENT) * sizeof(int64_t);
    SK_TRY(sk_inst_kernel_takes(what, type));
    if (room && need > l->workspace_bytes)
        return sk_fail(SK_ECONF, "%s: %lld elements need %zu bytes to be counted, the room has %zu",
                       what, (long long)n, need, l->workspace_bytes);
    *p = packed_data{data, (unsigned char *)packed, packed + (n + 511) / 512 * 64,
                     n,    (n + 63) / 64 * 8,       room};
    p->most = room ? ~0u : type == SK_F32 ? 0x7f800000u : type == SK_BF16 ? 0x7f80u : 0x7c00u;
    p->one = type == SK_F32 ? 0x3f800000u : type == SK_BF16 ? 0x3f80u : 0x3c00u;
    p->packs = !((uintptr_t)data % 16);
    return SK_OK;
}

template <typename U>
static void pack_as(const packed_data &p, int32_t *full, int64_t *count, cudaStream_t s)
{
    unsigned blocks = blocks_for(p.n, SEGMENT);
    pack_bits<U><<<blocks, BLOCK, 0, s>>>(p, p.room ? count : NULL);
    if (!p.room) return;
    add_up<<<1, BLOCK, 0, s>>>(count, blocks, p.room, full);
    pack_values<U><<<blocks, BLOCK, 0, s>>>(p, count);
}

static sk_status pack(const void *data, char *packed, sk_dtype type, int64_t n, int64_t room,
                      int32_t *full, const sk_launch *l)
{
    packed_data p;
    cudaStream_t s = (cudaStream_t)l->stream;
    SK_TRY(lay_out("pack", (void *)data, packed, type, n, room, l, &p));
    if (n && type == SK_F32) pack_as<unsigned>(p, full, (int64_t *)l->workspace, s);
    else if (n) pack_as<unsigned short>(p, full, (int64_t *)l->workspace, s);
    return sk_cuda_launched("pack");
}

static sk_status unpack(void *data, const char *packed, sk_dtype type, int64_t n, int64_t room,
                        const sk_launch *l)
{
    packed_data p;
    cudaStream_t s = (cudaStream_t)l->stream;
    int64_t *count = room ? (int64_t *)l->workspace : NULL;
    unsigned blocks = blocks_for(n, SEGMENT);
    SK_TRY(lay_out("unpack", data, (char *)packed, type, n, room, l, &p));
    if (!n) return SK_OK;
    if (room) count_bits<<<blocks, BLOCK, 0, s>>>(p, count);
    if (room) add_up<<<1, BLOCK, 0, s>>>(count, blocks, room, NULL);
    if (type == SK_F32) unpack_values<unsigned><<<blocks, BLOCK, 0, s>>>(p, count);
    else unpack_values<unsigned short><<<blocks, BLOCK, 0, s>>>(p, count);
    return sk_cuda_launched("unpack");
}

/* ---- forgetting */

/* Mostly there is nothing to do, so blocks are few. */
static __global__ void __launch_bounds__(BLOCK)
    forget_all(const __grid_constant__ sk_feedback_reset_job j, const int32_t *skip)
{
    int64_t step = (int64_t)gridDim.x * BLOCK;
    if (!*skip) return;
    for (int k = 0; k < j.n; k++)
        for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < j.count[k]; i += step)
            j.data[k][i] = 0;
}

static sk_status forget(const sk_feedback_reset_job *j, const int32_t *skip, void *stream)
{
    if (j->n) forget_all<<<132 * 4, BLOCK, 0, (cudaStream_t)stream>>>(*j, skip);
    return sk_cuda_launched("forget");
}

/* ---- noise */

/* Both halves of a word are bf16 between 1/64 and 1/32, of either sign; so is the word as f32. */
static __global__ void noise_all(unsigned *to, int64_t words)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) {
        unsigned x = (unsigned)i * 0x9E3779B1u ^ (unsigned)(i >> 32);
        x = (x ^ x >> 16) * 0x85EBCA6Bu;
        x ^= x >> 13;
        to[i] = (x & 0x807F807Fu) | 0x3C803C80u;
    }
}

static sk_status noise(void *to, int64_t bytes, void *stream)
{
    if (bytes < 4) return SK_OK;
    noise_all<<<132 * 16, BLOCK, 0, (cudaStream_t)stream>>>((unsigned *)to, bytes / 4);
    return sk_cuda_launched("noise");
}

extern "C" const sk_inst_kernels sk_inst_kernels_cuda = {
    slice, paste, add, tree, convert, noise, stats, clip, pack, unpack, gather, forget};
