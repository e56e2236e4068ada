/* row_max.cu - the GPU half of row_max.c: rows are read once, in packs. */
#include "kernel/cuda/cuda_rows.h"

template <typename T, int V, int WARPS>
static __global__ void __launch_bounds__(32 * SK_ROW_WARPS)
    largest(const T *__restrict__ x, sk_any y, int64_t rows, int64_t n)
{
    for (SK_EACH_ROW(r, rows)) {
        float top = -INFINITY;
        sk_rows<T, V, WARPS, 1> row({x + r * n}, n);
        row.pass([&](int64_t, const float(*v)[V], int count) {
#pragma unroll
            for (int e = 0; e < count; e++) top = fmaxf(top, v[0][e]);
        });
        top = sk_row_most<WARPS>(top);
        if (threadIdx.x == 0) sk_put(y, r, top + 0.0f); /* -0 becomes 0 */
    }
}

template <typename T, int V, int WARPS> static sk_status start(const sk_args *a, cudaStream_t s)
{
    const sk_view *v = &a->in[0];
    int64_t rows = sk_count(&a->out[0]);
    largest<T, V, WARPS><<<sk_row_grid<WARPS>(rows), sk_row_block<WARPS>(), 0, s>>>(
        (const T *)v->data, sk_any_of(&a->out[0]), rows, v->size[v->n - 1]);
    return sk_cuda_launched("row_max");
}

template <typename T> static sk_status run(const sk_args *a, cudaStream_t s)
{
    if (!sk_count(&a->out[0])) return SK_OK;
    return SK_ROW_CALL(start, T, true, a->in[0].size[a->in[0].n - 1], a, s);
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return SK_FLOAT(a->in[0].type, run<T>(a, (cudaStream_t)l->stream));
}

extern "C" const sk_kernel sk_kernel_row_max = {"row_max", launch};
