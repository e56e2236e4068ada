/* xent_terms_grad.cu - the GPU half of xent_terms_grad.c: each pack is read, and written, perhaps
 * in its own place.  Whether the target is in it is asked once a pack. */
#include "kernel/cuda/cuda_rows.h"

/* Label smoothing: the target has `own` of dt, and every word `even` of it. */
typedef struct smoothing {
    float own, even;
} smoothing;

static smoothing smoothing_of(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    return smoothing{(float)(1 - a->attr[0]), (float)(a->attr[0] / (double)v->full[v->n - 1])};
}

template <typename T, int V, int WARPS, bool SMOOTH>
static __global__ void __launch_bounds__(32 * SK_ROW_WARPS)
    terms_grad(const T *x, sk_any m, const int32_t *__restrict__ target, sk_any ds, sk_any dt,
               T *dx, int64_t rows, int64_t n, int64_t first, smoothing f)
{
    for (SK_EACH_ROW(r, rows)) {
        float shift = sk_get(m, r), scale = sk_get(ds, r), more = sk_get(dt, r), even = 0;
        if (SMOOTH) even = f.even * more, more *= f.own;
        int64_t at = target[r] - first;
        sk_rows<T, V, WARPS, 1> row({x + r * n}, n);
        row.pass([&](int64_t i, const float(*v)[V], int count) {
            float to[V];
#pragma unroll
            for (int e = 0; e < count; e++) {
                to[e] = sk_row_exp<T>(v[0][e] - shift) * scale;
                if (SMOOTH) to[e] += even;
            }
            if (at >= i && at < i + count) {
#pragma unroll
                for (int e = 0; e < count; e++)
                    if (i + e == at) to[e] += more;
            }
            sk_row_put<V>(dx + r * n + i, to, count);
        });
    }
}

/* In canonical order: every element alike, wherever its row begins.  The product is rounded. */
static __global__ void __launch_bounds__(32 * SK_ROW_WARPS)
    each_alike(const float *x, const float *m, const int32_t *target, const float *ds,
               const float *dt, float *dx, int64_t rows, int64_t n, int64_t first, smoothing f)
{
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        float shift = m[r], scale = ds[r], more = __fmul_rn(f.own, dt[r]);
        float even = __fmul_rn(f.even, dt[r]);
        int64_t at = target[r] - first;
        for (int64_t i = threadIdx.x; i < n; i += 32 * SK_ROW_WARPS) {
            float to = __fmul_rn(expf(x[r * n + i] - shift), scale);
            if (f.even != 0) to = __fadd_rn(to, even);
            dx[r * n + i] = i == at ? __fadd_rn(to, more) : to;
        }
    }
}

static sk_status canonical(const sk_args *a, cudaStream_t s)
{
    const sk_view *v = &a->in[0];
    int64_t rows = sk_count(&a->in[1]);
    if (!sk_count(v)) return SK_OK;
    each_alike<<<sk_cuda_blocks(rows, 1), 32 * SK_ROW_WARPS, 0, s>>>(
        (const float *)v->data, (const float *)a->in[1].data, (const int32_t *)a->in[2].data,
        (const float *)a->in[3].data, (const float *)a->in[4].data, (float *)a->out[0].data, rows,
        v->size[v->n - 1], v->at[v->n - 1], smoothing_of(a));
    return sk_cuda_launched("xent_terms_grad");
}

template <typename T, int V, int WARPS> static sk_status start(const sk_args *a, cudaStream_t s)
{
    const sk_view *v = &a->in[0];
    int64_t rows = sk_count(&a->in[1]);
    smoothing f = smoothing_of(a);
    auto kernel = f.even != 0 ? terms_grad<T, V, WARPS, true> : terms_grad<T, V, WARPS, false>;
    kernel<<<sk_row_grid<WARPS>(rows), sk_row_block<WARPS>(), 0, s>>>(
        (const T *)v->data, sk_any_of(&a->in[1]), (const int32_t *)a->in[2].data,
        sk_any_of(&a->in[3]), sk_any_of(&a->in[4]), (T *)a->out[0].data, rows, v->size[v->n - 1],
        v->at[v->n - 1], f);
    return sk_cuda_launched("xent_terms_grad");
}

template <typename T> static sk_status run(const sk_args *a, cudaStream_t s)
{
    const sk_view *v = &a->in[0];
    if (!sk_count(v)) return SK_OK;
    return SK_ROW_CALL(start, T, sk_cuda_alike(v->data, a->out[0].data), v->size[v->n - 1], a, s);
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    if (sk_args_canonical(a)) return canonical(a, (cudaStream_t)l->stream);
    return SK_FLOAT(a->in[0].type, run<T>(a, (cudaStream_t)l->stream));
}

extern "C" const sk_kernel sk_kernel_xent_terms_grad = {"xent_terms_grad", launch};
