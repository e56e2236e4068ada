/* cuda_select.h - the GPU half of coll/codec_select.c: a block of threads for each row counts bits
 * as there, in shared memory, and then goes through the row in its order, so that indices rise. */
#ifndef SK_KERNEL_CUDA_SELECT_H
#define SK_KERNEL_CUDA_SELECT_H

#include "kernel/cuda/codec_rows.h"

enum { SK_SELECT_THREADS = 256, SK_SELECT_WARPS = SK_SELECT_THREADS / 32, SK_SELECT_BINS = 2048 };

typedef struct sk_select { /* of a row: room for k units, indices of `wide` bytes */
    int64_t k;
    int wide;
    int head; /* bytes in front: how many are sent; 0: all of k are */
} sk_select;

typedef struct sk_select_state { /* what the threads of a block share */
    unsigned bins[SK_SELECT_BINS];
    unsigned above, left; /* the upper bits of the k-th largest; how many of k are not above them */
    unsigned warps[SK_SELECT_WARPS];
} sk_select_state;

template <typename T>
static __device__ inline float sk_select_element(const sk_code_job &j, int64_t at, float scale)
{
    float x = sk_wide(((const T *)j.x)[at]);
    return j.error && !j.adds ? sk_code_owed(x, j.error[at], scale) : x;
}

static __device__ inline unsigned sk_select_key(float x)
{
    return __float_as_uint(x) & 0x7fffffffu;
}

static __device__ inline float sk_select_scale(const sk_code_job &j)
{
    return j.error && *j.loss_scale > 0 ? (float)*j.loss_scale : 1;
}

/* The next `width` bits of the k-th largest; count(shift, width) adds to the bins. */
template <class F>
static __device__ void sk_select_narrow(sk_select_state *s, int shift, int width, F count)
{
    for (int b = (int)threadIdx.x; b < SK_SELECT_BINS; b += SK_SELECT_THREADS) s->bins[b] = 0;
    __syncthreads();
    count(shift, width);
    __syncthreads();
    if (threadIdx.x == 0) {
        int b = (1 << width) - 1;
        for (; s->bins[b] < s->left; b--) s->left -= s->bins[b];
        s->above = s->above << width | (unsigned)b;
    }
    __syncthreads();
}

static __device__ inline void sk_select_count(sk_select_state *s, unsigned key, int shift,
                                              int width)
{
    unsigned bits = key >> shift;
    if (bits >> width == s->above) atomicAdd(&s->bins[bits & ((1u << width) - 1)], 1u);
}

template <class F> static __device__ void sk_select_kth(sk_select_state *s, int64_t k, F count)
{
    if (threadIdx.x == 0) s->above = 0, s->left = (unsigned)k;
    __syncthreads();
    sk_select_narrow(s, 20, 11, count);
    sk_select_narrow(s, 9, 11, count);
    sk_select_narrow(s, 0, 9, count);
}

/* How many threads before this one have it; *all: how many have it. */
static __device__ inline unsigned sk_select_before(bool has, unsigned *all, sk_select_state *s)
{
    unsigned votes = __ballot_sync(~0u, has), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned n = __popc(votes & ((1u << lane) - 1));
    *all = 0;
    if (lane == 0) s->warps[warp] = (unsigned)__popc(votes);
    __syncthreads();
    for (unsigned w = 0; w < SK_SELECT_WARPS; w++) {
        if (w < warp) n += s->warps[w];
        *all += s->warps[w];
    }
    __syncthreads();
    return n;
}

/* What encoding loses of an element. */
static __device__ inline void sk_select_lose(const sk_code_job &j, int64_t at, float x, bool goes,
                                             float unscale)
{
    if (!j.error) return;
    j.error[at] = __fmaf_rn(unscale, __fsub_rn(x, goes ? x : 0), j.adds ? j.error[at] : 0);
}

/* Elements of keys over `above`, and the first `left` of those equal to it. */
template <typename T>
static __device__ void sk_select_send(const sk_code_job &j, const sk_select &t, int64_t row,
                                      float scale, sk_select_state *s)
{
    uint8_t *to = j.code + row * j.bytes + t.head;
    int64_t kept = 0, ties = 0;
    float unscale = __fdiv_rn(1.0f, scale);
    for (int64_t from = 0; from < j.row; from += SK_SELECT_THREADS) {
        int64_t i = from + threadIdx.x, at = row * j.row + i;
        bool here = i < j.row;
        float x = here ? sk_select_element<T>(j, at, scale) : 0;
        unsigned all, tied = here && sk_select_key(x) == s->above;
        bool goes = ties + sk_select_before(tied, &all, s) < s->left && tied;
        ties += all;
        goes = goes || (here && sk_select_key(x) > s->above);
        int64_t place = kept + sk_select_before(goes, &all, s);
        kept += all;
        goes = goes && place < t.k;
        if (goes) {
            sk_bytes_put(to + place * t.wide, (unsigned)i, t.wide);
            sk_bytes_put(to + t.k * t.wide + 4 * place, __float_as_uint(x), 4);
        }
        if (here) sk_select_lose(j, at, x, goes, unscale);
    }
    if (!t.head) return;
    kept = kept < t.k ? kept : t.k;
    if (threadIdx.x == 0) sk_bytes_put(to - t.head, (unsigned)kept, t.head);
    for (int64_t i = kept + threadIdx.x; i < t.k; i += SK_SELECT_THREADS) {
        sk_bytes_put(to + i * t.wide, 0, t.wide);
        sk_bytes_put(to + t.k * t.wide + 4 * i, 0, 4);
    }
}

/* Which of n rising indices is i; n: none is. */
static __device__ inline int64_t sk_select_find(const uint8_t *from, int wide, int64_t n, int64_t i)
{
    int64_t low = 0, high = n;
    while (low < high) {
        int64_t mid = low + (high - low) / 2;
        if ((int64_t)sk_bytes_get(from + mid * wide, wide) < i) low = mid + 1;
        else high = mid;
    }
    return low < n && (int64_t)sk_bytes_get(from + low * wide, wide) == i ? low : n;
}

/* Element i of an encoded row of elements. */
struct sk_selected_elements {
    static __device__ float get(const uint8_t *from, const sk_select &t, int64_t i)
    {
        int64_t n = t.k;
        if (t.head) n = min(t.k, (int64_t)sk_bytes_get(from, t.head));
        from += t.head;
        int64_t at = sk_select_find(from, t.wide, n, i);
        return at < n ? __uint_as_float(sk_bytes_get(from + t.k * t.wide + 4 * at, 4)) : 0;
    }
};

template <class C, typename T>
static __global__ void __launch_bounds__(SK_SELECT_THREADS)
    sk_select_decode(const __grid_constant__ sk_code_job j, const __grid_constant__ sk_select t)
{
    int64_t at = (int64_t)blockIdx.x * SK_SELECT_THREADS + threadIdx.x;
    for (; at < j.rows * j.row; at += (int64_t)gridDim.x * SK_SELECT_THREADS) {
        int64_t row = at / j.row;
        float sum = 0;
        for (int64_t p = 0; p < j.pieces; p++) {
            float y = C::get(j.code + (p * j.rows + row) * j.bytes, t, at % j.row);
            sum = p ? __fadd_rn(sum, y) : y;
        }
        sk_thin(sum, (T *)j.x + at);
    }
}

/* For each row, whatever the element type: C::encode<T>(job, select, row, scale, state). */
template <class C, typename T>
static __global__ void __launch_bounds__(SK_SELECT_THREADS)
    sk_select_encode(const __grid_constant__ sk_code_job j, const __grid_constant__ sk_select t)
{
    __shared__ sk_select_state s;
    float scale = sk_select_scale(j);
    for (int64_t row = blockIdx.x; row < j.rows; row += gridDim.x) {
        C::template encode<T>(j, t, row, scale, &s);
        __syncthreads();
    }
}

static inline unsigned sk_select_grid(int64_t n)
{
    return (unsigned)(n < INT32_MAX ? n : INT32_MAX);
}

template <class C>
static sk_status sk_select_encode_all(const char *name, const sk_code_job *j, sk_select t,
                                      void *stream)
{
    unsigned grid = sk_select_grid(j->rows), block = SK_SELECT_THREADS;
    cudaStream_t on = (cudaStream_t)stream;
    SK_TRY(sk_code_takes(name, j->type));
    if (!j->rows || !j->row) return SK_OK;
    if (j->type == SK_BF16) sk_select_encode<C, __nv_bfloat16><<<grid, block, 0, on>>>(*j, t);
    else if (j->type == SK_F16) sk_select_encode<C, __half><<<grid, block, 0, on>>>(*j, t);
    else sk_select_encode<C, float><<<grid, block, 0, on>>>(*j, t);
    return sk_code_launched(name);
}

template <class C>
static sk_status sk_select_decode_all(const char *name, const sk_code_job *j, sk_select t,
                                      void *stream)
{
    unsigned block = SK_SELECT_THREADS,
             grid = sk_select_grid((j->rows * j->row + block - 1) / block);
    cudaStream_t on = (cudaStream_t)stream;
    SK_TRY(sk_code_takes(name, j->type));
    if (!j->rows || !j->row) return SK_OK;
    if (j->type == SK_BF16) sk_select_decode<C, __nv_bfloat16><<<grid, block, 0, on>>>(*j, t);
    else if (j->type == SK_F16) sk_select_decode<C, __half><<<grid, block, 0, on>>>(*j, t);
    else sk_select_decode<C, float><<<grid, block, 0, on>>>(*j, t);
    return sk_code_launched(name);
}

#endif
