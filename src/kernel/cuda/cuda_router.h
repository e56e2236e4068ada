/* cuda_router.h - the GPU's side of router.h: the same choices and the same gates, bit for bit,
 * from logits in f32.
 *
 * choose(): a thread a token.  It goes through the experts one after the other, as the CPU does,
 * because a sum in another order could turn a choice between equals.  A warp brings the logits of
 * its 32 tokens into shared memory first, if they fit there.  Experts are left where slots will be.
 *
 * queue(): a block a sequence.  Its warps share the choices in the order in which places are given,
 * count the experts in their shares, learn from those before them where their own queues begin,
 * and then give places to 32 choices at a time: of equals in a warp each counts those below. */
#ifndef SK_KERNEL_CUDA_ROUTER_H
#define SK_KERNEL_CUDA_ROUTER_H

#include "kernel/cuda/cuda.h"
#include "kernel/slots.h"

typedef struct sk_route_job {
    sk_any logit, bias, gate; /* bias.data NULL: none */
    float *slot;
    int64_t tokens, time;
    int experts, choices, capacity, zigzag;
    bool among;  /* gates among the chosen only */
    bool staged; /* in shared memory */
} sk_route_job;

/* sk_exp of kernel/cpu/vecmath.h, fused as compilers fuse it there. */
static __device__ inline float sk_exp_as_cpu(float x)
{
    float z = fmaf(x, 1.44269504f, 12582912.0f), n = z - 12582912.0f;
    float r = fmaf(-n, 1.42860677e-6f, fmaf(-n, 0.693145752f, x));
    float p = fmaf(1.9875691500e-4f, r, 1.3981999507e-3f);
    p = fmaf(p, r, 8.3334519073e-3f);
    p = fmaf(p, r, 4.1665795894e-2f);
    p = fmaf(p, r, 1.6666665459e-1f);
    p = fmaf(p, r, 5.0000001201e-1f);
    p = __fadd_rn(fmaf(__fmul_rn(p, r), r, r), 1.0f);
    float y = __fmul_rn(p, __uint_as_float((__float_as_uint(z) - 0x4B400000u + 127u) << 23));
    y = x < -87.0f ? 0 : y;
    return x > 88.0f ? INFINITY : y;
}

/* ---- choices */

/* What a token chooses by. */
typedef struct sk_scores {
    const sk_route_job *j;
    const float *tile; /* this token's logits, or NULL: */
    int64_t at;        /* they begin here */
    float top, sum;    /* of the softmax, with a bias */

    __device__ inline float logit(int e) const { return tile ? tile[e] : sk_get(j->logit, at + e); }
    __device__ inline float operator[](int e) const
    {
        if (!j->bias.data) return logit(e);
        return __fadd_rn(sk_exp_as_cpu(logit(e) - top) / sum, sk_get(j->bias, e));
    }
    __device__ inline void prepare()
    {
        if (!j->bias.data) return;
        top = logit(0), sum = 0;
        for (int e = 1; e < j->experts; e++) top = logit(e) > top ? logit(e) : top;
        for (int e = 0; e < j->experts; e++) sum += sk_exp_as_cpu(logit(e) - top);
    }
} sk_scores;

/* The best behind choice k - 1, of equals the first.  If nothing can be compared (NaN) any that is
 * left. */
static __device__ inline int sk_choose_next(const sk_scores &s, const float *chosen, int k)
{
    int top = -1, last = k ? (int)chosen[k - 1] : 0;
    float best = 0, bar = k ? s[last] : 0;
    for (int e = 0; e < s.j->experts; e++) {
        float x = s[e];
        bool behind = !k || x < bar || (x == bar && e > last);
        if (behind && (top < 0 || x > best)) top = e, best = x;
    }
    for (int e = 0; top < 0 && e < s.j->experts; e++) {
        bool free = true;
        for (int i = 0; i < k; i++) free &= (int)chosen[i] != e;
        if (free) top = e;
    }
    return top;
}

static __device__ inline void sk_route_gates(const sk_scores &s, const float *chosen, int64_t i)
{
    const sk_route_job &j = *s.j;
    float top = s.logit((int)chosen[0]), sum = 0;
    int n = j.among ? j.choices : j.experts;
    for (int k = 0; k < n; k++) {
        float x = s.logit(j.among ? (int)chosen[k] : k);
        top = x > top ? x : top;
    }
    for (int k = 0; k < n; k++) sum += sk_exp_as_cpu(s.logit(j.among ? (int)chosen[k] : k) - top);
    for (int k = 0; k < j.choices; k++)
        sk_put(j.gate, i * j.choices + k, sk_exp_as_cpu(s.logit((int)chosen[k]) - top) / sum);
}

/* A template only so that files without use of it do not have it. */
template <int WARP> static __global__ void __launch_bounds__(WARP) sk_route_choose(sk_route_job j)
{
    extern __shared__ float tile[];
    int64_t first = (int64_t)blockIdx.x * WARP, i = first + threadIdx.x;
    int pitch = j.experts | 1; /* odd: lanes of a warp meet different banks */
    for (int t = 0; j.staged && t < WARP && first + t < j.tokens; t++)
        for (int e = (int)threadIdx.x; e < j.experts; e += WARP)
            tile[t * pitch + e] = sk_get(j.logit, (first + t) * j.experts + e);
    __syncwarp();
    if (i >= j.tokens) return;
    sk_scores s = {&j, j.staged ? tile + threadIdx.x * pitch : NULL, i * j.experts, 0, 0};
    float *chosen = j.slot + i * j.choices;
    s.prepare();
    for (int k = 0; k < j.choices; k++) chosen[k] = (float)sk_choose_next(s, chosen, k);
    sk_route_gates(s, chosen, i);
}

/* ---- places */

/* sk_zigzag_index() of base/zigzag.h. */
static __device__ inline int sk_cuda_zigzag_index(int64_t position, int64_t time, int p)
{
    if (p <= 1) return (int)position;
    bool early = position < (time + 1) / 2;
    int64_t i = early ? 2 * position : 2 * (time - 1 - position) + 1, r = ((i + 1) * p - 1) / time;
    int64_t from = time * r / p, to = time * (r + 1) / p, taken = (from + 1) / 2;
    if (early) return (int)(from + position - taken);
    return (int)(from + (to + 1) / 2 - taken + position - (time - to / 2));
}

/* Where the choice stands that is number n of its sequence when places are given. */
static __device__ inline int64_t sk_turn(const sk_route_job &j, int n)
{
    int k = n / (int)j.time, at = n - k * (int)j.time;
    return (int64_t)sk_cuda_zigzag_index(at, j.time, j.zigzag) * j.choices + k;
}

/* How many of each expert every warp has; then, how many those before it have. */
static __device__ inline void sk_queue_starts(const sk_route_job &j, const float *slot, int *queue,
                                              int from, int to)
{
    int warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32, lane = (int)threadIdx.x % 32;
    for (int e = (int)threadIdx.x; e < warps * j.experts; e += (int)blockDim.x) queue[e] = 0;
    __syncthreads();
    for (int n = from + lane; n < to; n += 32)
        atomicAdd(&queue[warp * j.experts + (int)slot[sk_turn(j, n)]], 1);
    __syncthreads();
    for (int e = (int)threadIdx.x; e < j.experts; e += (int)blockDim.x)
        for (int w = 0, before = 0; w < warps; w++) {
            int here = queue[w * j.experts + e];
            queue[w * j.experts + e] = before;
            before += here;
        }
    __syncthreads();
}

/* counters: of each sequence; NULL: in shared memory. */
template <int MOST>
static __global__ void __launch_bounds__(MOST) sk_route_queue(sk_route_job j, int *counters)
{
    extern __shared__ int counts[];
    int warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32, lane = (int)threadIdx.x % 32;
    int n = (int)j.time * j.choices, share = (n + 32 * warps - 1) / (32 * warps) * 32;
    int from = min(n, warp * share), to = min(n, from + share);
    float *slot = j.slot + (int64_t)blockIdx.x * n;
    int *queue = counters ? counters + (int64_t)blockIdx.x * warps * j.experts : counts;
    sk_queue_starts(j, slot, queue, from, to);
    queue += warp * j.experts;
    for (int at = from; at < to; at += 32) {
        bool there = at + lane < to;
        int64_t i = there ? sk_turn(j, at + lane) : 0;
        int e = there ? (int)slot[i] : -1;
        unsigned same = __match_any_sync(~0u, e), below = same & ((1u << lane) - 1);
        int place = there ? queue[e] + __popc(below) : 0;
        __syncwarp();
        if (there && !below) queue[e] += __popc(same);
        __syncwarp();
        if (there) slot[i] = (float)(place < j.capacity ? e * j.capacity + place : -1 - e);
    }
}

/* ---- starting */

enum { SK_ROUTE_SHARED = 48 << 10, SK_ROUTE_THREADS = 1024 };

static inline sk_status sk_route_job_of(const char *op, const sk_args *a, sk_route_job *j)
{
    const sk_view *x = &a->in[0];
    if (x->size[1] * a->out[0].size[2] > INT32_MAX / 2)
        return sk_fail(SK_ECONF, "%s: %lld tokens in a sequence are too many for the CUDA kernel",
                       op, (long long)x->size[1]);
    j->logit = sk_any_of(x);
    if (a->n_in > 1) j->bias = sk_any_of(&a->in[1]);
    j->gate = sk_any_of(&a->out[1]);
    j->slot = (float *)a->out[0].data;
    j->tokens = x->size[0] * x->size[1];
    j->time = x->size[1];
    j->experts = (int)x->size[2];
    j->choices = (int)a->out[0].size[2];
    j->capacity = (int)a->attr[1];
    j->zigzag = x->zigzag[1];
    j->among = a->attr[2] != 0;
    return SK_OK;
}

static sk_status sk_cuda_queue(const char *op, const sk_route_job *j, const sk_launch *l)
{
    size_t one = (size_t)j->experts * sizeof(int), sequences = (size_t)(j->tokens / j->time);
    int64_t warps = j->time * j->choices / 64 + 1; /* two rounds for each, or more */
    int *counters = NULL;
    if (warps > 32) warps = 32;
    while (warps > 1 && (size_t)warps * one > SK_ROUTE_SHARED) warps--;
    if (one > SK_ROUTE_SHARED) counters = (int *)l->workspace;
    if (counters && one * sequences > l->workspace_bytes)
        return sk_fail(SK_ECONF, "%s: %lld sequences with %d experts, too many for the CUDA kernel",
                       op, (long long)sequences, j->experts);
    sk_route_queue<SK_ROUTE_THREADS>
        <<<(unsigned)sequences, (unsigned)(32 * warps), counters ? 0 : one *(size_t)warps,
           (cudaStream_t)l->stream>>>(*j, counters);
    return sk_cuda_launched(op);
}

/* route; with a bias in operand 1, if there is one. */
static sk_status sk_cuda_route(const char *op, const sk_args *a, const sk_launch *l)
{
    sk_route_job j = {};
    SK_TRY(sk_route_job_of(op, a, &j));
    if (!j.tokens) return SK_OK;
    size_t tile = 32 * (size_t)(j.experts | 1) * sizeof(float);
    j.staged = tile <= SK_ROUTE_SHARED;
    sk_route_choose<32>
        <<<sk_cuda_blocks(j.tokens, 32), 32, j.staged ? tile : 0, (cudaStream_t)l->stream>>>(j);
    return sk_cuda_queue(op, &j, l);
}

#endif
