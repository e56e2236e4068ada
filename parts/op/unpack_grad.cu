/* unpack_grad.cu - the GPU half of unpack_grad.c: unpack.cu the other way round. */
#include "kernel/cuda/unpack.h"

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    const sk_view *x = &a->in[0];
    size_t bytes = sk_dtype_size(x->type), one = (size_t)x->size[4] * bytes;
    sk_unpack u = {(char *)a->out[0].data, (char *)x->data, (char *)a->in[1].data};
    u.rows = sk_span(x, 0, 3), u.q = (int64_t)one * x->size[3], u.kv = 2 * (int64_t)one;
    return sk_unpack_start("unpack_grad", &u, false, (cudaStream_t)l->stream);
}

extern "C" const sk_kernel sk_kernel_unpack_grad = {"unpack_grad", launch};
