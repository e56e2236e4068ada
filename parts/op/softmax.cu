/* softmax.cu - the GPU half of softmax.c: a row of up to 8,192 elements stays in registers while
 * its maximum and its sum are found, and may be written in its own place. */
#include "kernel/cuda/cuda_rows.h"

typedef struct job {
    int64_t rows, n, in_square, first; /* rows of the last two dims; the logical row of the first */
    float scale;
    bool causal;
} job;

template <typename T, int V, int WARPS>
static __global__ void __launch_bounds__(32 * SK_ROW_WARPS) soft(const T *x, T *y, job j)
{
    for (SK_EACH_ROW(r, j.rows)) {
        int64_t sees = j.causal ? j.first + r % j.in_square + 1 : j.n;
        float top = -INFINITY, sum = 0;
        sk_rows<T, V, WARPS, 1> row({x + r * j.n}, j.n);
        row.hold();
        row.walk([&](int64_t i, const float(*v)[V], int count) {
#pragma unroll
            for (int e = 0; e < count; e++)
                if (i + e < sees) top = fmaxf(top, v[0][e] * j.scale);
        });
        top = sk_row_most<WARPS>(top);
        row.walk([&](int64_t i, const float(*v)[V], int count) {
#pragma unroll
            for (int e = 0; e < count; e++)
                if (i + e < sees) sum += sk_row_exp<T>(v[0][e] * j.scale - top);
        });
        float part = 1 / sk_row_sum<WARPS>(sum);
        row.walk([&](int64_t i, const float(*v)[V], int count) {
            float to[V];
#pragma unroll
            for (int e = 0; e < count; e++)
                to[e] = i + e < sees ? sk_row_exp<T>(v[0][e] * j.scale - top) * part : 0;
            sk_row_put<V>(y + r * j.n + i, to, count);
        });
    }
}

template <typename T, int V, int WARPS>
static sk_status start(const sk_args *a, const job &j, cudaStream_t s)
{
    soft<T, V, WARPS><<<sk_row_grid<WARPS>(j.rows), sk_row_block<WARPS>(), 0, s>>>(
        (const T *)a->in[0].data, (T *)a->out[0].data, j);
    return sk_cuda_launched("softmax");
}

template <typename T> static sk_status run(const sk_args *a, cudaStream_t s)
{
    const sk_view *v = &a->in[0];
    int k = v->n;
    job j = {sk_span(v, 0, k - 1), v->size[k - 1],    v->size[k - 2],
             v->at[k - 2],         (float)a->attr[0], a->attr[1] != 0};
    bool alike = sk_cuda_alike(v->data, a->out[0].data) && sk_row_packs(a, j.n);
    if (!sk_count(v)) return SK_OK;
    return SK_ROW_CALL(start, T, alike, j.n, a, j, s);
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return SK_FLOAT(a->in[0].type, run<T>(a, (cudaStream_t)l->stream));
}

extern "C" const sk_kernel sk_kernel_softmax = {"softmax", launch};
