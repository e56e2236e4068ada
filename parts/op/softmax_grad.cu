/* softmax_grad.cu - the GPU half of softmax_grad.c: of a row up to 8,192 elements of y and dy stay
 * in registers while their product is summed; dx may lie where dy did. */
#include "kernel/cuda/cuda_rows.h"

template <typename T, int V, int WARPS>
static __global__ void __launch_bounds__(32 * SK_ROW_WARPS)
    soft_grad(const T *y, const T *dy, T *dx, int64_t rows, int64_t n, float scale)
{
    for (SK_EACH_ROW(r, rows)) {
        float sum = 0;
        sk_rows<T, V, WARPS, 2> row({y + r * n, dy + r * n}, n);
        row.hold();
        row.walk([&](int64_t, const float(*v)[V], int count) {
#pragma unroll
            for (int e = 0; e < count; e++) sum += v[0][e] * v[1][e];
        });
        sum = sk_row_sum<WARPS>(sum);
        row.walk([&](int64_t i, const float(*v)[V], int count) {
            float to[V];
#pragma unroll
            for (int e = 0; e < count; e++) to[e] = scale * v[0][e] * (v[1][e] - sum);
            sk_row_put<V>(dx + r * n + i, to, count);
        });
    }
}

template <typename T, int V, int WARPS> static sk_status start(const sk_args *a, cudaStream_t s)
{
    const sk_view *v = &a->in[0];
    int64_t rows = sk_span(v, 0, v->n - 1);
    soft_grad<T, V, WARPS><<<sk_row_grid<WARPS>(rows), sk_row_block<WARPS>(), 0, s>>>(
        (const T *)v->data, (const T *)a->in[1].data, (T *)a->out[0].data, rows, v->size[v->n - 1],
        (float)a->attr[0]);
    return sk_cuda_launched("softmax_grad");
}

template <typename T> static sk_status run(const sk_args *a, cudaStream_t s)
{
    const sk_view *v = &a->in[0];
    const void *to = a->out[0].data;
    bool alike = sk_cuda_alike(v->data, to) && sk_cuda_alike(a->in[1].data, to) &&
                 sk_row_packs(a, v->size[v->n - 1]);
    if (!sk_count(v)) return SK_OK;
    return SK_ROW_CALL(start, T, alike, v->size[v->n - 1], a, s);
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return SK_FLOAT(a->in[0].type, run<T>(a, (cudaStream_t)l->stream));
}

extern "C" const sk_kernel sk_kernel_softmax_grad = {"softmax_grad", launch};
