/* topk.cu - the GPU half of topk.c: a block of threads for each row.  It counts bits as there, in
 * shared memory, and then goes through the row in its order, so that indices rise. */
#include "kernel/cuda/codec_rows.h"

enum { THREADS = 256, WARPS = THREADS / 32, BINS = 2048 };

typedef struct top { /* of a row: k elements, indices of `wide` bytes */
    int64_t k;
    int wide;
} top;

typedef struct top_state { /* what the threads of a block share */
    unsigned bins[BINS];
    unsigned above, left; /* the upper bits of the k-th largest; how many of k are not above them */
    unsigned warps[WARPS];
} top_state;

template <typename T>
static __device__ inline float element(const sk_code_job &j, int64_t at, float scale)
{
    float x = sk_wide(((const T *)j.x)[at]);
    return j.error && !j.adds ? sk_code_owed(x, j.error[at], scale) : x;
}

static __device__ inline unsigned size_of(float x) { return __float_as_uint(x) & 0x7fffffffu; }

/* The next `width` bits of the k-th largest. */
template <typename T>
static __device__ void narrow(const sk_code_job &j, int64_t row, int shift, int width, float scale,
                              top_state *s)
{
    for (int b = (int)threadIdx.x; b < BINS; b += THREADS) s->bins[b] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < j.row; i += THREADS) {
        unsigned bits = size_of(element<T>(j, row * j.row + i, scale)) >> shift;
        if (bits >> width == s->above) atomicAdd(&s->bins[bits & ((1u << width) - 1)], 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        int b = (1 << width) - 1;
        for (; s->bins[b] < s->left; b--) s->left -= s->bins[b];
        s->above = s->above << width | (unsigned)b;
    }
    __syncthreads();
}

/* How many threads before this one have it; *all: how many have it. */
static __device__ inline unsigned before(bool has, unsigned *all, top_state *s)
{
    unsigned votes = __ballot_sync(~0u, has), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned n = __popc(votes & ((1u << lane) - 1));
    *all = 0;
    if (lane == 0) s->warps[warp] = (unsigned)__popc(votes);
    __syncthreads();
    for (unsigned w = 0; w < WARPS; w++) {
        if (w < warp) n += s->warps[w];
        *all += s->warps[w];
    }
    __syncthreads();
    return n;
}

template <typename T>
static __device__ void send(const sk_code_job &j, const top &t, int64_t row, float scale,
                            top_state *s)
{
    uint8_t *to = j.code + row * j.bytes;
    int64_t kept = 0, ties = 0;
    float unscale = __fdiv_rn(1.0f, scale);
    for (int64_t from = 0; from < j.row; from += THREADS) {
        int64_t i = from + threadIdx.x, at = row * j.row + i;
        bool here = i < j.row;
        float x = here ? element<T>(j, at, scale) : 0;
        unsigned all, tied = here && size_of(x) == s->above;
        bool goes = ties + before(tied, &all, s) < s->left && tied;
        ties += all;
        goes = goes || (here && size_of(x) > s->above);
        int64_t place = kept + before(goes, &all, s);
        kept += all;
        if (goes) {
            sk_bytes_put(to + place * t.wide, (unsigned)i, t.wide);
            sk_bytes_put(to + t.k * t.wide + 4 * place, __float_as_uint(x), 4);
        }
        if (here && j.error)
            j.error[at] = __fmaf_rn(unscale, __fsub_rn(x, goes ? x : 0), j.adds ? j.error[at] : 0);
    }
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    encode_top(const __grid_constant__ sk_code_job j, const __grid_constant__ top t)
{
    __shared__ top_state s;
    float scale = j.error && *j.loss_scale > 0 ? (float)*j.loss_scale : 1;
    for (int64_t row = blockIdx.x; row < j.rows; row += gridDim.x) {
        if (threadIdx.x == 0) s.above = 0, s.left = (unsigned)t.k;
        __syncthreads();
        narrow<T>(j, row, 20, 11, scale, &s);
        narrow<T>(j, row, 9, 11, scale, &s);
        narrow<T>(j, row, 0, 9, scale, &s);
        send<T>(j, t, row, scale, &s);
        __syncthreads();
    }
}

/* Element i of an encoded row. */
static __device__ inline float find(const uint8_t *from, const top &t, int64_t i)
{
    int64_t low = 0, high = t.k;
    while (low < high) {
        int64_t mid = low + (high - low) / 2;
        if ((int64_t)sk_bytes_get(from + mid * t.wide, t.wide) < i) low = mid + 1;
        else high = mid;
    }
    if (low == t.k || (int64_t)sk_bytes_get(from + low * t.wide, t.wide) != i) return 0;
    return __uint_as_float(sk_bytes_get(from + t.k * t.wide + 4 * low, 4));
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    decode_top(const __grid_constant__ sk_code_job j, const __grid_constant__ top t)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    for (; at < j.rows * j.row; at += (int64_t)gridDim.x * THREADS) {
        int64_t row = at / j.row;
        float sum = 0;
        for (int64_t p = 0; p < j.pieces; p++) {
            float y = find(j.code + (p * j.rows + row) * j.bytes, t, at % j.row);
            sum = p ? __fadd_rn(sum, y) : y;
        }
        sk_thin(sum, (T *)j.x + at);
    }
}

static top top_of(const sk_code_job *j)
{
    int wide = j->row <= 65536 ? 2 : 4;
    return top{j->bytes / (wide + 4), wide};
}

static unsigned grid_of(int64_t n) { return (unsigned)(n < INT32_MAX ? n : INT32_MAX); }

static sk_status encode(const sk_code_job *j, void *stream)
{
    top t = top_of(j);
    unsigned grid = grid_of(j->rows);
    cudaStream_t on = (cudaStream_t)stream;
    SK_TRY(sk_code_takes("topk", j->type));
    if (!j->rows || !j->row) return SK_OK;
    if (j->type == SK_BF16) encode_top<__nv_bfloat16><<<grid, THREADS, 0, on>>>(*j, t);
    else if (j->type == SK_F16) encode_top<__half><<<grid, THREADS, 0, on>>>(*j, t);
    else encode_top<float><<<grid, THREADS, 0, on>>>(*j, t);
    return sk_code_launched("topk");
}

static sk_status decode(const sk_code_job *j, void *stream)
{
    top t = top_of(j);
    unsigned grid = grid_of((j->rows * j->row + THREADS - 1) / THREADS);
    cudaStream_t on = (cudaStream_t)stream;
    SK_TRY(sk_code_takes("topk", j->type));
    if (!j->rows || !j->row) return SK_OK;
    if (j->type == SK_BF16) decode_top<__nv_bfloat16><<<grid, THREADS, 0, on>>>(*j, t);
    else if (j->type == SK_F16) decode_top<__half><<<grid, THREADS, 0, on>>>(*j, t);
    else decode_top<float><<<grid, THREADS, 0, on>>>(*j, t);
    return sk_code_launched("topk");
}

extern "C" const sk_codec_kernel sk_codec_kernel_topk = {"topk", encode, decode};
