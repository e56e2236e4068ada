/* norm_samples.cu - the GPU half of norm_samples.c: a thread has a sample and a column. */
#include "kernel/cuda/cuda.h"

enum { BLOCK = 256 };

template <typename T>
static __global__ void __launch_bounds__(BLOCK)
    add_rows(const T *x, const T *dy, sk_any mean, sk_any rstd, int64_t rows, int64_t cols,
             int64_t n, bool centred, sk_any y)
{
    int64_t stride = (int64_t)gridDim.x * BLOCK;
    for (int64_t o = (int64_t)blockIdx.x * BLOCK + threadIdx.x; o < n; o += stride) {
        int64_t first = o / cols * rows, c = o % cols;
        float sum = 0;
        for (int64_t r = first; r < first + rows; r++) {
            float m = centred ? sk_get(mean, r) : 0, k = sk_get(rstd, r);
            sum += (float)dy[r * cols + c] * (((float)x[r * cols + c] - m) * k);
        }
        sk_put(y, o, sum);
    }
}

template <typename T> static sk_status typed(const sk_args *a, const sk_launch *l)
{
    const sk_view *v = &a->in[0];
    int64_t cols = v->size[v->n - 1], n = v->size[0] * cols;
    if (!n) return SK_OK;
    add_rows<T><<<sk_cuda_blocks(n, BLOCK), BLOCK, 0, (cudaStream_t)l->stream>>>(
        (const T *)v->data, (const T *)a->in[3].data, sk_any_of(&a->in[1]), sk_any_of(&a->in[2]),
        sk_span(v, 1, v->n - 1), cols, n, a->attr[0] == 0, sk_any_of(&a->out[0]));
    return sk_cuda_launched("norm_samples");
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return SK_FLOAT(a->in[0].type, typed<T>(a, l));
}

extern "C" const sk_kernel sk_kernel_norm_samples = {"norm_samples", launch};
