/* layernorm.cu - the GPU half of layernorm.c: three walks over a row that threads hold, for the
 * mean, the variance and the result.  A warp holds it (kernel/cuda/row_warp.h), or where it is long
 * or lies askew, more of them do (kernel/cuda/row.h). */
#include "kernel/cuda/row.h"
#include "kernel/cuda/row_warp.h"

template <typename T, int P>
static __global__ void __launch_bounds__(32 * SK_WARPS)
    by_warps(const T *__restrict__ x, const T *__restrict__ w, const T *__restrict__ b, T *y,
             sk_any mean, sk_any rstd, int64_t rows, int n, float eps)
{
    constexpr int V = sk_pack<T>();
    sk_warp_rows<T, P>(x, rows, n, [&](int64_t r, const sk_held<T, P> &row) {
        float sum = 0, square = 0;
        row.each(n, [&](int, const float *v) {
            for (int e = 0; e < V; e++) sum += v[e];
        });
        float m = sk_warp_sum(sum) / (float)n;
        row.each(n, [&](int, const float *v) {
            for (int e = 0; e < V; e++) square += (v[e] - m) * (v[e] - m);
        });
        float s = 1 / sqrtf(sk_warp_sum(square) / (float)n + eps);
        row.each(n, [&](int at, const float *v) {
            float scale[V], shift[V], to[V];
            sk_load<V>(w + at, scale);
            sk_load<V>(b + at, shift);
            for (int e = 0; e < V; e++) to[e] = (v[e] - m) * s * scale[e] + shift[e];
            sk_store<V>(y + r * n + at, to);
        });
        if (threadIdx.x == 0) sk_put(mean, r, m), sk_put(rstd, r, s);
    });
}

template <typename T, int P> static sk_status warps(const sk_args *a, cudaStream_t s)
{
    const sk_view *v = &a->in[0];
    int64_t n = v->size[v->n - 1], rows = sk_span(v, 0, v->n - 1);
    by_warps<T, P><<<sk_warp_grid(rows), dim3(32, SK_WARPS), 0, s>>>(
        (const T *)v->data, (const T *)a->in[1].data, (const T *)a->in[2].data, (T *)a->out[0].data,
        sk_any_of(&a->out[1]), sk_any_of(&a->out[2]), rows, (int)n, (float)a->attr[0]);
    return sk_cuda_launched("layernorm");
}

template <typename T, int V, int WARPS>
static __global__ void __launch_bounds__(SK_ROW_BLOCK)
    norm(const T *__restrict__ x, const T *__restrict__ w, const T *__restrict__ b,
         T *__restrict__ y, sk_any mean, sk_any rstd, int64_t rows, int64_t n, float eps)
{
    for (int64_t r = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; r < rows;
         r += (int64_t)gridDim.x * blockDim.y) {
        const T *row = x + r * n;
        float held[SK_ROW_HELD / V][V], sum = 0, square = 0;
        sk_row_hold<V, WARPS>(row, n, held);
        sk_row_walk<V, WARPS>(row, n, held, [&](int64_t, const float *v) {
            for (int e = 0; e < V; e++) sum += v[e];
        });
        float m = sk_row_sum<WARPS>(sum) / (float)n;
        sk_row_walk<V, WARPS>(row, n, held, [&](int64_t, const float *v) {
            for (int e = 0; e < V; e++) square += (v[e] - m) * (v[e] - m);
        });
        float s = 1 / sqrtf(sk_row_sum<WARPS>(square) / (float)n + eps);
        sk_row_walk<V, WARPS>(row, n, held, [&](int64_t i, const float *v) {
            float scale[V], shift[V], to[V];
            sk_load<V>(w + i, scale);
            sk_load<V>(b + i, shift);
            for (int e = 0; e < V; e++) to[e] = (v[e] - m) * s * scale[e] + shift[e];
            sk_store<V>(y + r * n + i, to);
        });
        if (threadIdx.x == 0) sk_put(mean, r, m), sk_put(rstd, r, s);
    }
}

template <typename T, int V, int WARPS> static sk_status start(const sk_args *a, cudaStream_t s)
{
    const sk_view *v = &a->in[0];
    int64_t n = v->size[v->n - 1], rows = sk_span(v, 0, v->n - 1);
    norm<T, V, WARPS><<<sk_row_blocks(rows, WARPS), dim3(32 * WARPS, SK_ROW_MANY / WARPS), 0, s>>>(
        (const T *)v->data, (const T *)a->in[1].data, (const T *)a->in[2].data, (T *)a->out[0].data,
        sk_any_of(&a->out[1]), sk_any_of(&a->out[2]), rows, n, (float)a->attr[0]);
    return sk_cuda_launched("layernorm");
}

template <typename T> static sk_status run(const sk_args *a, cudaStream_t s)
{
    const sk_view *v = &a->in[0];
    int64_t n = v->size[v->n - 1];
    bool wide = n > 32 * SK_ROW_HELD;
    if (!sk_span(v, 0, v->n - 1)) return SK_OK;
    int packs = sk_warp_packs<T>(n);
    if (sk_cuda_packs(a, n) && packs) return SK_WARP_CALL(packs, warps<T, P>(a, s));
    if (sk_cuda_packs(a, n))
        return wide ? start<T, sk_pack<T>(), SK_ROW_MANY>(a, s) : start<T, sk_pack<T>(), 1>(a, s);
    return wide ? start<T, 1, SK_ROW_MANY>(a, s) : start<T, 1, 1>(a, s);
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return SK_FLOAT(a->in[0].type, run<T>(a, (cudaStream_t)l->stream));
}

extern "C" const sk_kernel sk_kernel_layernorm = {"layernorm", launch};
