/* sample_rows.cu - the GPU half of sample_rows.c: a thread for each element of the result. */
#include "kernel/cuda/cuda.h"

enum { BLOCK = 256 };

template <typename T>
static __global__ void __launch_bounds__(BLOCK)
    put(const T *x, int64_t first, int64_t rows, int64_t cols, int64_t n, sk_any y, bool add)
{
    int64_t stride = (int64_t)gridDim.x * BLOCK;
    for (int64_t o = (int64_t)blockIdx.x * BLOCK + threadIdx.x; o < n; o += stride) {
        int64_t at = o / cols + first;
        bool mine = at >= 0 && at < rows;
        if (mine) sk_put(y, o, (add ? sk_get(y, o) : 0) + (float)x[at * cols + o % cols]);
        else if (!add) sk_put(y, o, 0);
    }
}

template <typename T> static sk_status typed(const sk_args *a, const sk_launch *l)
{
    const sk_view *in = &a->in[0], *out = &a->out[0];
    int64_t n = sk_count(out);
    if (!n) return SK_OK;
    put<T><<<sk_cuda_blocks(n, BLOCK), BLOCK, 0, (cudaStream_t)l->stream>>>(
        (const T *)in->data, out->at[0] - in->at[0], in->size[0], sk_span(out, 1, out->n), n,
        sk_any_of(out), a->add & 1);
    return sk_cuda_launched("sample_rows");
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return SK_FLOAT(a->in[0].type, typed<T>(a, l));
}

extern "C" const sk_kernel sk_kernel_sample_rows = {"sample_rows", launch};
