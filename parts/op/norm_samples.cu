/* norm_samples.cu - the GPU half of norm_samples.c (kernel/cuda/sample_columns.h). */
#include "kernel/cuda/sample_columns.h"

template <typename T> struct scaled {
    const T *x, *dy;
    sk_any mean, rstd;
    int64_t cols;
    bool centred;
    __device__ float operator()(int64_t r, int64_t c) const
    {
        float m = centred ? sk_get(mean, r) : 0, k = sk_get(rstd, r);
        return (float)dy[r * cols + c] * (((float)x[r * cols + c] - m) * k);
    }
};

template <typename T> static sk_status typed(const sk_args *a, const sk_launch *l)
{
    const sk_view *v = &a->in[0];
    int64_t cols = v->size[v->n - 1];
    scaled<T> f = {(const T *)v->data,
                   (const T *)a->in[3].data,
                   sk_any_of(&a->in[1]),
                   sk_any_of(&a->in[2]),
                   cols,
                   a->attr[0] == 0};
    return sk_sum_sample_columns("norm_samples", f, v->size[0], sk_span(v, 1, v->n - 1), cols,
                                 sk_any_of(&a->out[0]), false, l);
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return SK_FLOAT(a->in[0].type, typed<T>(a, l));
}

extern "C" const sk_kernel sk_kernel_norm_samples = {"norm_samples", launch};
