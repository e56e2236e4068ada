/* codec_rows.h - what GPU halves of codecs share; only parts/codec/NAME.cu include it.
 *
 * A codec is a struct of what happens to one element:
 *
 *     struct int8_code : sk_code_plain {
 *         enum { BLOCK = 256, HEAD = SK_SCALE_BYTES, BITS = 8, NONE = 0 };
 *         static __device__ float most() { return 127; }
 *         static __device__ unsigned one(float x, float by) { ... }          its bits
 *         static __device__ float back(unsigned q, float scale) { ... }
 *     };
 *     static sk_status encode(...) { return sk_code_encode<int8_code>("int8", j, stream); }
 *
 * NONE are the bits of an element of a block that has nothing to say (sk_scale_put() is 0).
 *
 * A warp has SPAN blocks at a time.  A lane has pairs of neighbours, 64 elements apart, so that in
 * every access the warp reads or writes one run; in 4 bits these are the two that share a byte,
 * also in a block that is shorter (sk_code_step).  In 1 or 2 bits lanes side by side share a byte,
 * which the first of them writes.  Blocks that are shorter, and those that begin at
 * an odd place, go element by element and byte by byte: rows of whole blocks are taken as one long
 * row, where only the last block can be short.
 *
 * Arithmetic is spelled out (__fmul_rn), so that nothing is contracted but what the CPU halves
 * contract: bytes are the same.  Numbers that are none keep the bits that they have there. */
#ifndef SK_KERNEL_CODEC_ROWS_H
#define SK_KERNEL_CODEC_ROWS_H

#include "kernel/codec_kernel.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <float.h>

enum { SK_CODE_WARPS = 8 };

/* Where blocks lie. */
typedef struct sk_code_plan {
    int64_t rows, row, bytes; /* as in the job, or all of it as one row */
    int64_t blocks, total;    /* of a row; of all */
    int64_t piece;            /* bytes from a shard to the next */
} sk_code_plan;

typedef struct sk_code_at { /* one block */
    int64_t x, code;        /* its first element; its first byte */
    int n;                  /* elements; 0: there is no such block */
} sk_code_at;

template <class C> struct sk_code {
    enum {
        BYTES = C::HEAD + C::BLOCK * C::BITS / 8, /* of a whole block */
        PAIRS = C::BLOCK / 64,                    /* that a lane has */
        SPAN = 256 / C::BLOCK,
        WORD = C::BITS == 16 ? 4 : 2, /* bytes that a lane moves at once */
        FEW = C::BITS < 4,            /* several lanes share a byte */
        LANES = C::BITS < 4 ? 4 / C::BITS : 1
    };
};

/* What most codecs do not: draw random bits (one() has a third argument), and have the mean
 * magnitude of a block as its scale. */
struct sk_code_plain {
    enum { DRAWS = 0, MEAN = 0 };
};

/* ---- types: as tensor/dtype.c */

static __device__ inline float sk_wide(float x) { return x; }
static __device__ inline float sk_wide(__nv_bfloat16 x)
{
    return __uint_as_float((unsigned)__bfloat16_as_ushort(x) << 16);
}
static __device__ inline float sk_wide(__half x)
{
    unsigned u = __half_as_ushort(x);
    if ((u & 0x7fffu) <= 0x7c00u) return __half2float(x);
    return __uint_as_float((u & 0x8000u) << 16 | 0x7fc00000u | (u & 0x3ffu) << 13);
}

static __device__ inline unsigned sk_bf16_bits(float x)
{
    unsigned u = __float_as_uint(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return u >> 16 | 0x40u;
    return (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
}
static __device__ inline unsigned sk_f16_bits(float x)
{
    unsigned u = __float_as_uint(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (u >> 16 & 0x8000u) | 0x7e00u;
    return __half_as_ushort(__float2half_rn(x));
}

static __device__ inline void sk_thin(float x, float *to) { *to = x; }
static __device__ inline void sk_thin(float x, __nv_bfloat16 *to)
{
    *to = __ushort_as_bfloat16((unsigned short)sk_bf16_bits(x));
}
static __device__ inline void sk_thin(float x, __half *to)
{
    *to = __ushort_as_half((unsigned short)sk_f16_bits(x));
}

/* ---- places */

template <class C>
static __device__ inline sk_code_at sk_code_block(const sk_code_plan &p, int64_t i)
{
    if (i >= p.total) return sk_code_at{0, 0, 0};
    int64_t row = p.rows == 1            ? 0
                  : p.total <= INT32_MAX ? (int64_t)((unsigned)i / (unsigned)p.blocks)
                                         : i / p.blocks;
    int64_t b = i - row * p.blocks, left = p.row - b * C::BLOCK;
    return sk_code_at{row * p.row + b * C::BLOCK, row * p.bytes + b * sk_code<C>::BYTES,
                      (int)(left < C::BLOCK ? left : C::BLOCK)};
}

/* The first element of a lane's pair k in a block of n, and whether elements i and i + 1 are its
 * own: in 4 bits pair 1 is what shares bytes with pair 0, half a block behind it. */
template <class C> static __device__ inline int sk_code_step(int n)
{
    return C::BITS == 4 ? (n + 1) / 2 : 64;
}
template <class C> static __device__ inline bool sk_code_has(int n, int k, int e)
{
    int step = sk_code_step<C>(n), i = 2 * (int)(threadIdx.x % 32) + e;
    return i < step && k * step + i < n;
}
template <class C> static __device__ inline int sk_code_place(int n, int k)
{
    return k * sk_code_step<C>(n) + 2 * (int)(threadIdx.x % 32);
}

template <typename T> struct alignas(2 * sizeof(T)) sk_two {
    T x[2];
};

/* A lane's elements of a block; what it has not is 0. */
template <class C, typename T>
static __device__ inline void sk_code_take(const T *from, int n, float v[][2])
{
    bool whole = n == C::BLOCK && !((uintptr_t)from % (2 * sizeof(T)));
#pragma unroll
    for (int k = 0; k < sk_code<C>::PAIRS; k++) {
        const T *p = from + sk_code_place<C>(n, k);
        if (whole) {
            sk_two<T> two = *reinterpret_cast<const sk_two<T> *>(p);
            v[k][0] = sk_wide(two.x[0]), v[k][1] = sk_wide(two.x[1]);
        } else
            for (int e = 0; e < 2; e++) v[k][e] = sk_code_has<C>(n, k, e) ? sk_wide(p[e]) : 0;
    }
}

template <class C, typename T>
static __device__ inline void sk_code_leave(T *to, int n, const float v[][2])
{
    bool whole = n == C::BLOCK && !((uintptr_t)to % (2 * sizeof(T)));
#pragma unroll
    for (int k = 0; k < sk_code<C>::PAIRS; k++) {
        T *p = to + sk_code_place<C>(n, k);
        sk_two<T> two;
        sk_thin(v[k][0], &two.x[0]), sk_thin(v[k][1], &two.x[1]);
        if (whole) *reinterpret_cast<sk_two<T> *>(p) = two;
        else
            for (int e = 0; e < 2; e++)
                if (sk_code_has<C>(n, k, e)) p[e] = two.x[e];
    }
}

/* ---- bytes */

/* `bytes` of a word, the low ones first, at any address. */
static __device__ inline void sk_bytes_put(uint8_t *to, unsigned word, int bytes)
{
    for (int b = 0; b < bytes; b++) to[b] = (uint8_t)(word >> 8 * b);
}
static __device__ inline unsigned sk_bytes_get(const uint8_t *from, int bytes)
{
    unsigned word = 0;
    for (int b = 0; b < bytes; b++) word |= (unsigned)from[b] << 8 * b;
    return word;
}

template <int WORD> static __device__ inline void sk_word_put(uint8_t *to, unsigned word)
{
    if (WORD == 4) *reinterpret_cast<unsigned *>(to) = word;
    else *reinterpret_cast<unsigned short *>(to) = (unsigned short)word;
}
template <int WORD> static __device__ inline unsigned sk_word_get(const uint8_t *from)
{
    if (WORD == 4) return *reinterpret_cast<const unsigned *>(from);
    return *reinterpret_cast<const unsigned short *>(from);
}

/* How many words a lane has, where word k lies, and how many bytes of it are in a block of n. */
template <class C> static __device__ constexpr int sk_code_words()
{
    return C::BITS == 4 ? 1 : (int)sk_code<C>::PAIRS;
}
template <class C> static __device__ inline int sk_code_word_at(int k)
{
    return C::HEAD + (64 * k + 2 * (int)(threadIdx.x % 32)) * (C::BITS == 16 ? 2 : 1);
}
template <class C> static __device__ inline int sk_code_word_bytes(int n, int k)
{
    return (sk_code_has<C>(n, k, 0) + sk_code_has<C>(n, k, 1)) * (C::BITS == 16 ? 2 : 1);
}

/* The bits of a lane's pairs, several lanes to a byte; all lanes of the warp are here. */
template <class C>
static __device__ inline void sk_code_put_few(uint8_t *to, int n, const unsigned q[][2])
{
    int lane = (int)(threadIdx.x % 32);
#pragma unroll
    for (int k = 0; k < sk_code<C>::PAIRS; k++) {
        unsigned bits = 0;
        for (int e = 0; e < 2; e++)
            if (sk_code_has<C>(n, k, e)) bits |= q[k][e] << C::BITS * e;
        for (int s = 1; s < sk_code<C>::LANES; s *= 2)
            bits |= __shfl_down_sync(~0u, bits, s) << 2 * C::BITS * s;
        if (lane % sk_code<C>::LANES == 0 && sk_code_has<C>(n, k, 0))
            to[C::HEAD + 8 * C::BITS * k + lane / sk_code<C>::LANES] = (uint8_t)bits;
    }
}

template <class C>
static __device__ inline void sk_code_get_few(const uint8_t *from, int n, unsigned q[][2])
{
    int lane = (int)(threadIdx.x % 32), shift = 2 * C::BITS * (lane % sk_code<C>::LANES);
#pragma unroll
    for (int k = 0; k < sk_code<C>::PAIRS; k++) {
        unsigned bits = 0;
        if (sk_code_has<C>(n, k, 0))
            bits = from[C::HEAD + 8 * C::BITS * k + lane / sk_code<C>::LANES] >> shift;
        for (int e = 0; e < 2; e++) q[k][e] = bits >> C::BITS * e & ((1u << C::BITS) - 1);
    }
}

template <class C>
static __device__ inline void sk_code_put(uint8_t *to, int n, const unsigned q[][2])
{
    if constexpr (sk_code<C>::FEW) {
        sk_code_put_few<C>(to, n, q);
        return;
    }
    bool whole = n == C::BLOCK && !((uintptr_t)to % sk_code<C>::WORD);
    constexpr int shift = C::BITS == 16 ? 16 : 8;
#pragma unroll
    for (int k = 0; k < sk_code_words<C>(); k++) {
        unsigned word = q[k][0] | q[k][1] << shift;
        if (C::BITS == 4) word |= q[1][0] << 4 | q[1][1] << 12;
        uint8_t *p = to + sk_code_word_at<C>(k);
        if (whole) sk_word_put<sk_code<C>::WORD>(p, word);
        else sk_bytes_put(p, word, sk_code_word_bytes<C>(n, k));
    }
}

template <class C>
static __device__ inline void sk_code_get(const uint8_t *from, int n, unsigned q[][2])
{
    if constexpr (sk_code<C>::FEW) {
        sk_code_get_few<C>(from, n, q);
        return;
    }
    bool whole = n == C::BLOCK && !((uintptr_t)from % sk_code<C>::WORD);
    constexpr int shift = C::BITS == 16 ? 16 : 8;
    constexpr unsigned mask = C::BITS == 16 ? 0xffff : C::BITS == 8 ? 0xff : 15;
#pragma unroll
    for (int k = 0; k < sk_code_words<C>(); k++) {
        const uint8_t *p = from + sk_code_word_at<C>(k);
        unsigned word =
            whole ? sk_word_get<sk_code<C>::WORD>(p) : sk_bytes_get(p, sk_code_word_bytes<C>(n, k));
        q[k][0] = word & mask, q[k][1] = word >> shift & mask;
        if (C::BITS == 4) q[1][0] = word >> 4 & mask, q[1][1] = word >> 12 & mask;
    }
}

/* ---- scales: as sk_scale_put() */

/* The bits of bf16, and by what to multiply, for the largest of a block without its sign. */
static __device__ inline unsigned sk_code_scale(unsigned top, float most, float *by)
{
    *by = 0;
    if (top > 0x7f800000u) return top >> 16 | 0x40u;
    float scale = __fdiv_rn(__uint_as_float(top), most);
    unsigned bits = sk_bf16_bits(scale);
    bool finite = __float_as_uint(scale) < 0x7f800000u;
    if (finite && __uint_as_float(bits << 16) < scale) bits++; /* never too small */
    if (scale < FLT_MIN) bits = 0;
    if (finite && bits) *by = __fdiv_rn(1.0f, __uint_as_float(bits << 16));
    return bits;
}

/* The mean magnitude of a block of n, summed as parts/codec/sign.c does; what is not finite becomes
 * one number that is none. */
template <class C> static __device__ inline unsigned sk_code_mean(const float x[][2], int n)
{
    float sum = 0, each = __fdiv_rn(1.0f, (float)n);
#pragma unroll
    for (int k = 0; k < sk_code<C>::PAIRS; k++)
        for (int e = 0; e < 2; e++)
            if (sk_code_has<C>(n, k, e)) sum = __fmaf_rn(fabsf(x[k][e]), each, sum);
    for (int s = 16; s > 0; s /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, s));
    bool finite = (__float_as_uint(sum) & 0x7fffffffu) < 0x7f800000u;
    return finite ? sk_bf16_bits(sum) : 0x7fc0u;
}

/* Writes the scale in front of a block of n and returns it. */
template <class C>
static __device__ inline float sk_code_head(const float x[][2], int n, uint8_t *to, float *by)
{
    if constexpr (C::MEAN) {
        unsigned mean = sk_code_mean<C>(x, n);
        *by = 1;
        if (threadIdx.x % 32 == 0) sk_bytes_put(to, mean, C::HEAD);
        return __uint_as_float(mean << 16);
    }
    unsigned top = 0;
#pragma unroll
    for (int k = 0; k < sk_code<C>::PAIRS; k++)
        for (int e = 0; e < 2; e++) top = max(top, __float_as_uint(x[k][e]) & 0x7fffffffu);
    unsigned bits = sk_code_scale(__reduce_max_sync(~0u, top), C::most(), by);
    if (threadIdx.x % 32 == 0) sk_bytes_put(to, bits, C::HEAD);
    return __uint_as_float(bits << 16);
}

template <class C> static __device__ inline float sk_code_scale_of(const uint8_t *from)
{
    if (C::HEAD == 0) return 1;
    if (!((uintptr_t)from % 2)) return __uint_as_float(sk_word_get<2>(from) << 16);
    return __uint_as_float(sk_bytes_get(from, 2) << 16);
}

/* ---- kernels */

/* x with what was lost before.  A number that is none stays the one it is, as on x86; here it would
 * become another, and so would the scale of its block. */
static __device__ inline float sk_code_owed(float x, float lost, float loss_scale)
{
    float sum = __fmaf_rn(loss_scale, lost, x);
    if (sum == sum) return sum;
    unsigned u = __float_as_uint(x == x ? lost : x) | 0x400000u;
    return __uint_as_float(x == x && lost == lost ? 0xffc00000u : u);
}

static __device__ inline float sk_code_loss_scale(const sk_code_job &j)
{
    return j.loss_scale && *j.loss_scale > 0 ? (float)*j.loss_scale : 1;
}

/* The bits of element i of a row that begins at a logical place. */
template <class C>
static __device__ inline unsigned sk_code_bits(float x, float by, uint64_t own, int64_t place)
{
    if constexpr (C::DRAWS) return C::one(x, by, sk_code_random(own, (uint64_t)place));
    else return C::one(x, by);
}

/* One block, of which the lane has x and what was lost before. */
template <class C, bool ERROR>
static __device__ inline void sk_code_one(const sk_code_job &j, const sk_code_at &at, float x[][2],
                                          float lost[][2], float loss_scale)
{
    unsigned q[sk_code<C>::PAIRS][2];
    float by = 1, scale = 1, unscale = __fdiv_rn(1.0f, loss_scale);
    for (int k = 0; ERROR && !j.adds && k < sk_code<C>::PAIRS; k++)
        for (int e = 0; e < 2; e++) x[k][e] = sk_code_owed(x[k][e], lost[k][e], loss_scale);
    if (C::HEAD > 0) scale = sk_code_head<C>(x, at.n, j.code + at.code, &by);
    uint64_t own = 0;
    int64_t place = 0; /* of the block's first element */
    if constexpr (C::DRAWS) {
        own = sk_code_own(sk_code_shared(j.seed, j.stream, *j.step), j.term, j.micro);
        place = j.first + at.x / j.row * j.place + at.x % j.row;
    }
#pragma unroll
    for (int k = 0; k < sk_code<C>::PAIRS; k++)
        for (int e = 0; e < 2; e++) {
            q[k][e] =
                by == 0 ? (unsigned)C::NONE
                        : sk_code_bits<C>(x[k][e], by, own, place + sk_code_place<C>(at.n, k) + e);
            if (!ERROR) continue;
            float now = __fsub_rn(x[k][e], C::back(q[k][e], scale));
            lost[k][e] = __fmaf_rn(unscale, now, j.adds ? lost[k][e] : 0);
        }
    sk_code_put<C>(j.code + at.code, at.n, q);
    if (ERROR && !(j.hold && *j.hold)) sk_code_leave<C>(j.error + at.x, at.n, lost);
}

template <class C, typename T, bool ERROR>
static __global__ void __launch_bounds__(32 * SK_CODE_WARPS)
    sk_encode_blocks(const __grid_constant__ sk_code_job j, const __grid_constant__ sk_code_plan p)
{
    constexpr int SPAN = sk_code<C>::SPAN, PAIRS = sk_code<C>::PAIRS;
    int64_t first = ((int64_t)blockIdx.x * SK_CODE_WARPS + threadIdx.x / 32) * SPAN;
    float loss_scale = ERROR ? sk_code_loss_scale(j) : 1;
    for (; first < p.total; first += (int64_t)gridDim.x * SK_CODE_WARPS * SPAN) {
        sk_code_at at[SPAN];
        float x[SPAN][PAIRS][2], lost[SPAN][PAIRS][2];
#pragma unroll
        for (int s = 0; s < SPAN; s++) {
            at[s] = sk_code_block<C>(p, first + s);
            if (!at[s].n) continue;
            sk_code_take<C>((const T *)j.x + at[s].x, at[s].n, x[s]);
            if (ERROR) sk_code_take<C>(j.error + at[s].x, at[s].n, lost[s]);
        }
#pragma unroll
        for (int s = 0; s < SPAN; s++)
            if (at[s].n) sk_code_one<C, ERROR>(j, at[s], x[s], lost[s], loss_scale);
    }
}

template <class C, typename T>
static __global__ void __launch_bounds__(32 * SK_CODE_WARPS)
    sk_decode_blocks(const __grid_constant__ sk_code_job j, const __grid_constant__ sk_code_plan p)
{
    constexpr int SPAN = sk_code<C>::SPAN, PAIRS = sk_code<C>::PAIRS;
    int64_t first = ((int64_t)blockIdx.x * SK_CODE_WARPS + threadIdx.x / 32) * SPAN;
    for (; first < p.total; first += (int64_t)gridDim.x * SK_CODE_WARPS * SPAN)
#pragma unroll
        for (int s = 0; s < SPAN; s++) {
            sk_code_at at = sk_code_block<C>(p, first + s);
            float x[PAIRS][2];
            if (!at.n) continue;
#pragma unroll 4
            for (int64_t piece = 0; piece < j.pieces; piece++) {
                const uint8_t *from = j.code + piece * p.piece + at.code;
                unsigned q[PAIRS][2];
                float scale = sk_code_scale_of<C>(from);
                sk_code_get<C>(from, at.n, q);
#pragma unroll
                for (int k = 0; k < PAIRS; k++)
                    for (int e = 0; e < 2; e++) {
                        float y = C::back(q[k][e], scale);
                        x[k][e] = piece ? __fadd_rn(x[k][e], y) : y;
                    }
            }
            sk_code_leave<C>((T *)j.x + at.x, at.n, x);
        }
}

/* ---- launching */

template <class C> static sk_code_plan sk_code_lay_out(const sk_code_job *j)
{
    sk_code_plan p = {j->rows, j->row, j->bytes, 0, 0, j->rows * j->bytes};
    if (j->row % C::BLOCK == 0 || C::HEAD == 0) { /* nothing stands between two rows */
        p.rows = 1;
        p.row = j->rows * j->row;
        p.bytes = p.piece;
    }
    p.blocks = (p.row + C::BLOCK - 1) / C::BLOCK;
    p.total = p.rows * p.blocks;
    return p;
}

static inline sk_status sk_code_launched(const char *codec)
{
    cudaError_t e = cudaGetLastError();
    if (e == cudaSuccess) return SK_OK;
    return sk_fail(SK_EIO, "%s: the CUDA kernel could not be launched: %s (%s)", codec,
                   cudaGetErrorString(e), cudaGetErrorName(e));
}

template <class C> static unsigned sk_code_grid(const sk_code_plan *p)
{
    int64_t each = SK_CODE_WARPS * sk_code<C>::SPAN, n = (p->total + each - 1) / each;
    return (unsigned)(n < INT32_MAX ? n : INT32_MAX);
}

template <class C, typename T>
static void sk_encode_as(const sk_code_job *j, const sk_code_plan *p, cudaStream_t s)
{
    const unsigned grid = sk_code_grid<C>(p), block = 32 * SK_CODE_WARPS;
    if (j->error) sk_encode_blocks<C, T, true><<<grid, block, 0, s>>>(*j, *p);
    else sk_encode_blocks<C, T, false><<<grid, block, 0, s>>>(*j, *p);
}

template <class C, typename T>
static void sk_decode_as(const sk_code_job *j, const sk_code_plan *p, cudaStream_t s)
{
    const unsigned grid = sk_code_grid<C>(p), block = 32 * SK_CODE_WARPS;
    sk_decode_blocks<C, T><<<grid, block, 0, s>>>(*j, *p);
}

template <class C>
static sk_status sk_code_encode(const char *codec, const sk_code_job *j, void *stream)
{
    sk_code_plan p = sk_code_lay_out<C>(j);
    cudaStream_t s = (cudaStream_t)stream;
    SK_TRY(sk_code_takes(codec, j->type));
    if (!p.total) return SK_OK;
    if (j->type == SK_BF16) sk_encode_as<C, __nv_bfloat16>(j, &p, s);
    else if (j->type == SK_F16) sk_encode_as<C, __half>(j, &p, s);
    else sk_encode_as<C, float>(j, &p, s);
    return sk_code_launched(codec);
}

template <class C>
static sk_status sk_code_decode(const char *codec, const sk_code_job *j, void *stream)
{
    sk_code_plan p = sk_code_lay_out<C>(j);
    cudaStream_t s = (cudaStream_t)stream;
    SK_TRY(sk_code_takes(codec, j->type));
    if (!p.total) return SK_OK;
    if (j->type == SK_BF16) sk_decode_as<C, __nv_bfloat16>(j, &p, s);
    else if (j->type == SK_F16) sk_decode_as<C, __half>(j, &p, s);
    else sk_decode_as<C, float>(j, &p, s);
    return sk_code_launched(codec);
}

#endif
