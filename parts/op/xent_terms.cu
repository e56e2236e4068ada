/* xent_terms.cu - the GPU half of xent_terms.c: rows are read once, in packs.  Threads add up what
 * they have, then meet in a fixed order.
 *
 * In canonical order a warp has a reduction block of a row, its lanes counted from the first
 * element of the block. */
#include "kernel/cuda/ordered_reduce.h"
#include "kernel/cuda/cuda_rows.h"

/* Label smoothing: t has `own` of the target's logit and `even` of all. */
typedef struct smoothing {
    float own, even;
} smoothing;

static smoothing smoothing_of(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    double e = a->validation ? 0 : a->attr[0];
    return smoothing{(float)(1 - e), (float)(e / (double)v->full[v->n - 1])};
}

template <typename T, int V, int WARPS, bool SMOOTH>
static __global__ void __launch_bounds__(32 * SK_ROW_WARPS)
    terms(const T *__restrict__ x, sk_any m, const int32_t *__restrict__ target, sk_any s, sk_any t,
          int64_t rows, int64_t n, int64_t first, smoothing f)
{
    for (SK_EACH_ROW(r, rows)) {
        float sum = 0, all = 0, shift = sk_get(m, r);
        sk_rows<T, V, WARPS, 1> row({x + r * n}, n);
        row.pass([&](int64_t, const float(*v)[V], int count) {
#pragma unroll
            for (int e = 0; e < count; e++) {
                sum += sk_row_exp<T>(v[0][e] - shift);
                if (SMOOTH) all += v[0][e];
            }
        });
        sum = sk_row_sum<WARPS>(sum);
        if (SMOOTH) all = sk_row_sum<WARPS>(all);
        if (threadIdx.x) continue;
        int64_t at = target[r] - first;
        float own = at >= 0 && at < n ? (float)x[r * n + at] : 0;
        sk_put(s, r, sum);
        sk_put(t, r, SMOOTH ? f.own * own + f.even * all : own);
    }
}

static __global__ void __launch_bounds__(32 * SK_ROW_WARPS)
    terms_by_cells(const float *__restrict__ x, const float *m, const int32_t *target, float *s,
                   float *t, int64_t rows, int64_t n, int64_t first,
                   const __grid_constant__ sk_borders cells, smoothing f)
{
    __shared__ float part[SK_REDUCTION_BLOCKS_MAX], even[SK_REDUCTION_BLOCKS_MAX];
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        const float *row = x + r * n;
        int64_t at = target[r] - first;
        for (int c = (int)threadIdx.y; c < cells.n; c += SK_ROW_WARPS) {
            float sum = 0, all = 0;
            for (int64_t i = cells.at[c] + threadIdx.x; i < cells.at[c + 1]; i += 32) {
                sum = __fadd_rn(sum, expf(row[i] - m[r]));
                all = __fadd_rn(all, row[i]);
            }
            sum = sk_row_sum<1>(sum);
            all = __fmul_rn(f.even, sk_row_sum<1>(all));
            if (at >= cells.at[c] && at < cells.at[c + 1])
                all = __fadd_rn(all, __fmul_rn(f.own, row[at]));
            if (threadIdx.x == 0) part[c] = sum, even[c] = all;
        }
        __syncthreads();
        if (threadIdx.x == 0 && threadIdx.y == 0) {
            float own = at >= 0 && at < n ? row[at] : 0;
            s[r] = sk_ordered_sum(part, 1, cells.n);
            if (f.even != 0) own = sk_ordered_sum(even, 1, cells.n);
            t[r] = own + 0.0f; /* no -0: others' zeros may join it */
        }
        __syncthreads();
    }
}

static sk_status by_cells(const sk_args *a, cudaStream_t s)
{
    const sk_view *v = &a->in[0];
    int d = v->n - 1;
    int64_t rows = sk_count(&a->in[1]);
    if (!rows) return SK_OK;
    terms_by_cells<<<sk_cuda_blocks(rows, 1), dim3(32, SK_ROW_WARPS), 0, s>>>(
        (const float *)v->data, (const float *)a->in[1].data, (const int32_t *)a->in[2].data,
        (float *)a->out[0].data, (float *)a->out[1].data, rows, v->size[d], v->at[d],
        sk_borders_of(v, d, 1), smoothing_of(a));
    return sk_cuda_launched("xent_terms");
}

template <typename T, int V, int WARPS> static sk_status start(const sk_args *a, cudaStream_t s)
{
    const sk_view *v = &a->in[0];
    int64_t rows = sk_count(&a->in[1]);
    smoothing f = smoothing_of(a);
    auto kernel = f.even != 0 ? terms<T, V, WARPS, true> : terms<T, V, WARPS, false>;
    kernel<<<sk_row_grid<WARPS>(rows), sk_row_block<WARPS>(), 0, s>>>(
        (const T *)v->data, sk_any_of(&a->in[1]), (const int32_t *)a->in[2].data,
        sk_any_of(&a->out[0]), sk_any_of(&a->out[1]), rows, v->size[v->n - 1], v->at[v->n - 1], f);
    return sk_cuda_launched("xent_terms");
}

template <typename T> static sk_status run(const sk_args *a, cudaStream_t s)
{
    if (!sk_count(&a->in[1])) return SK_OK;
    return SK_ROW_CALL(start, T, true, a->in[0].size[a->in[0].n - 1], a, s);
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    if (sk_args_canonical(a)) return by_cells(a, (cudaStream_t)l->stream);
    return SK_FLOAT(a->in[0].type, run<T>(a, (cudaStream_t)l->stream));
}

extern "C" const sk_kernel sk_kernel_xent_terms = {"xent_terms", launch};
