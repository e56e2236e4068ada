/* optim_blocks.h - passes of optimizers over state in blocks of 8 bits (tensor/q8_format.h); only
 * optim_pass.h includes it.
 *
 * A warp takes a block of 256 elements at a time: eight to a lane, as two accesses of four where
 * shards allow it, else one by one.  The scale of a block that is written is a maximum over the
 * warp; no order changes it.  States of a shard that are f32 (small tensors, directions of whole
 * matrices) go through the same launch. */
#ifndef SK_KERNEL_OPTIM_BLOCKS_H
#define SK_KERNEL_OPTIM_BLOCKS_H

/* The magnitudes of both maps, in shared memory. */
typedef struct sk_q8_trees {
    float of[2][SK_Q8_ONE_UNSIGNED + 1];
} sk_q8_trees;

static __device__ inline const float *sk_q8_tree(const sk_q8_trees &t, sk_q8 map)
{
    return t.of[map == SK_Q8_UNSIGNED];
}

static __device__ inline void sk_q8_grow(sk_q8_trees *t)
{
    static_assert((int)SK_PASS_BLOCK == SK_Q8_ONE_UNSIGNED + 1, "a thread makes one of each map");
    int k = threadIdx.x;
    t->of[1][k] = sk_q8_magnitude(SK_Q8_UNSIGNED, k);
    if (k <= SK_Q8_ONE_SIGNED) t->of[0][k] = sk_q8_magnitude(SK_Q8_SIGNED, k);
}

/* One state of a shard. */
struct sk_q8_state {
    sk_q8 map;
    float *scale;
    uint8_t *code;
};

static __device__ inline sk_q8_state sk_q8_state_of(const sk_update *p, int s)
{
    float *scale = (float *)p->state[s];
    return {p->q8[s], scale, (uint8_t *)(scale + sk_q8_blocks(p->n))};
}

template <int V>
static __device__ inline void sk_q8_take(const sk_q8_trees &t, const sk_q8_state &b, int64_t at,
                                         float *v)
{
    float scale = b.scale[at / SK_Q8_BLOCK];
    const float *tree = sk_q8_tree(t, b.map);
    alignas(4) uint8_t code[4];
    if (V == 4) *reinterpret_cast<unsigned *>(code) = *(const unsigned *)(b.code + at);
    else code[0] = b.code[at];
#pragma unroll
    for (int e = 0; e < V; e++) v[e] = __fmul_rn(sk_q8_number(b.map, tree, code[e]), scale);
}

/* As sk_q8_code() of each element over the scale.  The steps of N searches go together: one search
 * waits for shared memory in every step, and N of them one by one are the larger part of what the
 * compiler has to do for a kernel. */
template <int N>
static __device__ inline void sk_q8_codes(const sk_q8_trees &t, sk_q8 map, float scale,
                                          const float *v, uint8_t *code)
{
    const float *tree = sk_q8_tree(t, map);
    bool flat = !(scale > 0 || scale < 0), plus = map == SK_Q8_UNSIGNED;
    int most = plus ? SK_Q8_ONE_UNSIGNED : SK_Q8_ONE_SIGNED, k[N];
    float x[N];
#pragma unroll
    for (int e = 0; e < N; e++) k[e] = 0, x[e] = flat ? 0 : __fdiv_rn(v[e], scale);
#pragma unroll 1
    for (int step = 128; step; step /= 2)
#pragma unroll
        for (int e = 0; e < N; e++) {
            bool minus = !plus && x[e] < 0;
            bool over = (minus ? -x[e] : x[e]) > sk_q8_middle(tree, k[e] + step - 1);
            if (over && k[e] + step <= most - minus) k[e] += step;
        }
#pragma unroll
    for (int e = 0; e < N; e++) {
        if (plus && x[e] > 0 && !k[e]) k[e] = 1;
        code[e] = (uint8_t)(!plus && x[e] < 0 ? -k[e] : k[e]);
    }
}

template <int V>
static __device__ inline void sk_q8_leave(const sk_q8_state &b, int64_t at, const uint8_t *code)
{
    alignas(4) uint8_t word[4];
#pragma unroll
    for (int e = 0; e < V; e++) word[e] = code[e];
    if (V == 4) *(unsigned *)(b.code + at) = *reinterpret_cast<unsigned *>(word);
    else b.code[at] = word[0];
}

/* Extremes of what a lane has of a block, then of the block. */
struct sk_extremes {
    float high, low, zero;
    __device__ void see(float x)
    {
        high = x > high ? x : high;
        low = x < low ? x : low;
        zero += 0 * x;
    }
    __device__ float scale()
    {
#pragma unroll
        for (int k = 16; k; k /= 2) {
            float h = __shfl_xor_sync(~0u, high, k), l = __shfl_xor_sync(~0u, low, k);
            zero += __shfl_xor_sync(~0u, zero, k);
            high = h > high ? h : high;
            low = l < low ? l : low;
        }
        return sk_q8_scale(high, low, zero);
    }
};

/* Lane's group k of V elements begins here, in the block. */
template <int V> static __device__ inline int sk_q8_place(int k)
{
    return (k * 32 + (int)(threadIdx.x % 32)) * V;
}

template <class P, int V, int K>
static __device__ inline void sk_block_take(const sk_q8_trees &t, const sk_update *p,
                                            const sk_common<P> &c, const sk_share_of<float> &o,
                                            int from, int n, sk_some<V> *x)
{
#pragma unroll
    for (int k = 0; k < K; k++) {
        int i = from + sk_q8_place<V>(k);
        if (sk_q8_place<V>(k) >= n) continue;
        sk_take<V>(o.weights + i, x[k].w);
        if (P::GRAD) sk_grad_take(o, i, x[k]);
#pragma unroll
        for (int s = 0; s < SK_MAX_STATE; s++) {
            if (!(P::READS >> s & 1)) continue;
            if (p->q8[s]) sk_q8_take<V>(t, sk_q8_state_of(p, s), c.from + i, x[k].s[s]);
            else sk_take<V>(o.state[s] + i, x[k].s[s]);
        }
    }
}

/* A state that is written, as a lane has it; what lies behind the end is 0. */
template <int V, int K>
static __device__ inline void sk_block_encode(const sk_q8_trees &t, const sk_q8_state &b,
                                              int64_t at, int n, const float *v)
{
    uint8_t code[K * V];
    sk_extremes m = {0, 0, 0};
#pragma unroll
    for (int e = 0; e < K * V; e++) m.see(v[e]);
    float scale = m.scale();
    if (threadIdx.x % 32 == 0) b.scale[at / SK_Q8_BLOCK] = scale;
    sk_q8_codes<K * V>(t, b.map, scale, v, code);
#pragma unroll
    for (int k = 0; k < K; k++)
        if (sk_q8_place<V>(k) < n) sk_q8_leave<V>(b, at + sk_q8_place<V>(k), code + k * V);
}

template <class P, int V, int K>
static __device__ inline void sk_block_state(const sk_q8_trees &t, const sk_update *p,
                                             const sk_common<P> &c, const sk_share_of<float> &o,
                                             int from, int n, int s, const sk_some<V> *x)
{
    float v[K * V];
#pragma unroll
    for (int e = 0; e < K * V; e++) v[e] = sk_q8_place<V>(e / V) < n ? x[e / V].s[s][e % V] : 0;
    if (p->q8[s]) sk_block_encode<V, K>(t, sk_q8_state_of(p, s), c.from + from, n, v);
#pragma unroll
    for (int k = 0; k < K; k++)
        if (!p->q8[s] && sk_q8_place<V>(k) < n)
            sk_leave<V>(o.state[s] + from + sk_q8_place<V>(k), v + k * V);
}

/* One block of n elements, from `from` on in the chunk. */
template <class P, int V, typename A>
static __device__ inline void sk_block_pass(const sk_q8_trees &t, const sk_update *p,
                                            const sk_common<P> &c, const sk_share_of<float> &o,
                                            int from, int n, A *sum)
{
    const int K = SK_Q8_BLOCK / 32 / V;
    sk_some<V> x[K];
    sk_block_take<P, V, K>(t, p, c, o, from, n, x);
#pragma unroll
    for (int k = 0; k < K; k++) {
        int i = from + sk_q8_place<V>(k);
        if (sk_q8_place<V>(k) >= n) continue;
        sk_some_change(c.pass, o.grad_type, c.scale, x[k], sum);
        if (P::MOVES) sk_leave<V>(o.param + i, x[k].w);
        sk_narrow<V>(o, i, x[k].w);
    }
#pragma unroll
    for (int s = 0; s < SK_MAX_STATE; s++)
        if (P::WRITES >> s & 1) sk_block_state<P, V, K>(t, p, c, o, from, n, s, x);
}

/* Fours where all of a block is there, but in canonical order: there all elements are made by the
 * same code. */
template <class P, typename A>
static __device__ inline void sk_blocks_pass(const sk_q8_trees &t, const sk_update *p,
                                             const sk_common<P> &c, const sk_share_of<float> &o,
                                             A *sum)
{
    int at = threadIdx.x / 32 * SK_Q8_BLOCK;
    const int next = SK_PASS_BLOCK / 32 * SK_Q8_BLOCK;
    if constexpr (!SK_IN_ORDER<A>)
        for (; c.packs && c.n - at >= SK_Q8_BLOCK; at += next)
            sk_block_pass<P, 4>(t, p, c, o, at, SK_Q8_BLOCK, sum);
    for (; at < c.n; at += next) sk_block_pass<P, 1>(t, p, c, o, at, c.n - at, sum);
}

/* As sk_pass_chunk. */
template <class P, typename A>
static __global__ void __launch_bounds__(SK_PASS_BLOCK, 2)
    sk_blocks_chunk(const __grid_constant__ sk_update_job j, A *partial)
{
    static_assert(SK_UPDATE_CHUNK % SK_Q8_BLOCK == 0, "chunks are of whole blocks");
    __shared__ alignas(16) char shared[sizeof(sk_common<P>)];
    __shared__ sk_q8_trees trees;
    sk_common<P> &c = *reinterpret_cast<sk_common<P> *>(shared);
    const sk_update *p = &j.pieces[sk_piece_with(j.pieces, j.n_pieces, blockIdx.x)];
    A sum[SK_TOTALS<P> + 1] = {};
    if (threadIdx.x == 0) sk_begin<P>(&j, p, sizeof(float), &c);
    sk_q8_grow(&trees);
    __syncthreads();
    sk_share_of<float> o = sk_share_at<P, float>(&j, p, c.from);
    if (c.skip && o.narrow) sk_narrow_only(o, c.n, c.packs ? c.n / 4 : 0);
    if (c.skip) return;
    if (p->bias_update != 0) sk_bias_update(p, o, c.from, c.n);
    else sk_blocks_pass(trees, p, c, o, sum);
    sk_chunk_totals<P>(sum, partial);
}

#endif
