/* attention_cache.cu - the GPU half of attention_cache.c.
 *
 * First the new keys and values are stored; of several tokens with one position the last one is, as
 * on the CPU.  Then a block of eight warps has one query: a warp takes every eighth group of four
 * positions, with elements of the head across its lanes, and keeps its own largest score, sum and
 * weighed values; these are joined in the order of the warps. */
#include "kernel/cuda/cuda.h"

enum { WARPS = 8, THREADS = 32 * WARPS, EACH = 4, MOST = 256, HELD = MOST / 32 };

typedef struct shape {
    int64_t time, positions, heads, queries, d;
} shape;

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    remember(const T *__restrict__ x, const int32_t *__restrict__ pos, T *memory, shape s)
{
    int64_t b = blockIdx.x / s.time, t = blockIdx.x % s.time, at = pos[b * s.time + t];
    int64_t one = (s.queries + 2) * s.d, n = s.heads * 2 * s.d;
    int later = 0;
    for (int64_t i = t + 1 + threadIdx.x; i < s.time; i += THREADS)
        later |= pos[b * s.time + i] == at;
    if (__syncthreads_or(later) || at < 0 || at >= s.positions) return;
    const T *from = x + (b * s.time + t) * s.heads * one;
    T *to = memory + (b * s.positions + at) * n;
    for (int64_t i = threadIdx.x; i < n; i += THREADS) {
        int64_t h = i / (2 * s.d), c = i % (2 * s.d);
        to[i] = from[h * one + s.queries * s.d + c];
    }
}

/* What some positions came to: the largest score, the sum of exponentials against it, and values
 * weighed by them. */
typedef struct part {
    float top, sum, v[HELD];
} part;

/* One group of positions [i, i + EACH), of which those below n count. */
template <typename T>
static __device__ void take(part *p, const T *k, int64_t step, int64_t d, int64_t i, int64_t n,
                            const float *q)
{
    int lane = (int)threadIdx.x % 32;
    float s[EACH] = {};
#pragma unroll
    for (int e = 0; e < EACH; e++)
#pragma unroll
        for (int c = 0; c < HELD; c++)
            if (i + e < n && lane + 32 * c < d)
                s[e] += q[c] * (float)k[(i + e) * step + lane + 32 * c];
    float top = p->top;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        for (int l = 16; l; l /= 2) s[e] += __shfl_xor_sync(~0u, s[e], l);
        if (i + e >= n) s[e] = -INFINITY;
        top = fmaxf(top, s[e]);
    }
    float base = top == -INFINITY ? 0 : top, keep = expf(p->top - base);
    p->top = top, p->sum *= keep;
#pragma unroll
    for (int c = 0; c < HELD; c++) p->v[c] *= keep;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        if (i + e >= n) break;
        float w = expf(s[e] - base);
        p->sum += w;
#pragma unroll
        for (int c = 0; c < HELD; c++)
            if (lane + 32 * c < d) p->v[c] += w * (float)k[(i + e) * step + d + lane + 32 * c];
    }
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    attend(const T *__restrict__ x, const int32_t *__restrict__ pos, const T *__restrict__ memory,
           T *__restrict__ y, shape s)
{
    __shared__ float tops[WARPS], sums[WARPS], values[WARPS][MOST];
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int64_t j = blockIdx.x % s.queries, h = blockIdx.x / s.queries % s.heads;
    int64_t bt = blockIdx.x / s.queries / s.heads, b = bt / s.time, n = (int64_t)pos[bt] + 1;
    const T *query = x + ((bt * s.heads + h) * (s.queries + 2) + j) * s.d;
    const T *keys = memory + (b * s.positions * s.heads + h) * 2 * s.d;
    float q[HELD], scale = 1 / sqrtf((float)s.d);
    part p = {-INFINITY, 0, {}};
    if (n < 1 || n > s.positions) n = 0; /* padding: its result is 0 */
    for (int c = 0; c < HELD; c++)
        q[c] = lane + 32 * c < s.d ? scale * (float)query[lane + 32 * c] : 0;
    for (int64_t i = warp * EACH; i < n; i += WARPS * EACH)
        take(&p, keys, s.heads * 2 * s.d, s.d, i, n, q);
    if (!lane) tops[warp] = p.top, sums[warp] = p.sum;
    for (int c = 0; c < HELD; c++) values[warp][lane + 32 * c] = p.v[c];
    __syncthreads();
    float top = -INFINITY, sum = 0;
    for (int w = 0; w < WARPS; w++) top = fmaxf(top, tops[w]);
    for (int w = 0; w < WARPS; w++) sum += n ? expf(tops[w] - top) * sums[w] : 0;
    for (int64_t c = threadIdx.x; c < s.d; c += THREADS) {
        float all = 0;
        for (int w = 0; w < WARPS; w++) all += n ? expf(tops[w] - top) * values[w][c] : 0;
        y[blockIdx.x * s.d + c] = (T)(n ? all / sum : 0);
    }
}

template <typename T> static sk_status run(const sk_args *a, cudaStream_t stream)
{
    const sk_view *x = &a->in[0], *m = &a->in[1];
    shape s = {x->size[1], m->size[1], x->size[2], x->size[3] - 2, x->size[4]};
    int64_t tokens = x->size[0] * s.time, queries = tokens * s.heads * s.queries;
    const int32_t *pos = (const int32_t *)a->in[2].data;
    if (queries > INT32_MAX)
        return sk_fail(SK_ECONF, "attention_cache: %lld queries are more than one launch can have",
                       (long long)queries);
    if (tokens && s.heads && s.d)
        remember<<<(unsigned)tokens, THREADS, 0, stream>>>((const T *)x->data, pos, (T *)m->data,
                                                           s);
    if (queries && s.d)
        attend<<<(unsigned)queries, THREADS, 0, stream>>>(
            (const T *)x->data, pos, (const T *)m->data, (T *)a->out[0].data, s);
    return sk_cuda_launched("attention_cache");
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    if (a->in[0].size[4] > MOST)
        return sk_fail(SK_ECONF,
                       "attention_cache: heads of %lld elements; the CUDA kernel knows up to %d",
                       (long long)a->in[0].size[4], MOST);
    return SK_FLOAT(a->in[0].type, run<T>(a, (cudaStream_t)l->stream));
}

extern "C" const sk_kernel sk_kernel_attention_cache = {"attention_cache", launch};
