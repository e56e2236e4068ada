/* sum_squares.cu - the GPU half of sum_squares.c: sums of columns (kernel/cuda/column_sums.h). */
#include "kernel/cuda/ordered_reduce.h"

template <typename T> struct squares {
    enum { SUMS = 1, DEPTH = 4 };
    const T *x;
    template <int V> struct row {
        float x[V];
    };
    template <int V> __device__ void load(int64_t r, int64_t c, int64_t n, row<V> *to) const
    {
        sk_load<V>(x + r * n + c, to->x);
    }
    template <int V> __device__ void add(const row<V> &from, float (*sum)[V]) const
    {
        for (int e = 0; e < V; e++) sum[0][e] = fmaf(from.x[e], from.x[e], sum[0][e]);
    }
};

template <typename T> static sk_status typed(const sk_args *a, const sk_launch *l)
{
    const sk_view *x = &a->in[0];
    int64_t n = sk_count(&a->out[0]), rows = n ? sk_count(x) / n : 0;
    squares<T> f = {(const T *)x->data};
    sk_columns_out out = {{sk_any_of(&a->out[0])}, a->add};
    int goes = x->n - a->out[0].n;
    if (goes && x->cells[0])
        return sk_ordered_columns("sum_squares", f, sk_borders_of(x, 0, sk_span(x, 1, goes)), n,
                                  out, l);
    if (sk_cuda_rows(x, n))
        return sk_columns<squares<T>, sk_pack<T>()>("sum_squares", f, rows, n, out, l);
    return sk_columns<squares<T>, 1>("sum_squares", f, rows, n, out, l);
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return SK_FLOAT(a->in[0].type, typed<T>(a, l));
}

extern "C" const sk_kernel sk_kernel_sum_squares = {"sum_squares", launch};
