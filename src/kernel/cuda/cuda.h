/* cuda.h - what GPU halves of ops share; only parts/op/NAME.cu include it.
 *
 * Kernels compute in float and are templates over the storage type T (float, __nv_bfloat16,
 * __half) and over V, the elements that one access moves: sk_pack<T>() of them (16 bytes, the
 * widest access a thread has) where everything is aligned, else 1.
 *
 *     template <typename T> sk_status run(const sk_args *a, cudaStream_t s);
 *     return SK_FLOAT(a->in[0].type, run<T>(a, s));
 *
 * The types that a kernel meets are those of op->types: the executor refuses others before the
 * first launch (sk_op_takes).
 *
 * Small operands (a number a row, say) may be of any type: sk_any reads and writes them. */
#ifndef SK_KERNEL_CUDA_H
#define SK_KERNEL_CUDA_H

#include "kernel/kernel_launch.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <string.h>

/* `call`, in which T is the C type that stands for the storage type. */
#define SK_FLOAT(type, ...)          \
    ([&]() {                         \
        if ((type) == SK_BF16) {     \
            using T = __nv_bfloat16; \
            return __VA_ARGS__;      \
        }                            \
        if ((type) == SK_F16) {      \
            using T = __half;        \
            return __VA_ARGS__;      \
        }                            \
        using T = float;             \
        return __VA_ARGS__;          \
    }())

static inline sk_any sk_any_of(const sk_view *v) { return sk_any{v->data, v->type}; }

static __device__ inline float sk_get(sk_any x, int64_t i)
{
    if (x.type == SK_BF16) return (float)((const __nv_bfloat16 *)x.data)[i];
    if (x.type == SK_F16) return (float)((const __half *)x.data)[i];
    return ((const float *)x.data)[i];
}

static __device__ inline void sk_put(sk_any x, int64_t i, float v)
{
    if (x.type == SK_BF16) ((__nv_bfloat16 *)x.data)[i] = (__nv_bfloat16)v;
    else if (x.type == SK_F16) ((__half *)x.data)[i] = (__half)v;
    else ((float *)x.data)[i] = v;
}

template <typename T> __host__ __device__ constexpr int sk_pack() { return 16 / (int)sizeof(T); }

/* 32 bits of T as floats, and the other way, to nearest even: two at a time, where the chip has an
 * instruction for two. */
__device__ inline void sk_open_word(unsigned x, float *v, __nv_bfloat16)
{
    v[0] = __uint_as_float(x << 16), v[1] = __uint_as_float(x & 0xffff0000u);
}
__device__ inline void sk_open_word(unsigned x, float *v, __half)
{
    __half2 h;
    memcpy(&h, &x, sizeof h);
    float2 f = __half22float2(h);
    v[0] = f.x, v[1] = f.y;
}
__device__ inline void sk_open_word(unsigned x, float *v, float) { v[0] = __uint_as_float(x); }

__device__ inline unsigned sk_close_word(const float *v, __nv_bfloat16)
{
    __nv_bfloat162 h = __floats2bfloat162_rn(v[0], v[1]);
    unsigned x;
    memcpy(&x, &h, sizeof x);
    return x;
}
__device__ inline unsigned sk_close_word(const float *v, __half)
{
    __half2 h = __floats2half2_rn(v[0], v[1]);
    unsigned x;
    memcpy(&x, &h, sizeof x);
    return x;
}
__device__ inline unsigned sk_close_word(const float *v, float) { return __float_as_uint(v[0]); }

/* A pack as floats, and the other way. */
template <typename T> __device__ inline void sk_open(const uint4 &x, float *v)
{
    constexpr int n = sk_pack<T>() / 4;
    sk_open_word(x.x, v, T()), sk_open_word(x.y, v + n, T());
    sk_open_word(x.z, v + 2 * n, T()), sk_open_word(x.w, v + 3 * n, T());
}

template <typename T> __device__ inline uint4 sk_close(const float *v)
{
    constexpr int n = sk_pack<T>() / 4;
    return make_uint4(sk_close_word(v, T()), sk_close_word(v + n, T()),
                      sk_close_word(v + 2 * n, T()), sk_close_word(v + 3 * n, T()));
}

template <int V, typename T> __device__ inline void sk_load(const T *p, float *v)
{
    static_assert(V == 1 || V == sk_pack<T>(), "a pack or one");
    if (V == 1) v[0] = (float)*p;
    else sk_open<T>(*reinterpret_cast<const uint4 *>(p), v);
}

template <int V, typename T> __device__ inline void sk_store(T *p, const float *v)
{
    static_assert(V == 1 || V == sk_pack<T>(), "a pack or one");
    if (V == 1) *p = (T)v[0]; /* to nearest even */
    else *reinterpret_cast<uint4 *>(p) = sk_close<T>(v);
}

/* V elements from place i on, for what is moved a pack at a time; `whole`: they are aligned to
 * their own size, or to 16 bytes if that is less. */
template <int V, typename T> __device__ inline void sk_load_at(const T *p, float *v, bool whole)
{
    constexpr int bytes = V * (int)sizeof(T) < 16 ? V * (int)sizeof(T) : 16;
    struct alignas(bytes) pack {
        T x[bytes / sizeof(T)];
    };
    constexpr int n = bytes / (int)sizeof(T);
#pragma unroll
    for (int i = 0; i < V; i += n) {
        pack x;
        if (whole) x = *reinterpret_cast<const pack *>(p + i);
#pragma unroll
        for (int e = 0; e < n; e++) v[i + e] = (float)(whole ? x.x[e] : p[i + e]);
    }
}

template <int V, typename T> __device__ inline void sk_store_at(T *p, const float *v, bool whole)
{
    constexpr int bytes = V * (int)sizeof(T) < 16 ? V * (int)sizeof(T) : 16;
    struct alignas(bytes) pack {
        T x[bytes / sizeof(T)];
    };
    constexpr int n = bytes / (int)sizeof(T);
#pragma unroll
    for (int i = 0; i < V; i += n) {
        pack x;
#pragma unroll
        for (int e = 0; e < n; e++) x.x[e] = (T)v[i + e];
        if (whole) *reinterpret_cast<pack *>(p + i) = x;
        else
            for (int e = 0; e < n; e++) p[i + e] = x.x[e];
    }
}

/* x[i .. i + V) = v, or += v: rounded once. */
template <int V>
__device__ inline void sk_put_all(sk_any x, int64_t i, float *v, bool add, bool whole)
{
    float old[V] = {};
    if (x.type == SK_BF16) {
        if (add) sk_load_at<V>((const __nv_bfloat16 *)x.data + i, old, whole);
        for (int e = 0; e < V; e++) v[e] += old[e];
        sk_store_at<V>((__nv_bfloat16 *)x.data + i, v, whole);
    } else if (x.type == SK_F16) {
        if (add) sk_load_at<V>((const __half *)x.data + i, old, whole);
        for (int e = 0; e < V; e++) v[e] += old[e];
        sk_store_at<V>((__half *)x.data + i, v, whole);
    } else {
        if (add) sk_load_at<V>((const float *)x.data + i, old, whole);
        for (int e = 0; e < V; e++) v[e] += old[e];
        sk_store_at<V>((float *)x.data + i, v, whole);
    }
}

/* Do rows of n elements begin at 16 bytes, each of them? */
static inline bool sk_cuda_rows(const sk_view *v, int64_t n)
{
    return !((uintptr_t)v->data % 16) && !((size_t)n * sk_dtype_size(v->type) % 16);
}

/* May rows of n elements of operand 0's type be moved in packs?  Looks at all inputs and at
 * output 0. */
static inline bool sk_cuda_packs(const sk_args *a, int64_t n)
{
    uintptr_t bits = (uintptr_t)a->out[0].data;
    for (int i = 0; i < a->n_in; i++) bits |= (uintptr_t)a->in[i].data;
    return !(bits % 16) && !((size_t)n * sk_dtype_size(a->in[0].type) % 16);
}

/* Blocks for so many things; kernels go round where there are more. */
static inline unsigned sk_cuda_blocks(int64_t n, int64_t in_block)
{
    int64_t blocks = (n + in_block - 1) / in_block;
    return (unsigned)(blocks > INT32_MAX ? INT32_MAX : blocks);
}

/* After <<< >>>: did the launch itself go well?  How the work goes is told by the stream. */
static inline sk_status sk_cuda_launched(const char *op)
{
    cudaError_t e = cudaGetLastError();
    if (e == cudaSuccess) return SK_OK;
    return sk_fail(SK_EIO, "%s: the CUDA kernel could not be launched: %s (%s)", op,
                   cudaGetErrorString(e), cudaGetErrorName(e));
}

#endif
