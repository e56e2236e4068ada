/* layernorm.cu - the GPU half of layernorm.c.
 *
 * A row belongs to one warp, or to eight if it is longer than a warp holds.  Every thread keeps
 * its first 32 elements of the row in registers, so that up to 1,024 elements with one warp and
 * 8,192 with eight cross the memory once; of longer rows the rest is read again for each of the
 * three passes.  Sums are shuffles and then a fixed order of warps: the same bits every time. */
#include "graph/cuda.h"

enum { HELD = 32, MANY = 8, BLOCK = 32 * MANY };

/* The sum of x over the threads of a row. */
template <int WARPS> static __device__ float row_sum(float x)
{
    __shared__ float part[WARPS];
#pragma unroll
    for (int k = 16; k; k /= 2) x += __shfl_xor_sync(~0u, x, k);
    if (WARPS == 1) return x;
    __syncthreads(); /* the sum before this one has been read */
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) x += part[w];
    return x;
}

/* Calls f(place, elements) for what this thread has of a row: from registers, then from memory. */
template <int V, typename T, typename F>
static __device__ void walk(const T *row, int64_t n, int width, float (*held)[V], F f)
{
    int64_t first = (int64_t)threadIdx.x * V;
#pragma unroll
    for (int k = 0; k < HELD / V; k++)
        if (first + k * width < n) f(first + k * width, held[k]);
    for (int64_t i = first + HELD / V * width; i < n; i += width) {
        float v[V];
        sk_load<V>(row + i, v);
        f(i, v);
    }
}

template <typename T, int V, int WARPS>
static __global__ void __launch_bounds__(BLOCK)
    norm(const T *__restrict__ x, const T *__restrict__ w, const T *__restrict__ b,
         T *__restrict__ y, float *__restrict__ mean, float *__restrict__ rstd, int64_t rows,
         int64_t n, float eps)
{
    const int width = WARPS * 32 * V;
    for (int64_t r = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; r < rows;
         r += (int64_t)gridDim.x * blockDim.y) {
        const T *row = x + r * n;
        float held[HELD / V][V], sum = 0, square = 0;
#pragma unroll
        for (int k = 0; k < HELD / V; k++) /* all of them under way before the first is used */
            if ((int64_t)threadIdx.x * V + k * width < n)
                sk_load<V>(row + threadIdx.x * V + k * width, held[k]);
        walk<V>(row, n, width, held, [&](int64_t, const float *v) {
            for (int e = 0; e < V; e++) sum += v[e];
        });
        float m = row_sum<WARPS>(sum) / (float)n;
        walk<V>(row, n, width, held, [&](int64_t, const float *v) {
            for (int e = 0; e < V; e++) square += (v[e] - m) * (v[e] - m);
        });
        float s = 1 / sqrtf(row_sum<WARPS>(square) / (float)n + eps);
        walk<V>(row, n, width, held, [&](int64_t i, const float *v) {
            float scale[V], shift[V], to[V];
            sk_load<V>(w + i, scale);
            sk_load<V>(b + i, shift);
            for (int e = 0; e < V; e++) to[e] = (v[e] - m) * s * scale[e] + shift[e];
            sk_store<V>(y + r * n + i, to);
        });
        if (threadIdx.x == 0) mean[r] = m, rstd[r] = s;
    }
}

template <typename T, int V, int WARPS> static sk_status start(const sk_args *a, cudaStream_t s)
{
    const sk_view *v = &a->in[0];
    int64_t n = v->size[v->n - 1], rows = sk_span(v, 0, v->n - 1);
    dim3 block(32 * WARPS, MANY / WARPS);
    int64_t blocks = (rows + block.y - 1) / block.y;
    if (blocks > INT32_MAX) blocks = INT32_MAX; /* the kernel goes round */
    norm<T, V, WARPS><<<(unsigned)blocks, block, 0, s>>>(
        (const T *)v->data, (const T *)a->in[1].data, (const T *)a->in[2].data, (T *)a->out[0].data,
        (float *)a->out[1].data, (float *)a->out[2].data, rows, n, (float)a->attr[0]);
    return sk_cuda_launched("layernorm");
}

template <typename T> static sk_status run(const sk_args *a, cudaStream_t s)
{
    const sk_view *v = &a->in[0];
    int64_t n = v->size[v->n - 1];
    bool wide = n > 32 * HELD;
    if (!sk_span(v, 0, v->n - 1)) return SK_OK;
    if (sk_cuda_packs(a, n))
        return wide ? start<T, sk_pack<T>(), MANY>(a, s) : start<T, sk_pack<T>(), 1>(a, s);
    return wide ? start<T, 1, MANY>(a, s) : start<T, 1, 1>(a, s);
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    SK_TRY(sk_cuda_types("layernorm", a, 6));
    return SK_FLOAT(a->in[0].type, run<T>(a, (cudaStream_t)l->stream));
}

extern "C" const sk_kernel sk_kernel_layernorm = {"layernorm", launch};
