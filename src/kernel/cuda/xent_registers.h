/* xent_registers.h - cross entropy of rows that lie in registers; only xent_rows.cu includes it.
 *
 * Rows of two-byte elements that all begin at a border of 16 bytes.  A row goes from shared memory
 * into registers at once, and all of its place in shared memory is free for the next row. */
#ifndef SK_KERNEL_XENT_REGISTERS_H
#define SK_KERNEL_XENT_REGISTERS_H

#include "kernel/cuda/async_copy.h"
#include "kernel/cuda/cuda_rows.h"
#include "kernel/cuda/xent_rows.h"

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
            if (has(k, left)) sk_async_copy16(tile + k * THREADS, from + k * THREADS);
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
template <int WARPS> static __device__ inline float2 join_warps(const float2 *part)
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

/* What a block knows of its rows.  Four rows take turns: no thread is ever two rows behind another.
 */
template <int WARPS> struct row_state {
    float2 part[4][WARPS];
    int32_t word[4];
    float weight[4], scale;
};

/* By one thread. */
template <typename D>
static __device__ inline void ask_row(const sk_xent_job &j, D *state, int64_t r, int turn)
{
    sk_async_copy4(&state->word[turn], j.target + r);
    sk_async_copy4(&state->weight[turn], j.weight + r);
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
    __shared__ row_state<THREADS / 32> state;
    typedef held<T, P, SURE, THREADS> row;
    constexpr int V = sk_pack<T>();
    const int me = (int)threadIdx.x, packs = (int)(j.n / V), left = packs - me;
    const uint4 *in = (const uint4 *)j.logits + me;
    row h;
    h.clear();
    if (me == 0) sk_async_copy4(&state.scale, j.scale), ask_row(j, &state, blockIdx.x, 0);
    row::ask(tile + me, in + blockIdx.x * (int64_t)packs, left);
    int turn = 0;
    for (int64_t r = blockIdx.x; r < j.rows; r += gridDim.x, turn = (turn + 1) & 3) {
        int64_t next = r + gridDim.x;
        sk_async_wait();
        h.take(tile + me, left);
        if (next < j.rows) {
            if (me == 0) ask_row(j, &state, next, (turn + 1) & 3);
            row::ask(tile + me, in + next * packs, left);
        }
        float2 mine = of_warp(h);
        h.forget((unsigned)(j.rows >> 63));
        if (me % 32 == 0) state.part[turn][me / 32] = mine;
        __syncthreads();
        float2 all = join_warps<THREADS / 32>(state.part[turn]);
        if (me == 0 && j.m) j.m[r] = all.x;
        if (me == 0 && j.s) j.s[r] = all.y * two_to(__fmul_rn(all.x, LOG2E) - all.x * LOG2E);
        float ds = __fdividef(state.weight[turn] * state.scale, all.y),
              shift = __fmul_rn(all.x, LOG2E), t = 0;
        int at = place(j, state.word[turn]);
        if (at >= 0 && at / V % THREADS == me) t = (float)((const T *)j.logits)[r * j.n + at];
        uint4 *to = (uint4 *)j.dlogits + r * packs + me;
#pragma unroll
        for (int k = 0; k < P; k++)
            store_if(to + k * THREADS, h.gradient(k, shift, ds), row::has(k, left));
        at = place(j, state.word[turn]); /* again: there is no register to spare above */
        if (j.t && (at < 0 ? 0 : at / V % THREADS) == me) j.t[r] = t;
        if (at >= 0 && at / V % THREADS == me) /* this thread's pack has been written */
            ((T *)j.dlogits)[r * j.n + at] =
                (T)(two_to(fmaf(t, LOG2E, -shift)) * ds - state.weight[turn] * state.scale);
    }
}

#endif
