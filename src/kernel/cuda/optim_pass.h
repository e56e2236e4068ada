/* optim_pass.h - what GPU halves of optimizers share; only parts/optim/NAME.cu and
 * run/gpu/inst_kernels.cu include it.
 *
 * A pass is a struct of what all elements of a shard have in common, made once a block by one
 * thread, and of what happens to one element:
 *
 *     struct apply {
 *         enum { READS = 1, WRITES = 1 };                       bits: which of the states
 *         enum { GRAD = 1, MOVES = 1, SUMS = 0, AHEAD = 0 };    needs g; changes w; how many sums
 *         float lr, mu;
 *         static __device__ apply begin(const sk_facts &f) { return {f.lr, f.knob[MOMENTUM]}; }
 *         __device__ void one(float &w, float g, float *s, double *sum) const { ... }
 *     };
 *     static sk_status first(...) { return sk_pass<apply>("sgd", j, l); }
 *
 * An optimizer with scalars settles them in front of its second pass:
 *
 *     struct settle { static __device__ void settle(const sk_facts &f, float *scalar) { ... } };
 *     SK_TRY(sk_settle<settle>("novograd", j, l));
 *
 * g comes scaled.  Four elements lie in one access: 16 bytes of f32, 8 of a narrow type, so that
 * threads of a warp read one run in each tensor.  Shards that do not begin at such an address,
 * and the last elements of a shard, go one by one.
 *
 * Every kernel here is compiled for every pass, and takes the compiler a second.  So what a branch
 * can decide that all threads take alike is no argument of a template: the type of gradients, and
 * canonical order where a pass has no sums. */
#ifndef SK_KERNEL_OPTIM_PASS_H
#define SK_KERNEL_OPTIM_PASS_H

#include "base/fixed.h"
#include "kernel/cuda/stochastic_rounding.h"
#include "kernel/optim_kernel.h"

#include <type_traits>

enum { SK_PASS_BLOCK = 256 };

/* What a pass may want to know before its first element. */
typedef struct sk_facts {
    float lr, decay;
    const float *knob;
    double step; /* of the optimizer; counts from 1 */
    int delay;
    double before[SK_MAX_SUM];
    double warmup;       /* as in sk_piece */
    const float *scalar; /* sk_optim.scalars, settled */
    double norm;         /* of all gradients, before clipping */
    float share;         /* as in sk_piece */
    double elements;     /* likewise */
} sk_facts;

/* The maxima of a pass (sk_optim.maxima) are `enum { MAXIMA = 1 }` and are sum[SUMS] .. of one();
 * passes without them need not say so. */
template <class P, class = void> struct sk_maxima_of {
    enum { N = 0 };
};
template <class P> struct sk_maxima_of<P, std::enable_if_t<(P::MAXIMA > 0)>> {
    enum { N = P::MAXIMA };
};
template <class P> constexpr int SK_TOTALS = P::SUMS + sk_maxima_of<P>::N;

/* ---- elements */

template <int BYTES> struct sk_word;
template <> struct sk_word<2> {
    typedef unsigned short is;
};
template <> struct sk_word<4> {
    typedef unsigned is;
};
template <> struct sk_word<8> {
    typedef uint2 is;
};
template <> struct sk_word<16> {
    typedef uint4 is;
};

/* V elements in one access of V * sizeof(T) bytes. */
template <int V, typename T> static __device__ inline void sk_take(const T *p, float *v)
{
    typedef typename sk_word<V *(int)sizeof(T)>::is word;
    alignas(16) T x[V];
    *reinterpret_cast<word *>(x) = *reinterpret_cast<const word *>(p);
#pragma unroll
    for (int i = 0; i < V; i++) v[i] = (float)x[i];
}

template <int V, typename T> static __device__ inline void sk_leave(T *p, const float *v)
{
    typedef typename sk_word<V *(int)sizeof(T)>::is word;
    alignas(16) T x[V];
#pragma unroll
    for (int i = 0; i < V; i++) x[i] = (T)v[i];
    *reinterpret_cast<word *>(p) = *reinterpret_cast<const word *>(x);
}

/* The sum over a block of SK_PASS_BLOCK threads, in a fixed order; all of them get it. */
static __device__ inline double sk_block_sum(double x)
{
    __shared__ double part[SK_PASS_BLOCK / 32];
#pragma unroll
    for (int k = 16; k; k /= 2) x += __shfl_xor_sync(~0u, x, k);
    __syncthreads(); /* the sum before this one has been read */
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
#pragma unroll
    for (int w = 0; w < SK_PASS_BLOCK / 32; w++) x += part[w];
    return x;
}

/* The same of integers, which no order changes; for thread 0. */
static __device__ inline sk_fixed sk_block_sum(sk_fixed x)
{
    __shared__ sk_fixed part[SK_PASS_BLOCK];
    __syncthreads();
    part[threadIdx.x] = x;
    __syncthreads();
    for (int i = 1; i < SK_PASS_BLOCK && !threadIdx.x; i++) sk_fixed_join(&x, part[i]);
    return x;
}

/* The largest of a block, for thread 0. */
static __device__ inline double sk_block_most(double x)
{
    __shared__ double part[SK_PASS_BLOCK];
    __syncthreads();
    part[threadIdx.x] = x;
    __syncthreads();
    for (int i = 1; i < SK_PASS_BLOCK && !threadIdx.x; i++) x = fmax(x, part[i]);
    return x;
}

/* Sums of this type are those of canonical order. */
template <typename A> constexpr bool SK_IN_ORDER = std::is_same<A, sk_fixed>::value;

static __device__ inline void sk_join(double *to, double x) { *to += x; }
static __device__ inline void sk_join(sk_fixed *to, sk_fixed x) { sk_fixed_join(to, x); }

/* Maxima are doubles, also in the place of an integer. */
static __device__ inline double *sk_most_at(double *at) { return at; }
static __device__ inline double *sk_most_at(sk_fixed *at) { return reinterpret_cast<double *>(at); }

/* The shard that a chunk belongs to: the last whose first chunk is not behind it.  All lanes of a
 * warp ask together, 32 places at a time: two steps for a thousand shards. */
template <typename P> static __device__ inline int sk_piece_with(const P *pieces, int n, int64_t c)
{
    int lane = threadIdx.x % 32, from = 0;
    while (n > 1) {
        int step = (n + 31) / 32, i = lane * step;
        unsigned before = __ballot_sync(~0u, i < n && pieces[from + i].chunk <= c);
        int last = before ? 31 - __clz((int)before) : 0;
        from += last * step;
        n = n - last * step < step ? n - last * step : step;
    }
    return from;
}

/* ---- a block's share of a shard */

/* Where it lies; i counts from there. */
template <typename S> struct sk_share_of {
    const float *weights; /* read */
    float *param;         /* written */
    const char *grad;
    S *state[SK_MAX_STATE];
    char *narrow; /* or NULL */
    sk_dtype grad_type, narrow_type;
};

/* What one thread finds out for all. */
template <class P> struct sk_common {
    P pass;
    float scale;
    bool skip, packs;
    int64_t from; /* the first element, in the shard */
    int n;
    sk_rounding rounding;
};

/* Weights beside a master are f32 where it keeps them while they are moved (sk_optim.perturb). */
static __device__ inline unsigned sk_narrow_bytes(const sk_update *p)
{
    return p->narrow_type == SK_F32 ? 4 : 2;
}

template <class P> static __device__ bool sk_packs(const sk_update *p, unsigned state_bytes)
{
    uintptr_t f32 = (uintptr_t)p->param, grad = 0, state = 0;
    if (P::GRAD) grad = (uintptr_t)p->grad;
    if (P::AHEAD) f32 |= (uintptr_t)p->grad;
    for (int s = 0; s < SK_MAX_STATE; s++)
        if ((P::READS | P::WRITES) >> s & 1) state |= (uintptr_t)p->state[s];
    return !(f32 % 16) && !(grad % (p->grad_type == SK_F32 ? 16 : 8)) &&
           !(state % (4 * state_bytes)) && !((uintptr_t)p->narrow % (4 * sk_narrow_bytes(p)));
}

static __device__ inline bool sk_skips(const sk_update_job *j, const sk_update *p)
{
    return (j->pulse->skip || j->pulse->phase + 1 < j->phases) && !(p->scale > 0);
}

/* knob[SK_MAX_KNOB] is filled, and lives as long as the facts. */
static __device__ inline sk_facts sk_facts_of(const sk_update_job *j, const sk_update *p,
                                              float *knob)
{
    const sk_step_scalars *pulse = j->pulse;
    int64_t step = pulse->updates + p->update + 1;
    for (int k = 0; k < SK_MAX_KNOB; k++)
        knob[k] = pulse->momentum > 0 && j->momentum >> k & 1 ? (float)pulse->momentum : j->knob[k];
    sk_facts f = {(float)(pulse->lr * p->rate),
                  p->decay,
                  knob,
                  (double)step,
                  p->delay,
                  {0},
                  (double)j->warmup,
                  p->scalar,
                  pulse->norm,
                  j->share,
                  (double)p->elements};
    for (int s = 0; s < SK_MAX_SUM && p->before; s++)
        f.before[s] = j->ordered ? sk_fixed_value((const sk_fixed *)p->before + s)
                                 : ((const double *)p->before)[s];
    for (int s = 0; s < SK_MAX_SUM && p->before_most; s++)
        if (j->maxima >> s & 1) f.before[s] = p->before_most[s];
    return f;
}

template <class P>
static __device__ __noinline__ void sk_begin(const sk_update_job *j, const sk_update *p,
                                             unsigned state_bytes, sk_common<P> *c)
{
    const sk_step_scalars *pulse = j->pulse;
    float loss_scale = pulse->loss_scale > 0 ? (float)pulse->loss_scale : 1;
    float knob[SK_MAX_KNOB];
    const sk_facts f = sk_facts_of(j, p, knob);
    c->from = ((int64_t)blockIdx.x - p->chunk) * SK_UPDATE_CHUNK;
    c->n = (int)(p->n - c->from < SK_UPDATE_CHUNK ? p->n - c->from : SK_UPDATE_CHUNK);
    c->skip = !P::AHEAD && sk_skips(j, p);
    c->packs = !j->ordered && sk_packs<P>(p, state_bytes);
    c->scale = p->scale > 0 ? p->scale / loss_scale : pulse->scale;
    c->pass = P::begin(f);
    if (state_bytes == 2 && P::WRITES && !c->skip)
        sk_rounding_begin(j, p, (int64_t)f.step, &c->rounding);
}

template <class P, typename S>
static __device__ sk_share_of<S> sk_share_at(const sk_update_job *j, const sk_update *p,
                                             int64_t from)
{
    sk_share_of<S> o;
    o.param = p->param + from;
    o.weights = P::AHEAD && p->grad ? (const float *)p->grad + from : o.param;
    o.grad = (const char *)p->grad + (j->grad_type == SK_F32 ? 4 : 2) * from;
    o.grad_type = j->grad_type;
    for (int s = 0; s < SK_MAX_STATE; s++)
        o.state[s] = (P::READS | P::WRITES) >> s & 1 ? (S *)p->state[s] + from : NULL;
    o.narrow = p->narrow ? (char *)p->narrow + sk_narrow_bytes(p) * from : NULL;
    o.narrow_type = p->narrow_type;
    return o;
}

template <int V, typename S>
static __device__ inline void sk_narrow(const sk_share_of<S> &o, int i, const float *w)
{
    if (!o.narrow) return;
    if (o.narrow_type == SK_F32) sk_leave<V>((float *)o.narrow + i, w);
    else if (o.narrow_type == SK_F16) sk_leave<V>((__half *)o.narrow + i, w);
    else sk_leave<V>((__nv_bfloat16 *)o.narrow + i, w);
}

/* V elements on their way. */
template <int V> struct sk_some {
    float w[V], s[SK_MAX_STATE][V];
    alignas(16) unsigned g[V]; /* bits of gradients, in half of the words if they are narrow */
};

/* Gradients are read in a branch and turned into floats behind all reads, so that none waits. */
template <int V, typename S>
static __device__ inline void sk_grad_take(const sk_share_of<S> &o, int i, sk_some<V> &x)
{
    typedef typename sk_word<4 * V>::is wide;
    typedef typename sk_word<2 * V>::is half;
    if (o.grad_type == SK_F32)
        *reinterpret_cast<wide *>(x.g) = *reinterpret_cast<const wide *>(o.grad + 4 * i);
    else *reinterpret_cast<half *>(x.g) = *reinterpret_cast<const half *>(o.grad + 2 * i);
}

template <int V>
static __device__ inline void sk_grad_open(sk_dtype type, const sk_some<V> &x, float *g)
{
#pragma unroll
    for (int e = 0; e < V; e++) {
        unsigned short half = (unsigned short)(x.g[e / 2] >> 16 * (e % 2));
        g[e] = type == SK_F32    ? __uint_as_float(x.g[e])
               : type == SK_BF16 ? __uint_as_float((unsigned)half << 16)
                                 : __half2float(__ushort_as_half(half));
    }
}

template <class P, int V, typename S>
static __device__ inline void sk_some_take(const sk_share_of<S> &o, int i, sk_some<V> &x)
{
    sk_take<V>(o.weights + i, x.w);
    if (P::GRAD) sk_grad_take(o, i, x);
#pragma unroll
    for (int s = 0; s < SK_MAX_STATE; s++)
        if (P::READS >> s & 1) sk_take<V>(o.state[s] + i, x.s[s]);
}

template <class P, int V>
static __device__ inline void sk_some_change(const P &pass, sk_dtype grad_type, float scale,
                                             sk_some<V> &x, double *sum)
{
    float g[V];
    if (P::GRAD) sk_grad_open(grad_type, x, g);
#pragma unroll
    for (int e = 0; e < V; e++) {
        float s[SK_MAX_STATE];
#pragma unroll
        for (int k = 0; k < SK_MAX_STATE; k++) s[k] = P::READS >> k & 1 ? x.s[k][e] : 0;
        pass.one(x.w[e], P::GRAD ? g[e] * scale : 0, s, sum);
#pragma unroll
        for (int k = 0; k < SK_MAX_STATE; k++)
            if (P::WRITES >> k & 1) x.s[k][e] = s[k];
    }
}

/* One element: its sums, as integers. */
template <class P, int V>
static __device__ inline void sk_some_change(const P &pass, sk_dtype grad_type, float scale,
                                             sk_some<V> &x, sk_fixed *sum)
{
    double one[SK_TOTALS<P> + 1] = {0};
    sk_some_change(pass, grad_type, scale, x, one);
#pragma unroll
    for (int s = 0; s < P::SUMS; s++) sk_fixed_add(&sum[s], one[s]);
#pragma unroll
    for (int s = P::SUMS; s < SK_TOTALS<P>; s++)
        *sk_most_at(&sum[s]) = fmax(*sk_most_at(&sum[s]), one[s]);
}

template <class P, int V>
static __device__ inline void sk_leave_states(const sk_common<P> &, float *const *to, int i,
                                              const sk_some<V> &x)
{
#pragma unroll
    for (int s = 0; s < SK_MAX_STATE; s++)
        if (P::WRITES >> s & 1) sk_leave<V>(to[s] + i, x.s[s]);
}

template <class P, int V>
static __device__ inline void sk_leave_states(const sk_common<P> &c, __nv_bfloat16 *const *to,
                                              int i, const sk_some<V> &x)
{
    const sk_rounding &l = c.rounding;
    if (!P::WRITES) return;
    int64_t place = c.from + i;
    bool across = !l.run && place % l.row + V > l.row;
    uint64_t at = (uint64_t)(l.run    ? l.first + place
                             : across ? 0
                                      : sk_logical_there(l.shape, place));
#pragma unroll
    for (int s = 0; s < SK_MAX_STATE; s++) {
        if (!(P::WRITES >> s & 1)) continue;
        uint64_t bits = across   ? sk_rounding_across(&l, s, place, c.from + c.n)
                        : V == 1 ? sk_rounding_bits(l.key[s], at)
                                 : sk_rounding_from(l.key[s], at);
        alignas(16) unsigned short to_s[V];
#pragma unroll
        for (int e = 0; e < V; e++) to_s[e] = sk_drawn(x.s[s][e], (unsigned)(bits >> 16 * e));
        typedef typename sk_word<2 * V>::is word;
        *reinterpret_cast<word *>(to[s] + i) = *reinterpret_cast<const word *>(to_s);
    }
}

template <class P, int V, typename S>
static __device__ inline void sk_some_leave(const sk_common<P> &c, const sk_share_of<S> &o, int i,
                                            const sk_some<V> &x)
{
    if (P::MOVES) sk_leave<V>(o.param + i, x.w);
    sk_leave_states<P, V>(c, o.state, i, x);
    sk_narrow<V>(o, i, x.w);
}

/* No update is made, but the narrow weights are written all the same. */
template <typename S>
static __device__ void sk_narrow_only(const sk_share_of<S> &o, int n, int quads)
{
    float w[4];
    for (int i = 4 * threadIdx.x; i < 4 * quads; i += 4 * SK_PASS_BLOCK) {
        sk_take<4>(o.param + i, w);
        sk_narrow<4>(o, i, w);
    }
    for (int i = 4 * quads + threadIdx.x; i < n; i += SK_PASS_BLOCK)
        sk_narrow<1>(o, i, &o.param[i]);
}

/* A step of fixed size against the sign of the gradient, whatever the optimizer is. */
template <typename S>
static __device__ void sk_bias_update(const sk_update *p, const sk_share_of<S> &o, int64_t from,
                                      int n)
{
    sk_any grad = {(void *)p->grad, p->grad_type};
    for (int i = threadIdx.x; i < n; i += SK_PASS_BLOCK) {
        float g = sk_get(grad, from + i), w = o.param[i];
        w -= g > 0 ? p->bias_update : g < 0 ? -p->bias_update : 0;
        o.param[i] = w;
        sk_narrow<1>(o, i, &w);
    }
}

/* The fours of a share.  Two are under way where registers allow: those of 1,024 threads on a
 * multiprocessor. */
template <class P, typename S, typename A>
static __device__ inline void sk_share_quads(const sk_common<P> &c, const sk_share_of<S> &o,
                                             int quads, A *sum)
{
    const int FLIGHT = sizeof(S) == 2 || (P::READS & (P::READS - 1)) ? 1 : 2;
    const P pass = c.pass;
    const float scale = c.scale;
    for (int q = threadIdx.x; q < quads; q += FLIGHT * SK_PASS_BLOCK) {
        sk_some<4> x[FLIGHT];
#pragma unroll
        for (int k = 0; k < FLIGHT; k++)
            if (q + k * SK_PASS_BLOCK < quads)
                sk_some_take<P>(o, 4 * (q + k * SK_PASS_BLOCK), x[k]);
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            if (q + k * SK_PASS_BLOCK >= quads) break;
            sk_some_change(pass, o.grad_type, scale, x[k], sum);
            sk_some_leave(c, o, 4 * (q + k * SK_PASS_BLOCK), x[k]);
        }
    }
}

/* The share itself: fours, then what is left. */
template <class P, typename S, typename A>
static __device__ inline void sk_share_pass(const sk_common<P> &c, const sk_share_of<S> &o,
                                            int quads, A *sum)
{
    if constexpr (!SK_IN_ORDER<A>) sk_share_quads(c, o, quads, sum);
    for (int i = 4 * quads + threadIdx.x; i < c.n; i += SK_PASS_BLOCK) {
        sk_some<1> z;
        sk_some_take<P>(o, i, z);
        sk_some_change(c.pass, o.grad_type, c.scale, z, sum);
        sk_some_leave(c, o, i, z);
    }
}

/* The totals of a block, in a place for each chunk. */
template <class P, typename A> static __device__ inline void sk_chunk_totals(A *sum, A *partial)
{
    for (int s = 0; s < P::SUMS && partial; s++) {
        A all = sk_block_sum(sum[s]);
        if (threadIdx.x == 0) partial[(int64_t)blockIdx.x * SK_MAX_SUM + s] = all;
    }
    for (int s = P::SUMS; s < SK_TOTALS<P> && partial; s++) {
        double all = sk_block_most(*sk_most_at(&sum[s]));
        if (threadIdx.x == 0) *sk_most_at(&partial[(int64_t)blockIdx.x * SK_MAX_SUM + s]) = all;
    }
}

/* One chunk; its sums go to partial[chunk]: of double, or in canonical order of sk_fixed.  In
 * canonical order all elements go one by one, so that all are made by the same code. */
template <class P, typename S, typename A>
static __global__ void __launch_bounds__(SK_PASS_BLOCK, 4)
    sk_pass_chunk(const __grid_constant__ sk_update_job j, A *partial)
{
    __shared__ alignas(16) char shared[sizeof(sk_common<P>)];
    sk_common<P> &c = *reinterpret_cast<sk_common<P> *>(shared);
    const sk_update *p = &j.pieces[sk_piece_with(j.pieces, j.n_pieces, blockIdx.x)];
    A sum[SK_TOTALS<P> + 1] = {};
    if (threadIdx.x == 0) sk_begin<P>(&j, p, sizeof(S), &c);
    __syncthreads();
    sk_share_of<S> o = sk_share_at<P, S>(&j, p, c.from);
    int quads = c.packs ? c.n / 4 : 0;
    if (c.skip && o.narrow) sk_narrow_only(o, c.n, quads);
    if (c.skip) return;
    if (p->bias_update != 0) sk_bias_update(p, o, c.from, c.n);
    else sk_share_pass(c, o, quads, sum);
    sk_chunk_totals<P>(sum, partial);
}

#include "kernel/cuda/optim_blocks.h"

/* One block a shard: the sums of its chunks are added up. */
template <typename A>
static __global__ void __launch_bounds__(SK_PASS_BLOCK)
    sk_pass_sums(const __grid_constant__ sk_update_job j, const A *partial, int n_sums, int n_all)
{
    const sk_update *p = &j.pieces[blockIdx.x];
    int64_t chunks = (p->n + SK_UPDATE_CHUNK - 1) / SK_UPDATE_CHUNK;
    if (!p->after || sk_skips(&j, p)) return;
    for (int s = 0; s < SK_MAX_SUM; s++) {
        A sum = {};
        for (int64_t c = threadIdx.x; c < chunks && s < n_sums && p->owner; c += SK_PASS_BLOCK)
            sk_join(&sum, partial[(p->chunk + c) * SK_MAX_SUM + s]);
        sum = sk_block_sum(sum);
        if (threadIdx.x == 0) ((A *)p->after)[s] = sum;
    }
    for (int s = 0; s < SK_MAX_SUM && p->after_most; s++) {
        if (!(j.maxima >> s & 1)) continue;
        double most = 0;
        for (int64_t c = threadIdx.x; c < chunks && p->owner; c += SK_PASS_BLOCK)
            most = fmax(most, *sk_most_at((A *)&partial[(p->chunk + c) * SK_MAX_SUM + s]));
        most = sk_block_most(most);
        if (threadIdx.x == 0) p->after_most[s] = s < n_all ? most : 0;
    }
}

/* sk_optim.perturb, before the last phase of a step: moved weights beside the master. */
template <class P>
static __global__ void __launch_bounds__(SK_PASS_BLOCK)
    sk_perturb_chunk(const __grid_constant__ sk_update_job j)
{
    const sk_update *p = &j.pieces[sk_piece_with(j.pieces, j.n_pieces, blockIdx.x)];
    const sk_step_scalars *pulse = j.pulse;
    float knob[SK_MAX_KNOB];
    if (pulse->skip || pulse->phase + 1 >= j.phases || p->bias_update != 0) return;
    const P pass = P::begin(sk_facts_of(&j, p, knob));
    int64_t from = ((int64_t)blockIdx.x - p->chunk) * SK_UPDATE_CHUNK;
    int64_t end = p->n - from < SK_UPDATE_CHUNK ? p->n : from + SK_UPDATE_CHUNK;
    for (int64_t i = from + threadIdx.x; i < end; i += SK_PASS_BLOCK) {
        float g = sk_get({(void *)p->grad, j.grad_type}, i) * pulse->scale;
        sk_put({p->narrow, p->narrow_type}, i, pass.one(p->param[i], g));
    }
}

/* sk_optim.settle: one thread a shard, in a launch before the pass that reads the scalars, so that
 * no block of that pass sees them half settled. */
template <class P> static __global__ void sk_settle_one(const __grid_constant__ sk_update_job j)
{
    const sk_update *p = &j.pieces[blockIdx.x];
    float knob[SK_MAX_KNOB];
    if (p->scalar && !sk_skips(&j, p)) P::settle(sk_facts_of(&j, p, knob), p->scalar);
}

/* ---- launching */

template <class P>
static sk_status sk_settle(const char *optim, const sk_update_job *j, const sk_launch *l)
{
    if (j->n_pieces) sk_settle_one<P><<<(unsigned)j->n_pieces, 1, 0, (cudaStream_t)l->stream>>>(*j);
    return sk_cuda_launched(optim);
}

static inline sk_status sk_pass_fits(const char *optim, const sk_update_job *j, const sk_launch *l,
                                     bool sums)
{
    size_t each = SK_MAX_SUM * (j->ordered ? sizeof(sk_fixed) : sizeof(double));
    size_t need = sums ? (size_t)j->chunks * each : 0;
    SK_TRY(sk_update_takes(optim, j));
    if (j->chunks > INT32_MAX || need > l->workspace_bytes)
        return sk_fail(
            SK_ECONF,
            "%s: %lld chunks of weights need %zu bytes for their sums, the workspace has %zu",
            optim, (long long)j->chunks, need, l->workspace_bytes);
    return SK_OK;
}

template <class P>
static sk_status sk_perturb(const char *optim, const sk_update_job *j, const sk_launch *l)
{
    SK_TRY(sk_pass_fits(optim, j, l, false));
    cudaStream_t s = (cudaStream_t)l->stream;
    if (j->chunks) sk_perturb_chunk<P><<<(unsigned)j->chunks, SK_PASS_BLOCK, 0, s>>>(*j);
    return sk_cuda_launched(optim);
}

template <class P, typename S, typename A>
static void sk_pass_start(const sk_update_job *j, A *partial, cudaStream_t s)
{
    sk_pass_chunk<P, S, A><<<(unsigned)j->chunks, SK_PASS_BLOCK, 0, s>>>(*j, partial);
}

/* A pass without state is the same whatever the type of state is. */
template <class P, typename A>
static void sk_pass_chunks(const sk_update_job *j, A *partial, cudaStream_t s)
{
    if constexpr ((P::READS | P::WRITES) > 0) {
        if (j->state_type == SK_BF16) return sk_pass_start<P, __nv_bfloat16>(j, partial, s);
        if (j->state_type == SK_U8)
            return sk_blocks_chunk<P><<<(unsigned)j->chunks, SK_PASS_BLOCK, 0, s>>>(*j, partial);
    }
    sk_pass_start<P, float>(j, partial, s);
}

template <class P, typename A>
static void sk_pass_all(const sk_update_job *j, A *partial, cudaStream_t s)
{
    if (j->chunks) sk_pass_chunks<P>(j, partial, s);
    if constexpr (P::SUMS > 0)
        if (partial && j->n_pieces)
            sk_pass_sums<<<(unsigned)j->n_pieces, SK_PASS_BLOCK, 0, s>>>(*j, (const A *)partial,
                                                                         P::SUMS, SK_TOTALS<P>);
}

template <class P>
static sk_status sk_pass(const char *optim, const sk_update_job *j, const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    char *workspace = P::SUMS > 0 && j->sums ? l->workspace : NULL;
    SK_TRY(sk_pass_fits(optim, j, l, workspace != NULL));
    if constexpr (P::SUMS > 0)
        if (j->ordered) sk_pass_all<P>(j, (sk_fixed *)workspace, s);
    if (P::SUMS == 0 || !j->ordered) sk_pass_all<P>(j, (double *)workspace, s);
    return sk_cuda_launched(optim);
}

#endif
