/* rename.cu - the GPU half of rename.c. */
#include "kernel/cuda/cuda.h"

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    const sk_view *x = &a->in[0], *y = &a->out[0];
    size_t bytes = (size_t)sk_count(x) * sk_dtype_size(x->type);
    if (!bytes || x->data == y->data) return SK_OK;
    (void)cudaMemcpyAsync(y->data, x->data, bytes, cudaMemcpyDeviceToDevice,
                          (cudaStream_t)l->stream);
    return sk_cuda_launched("rename");
}

extern "C" const sk_kernel sk_kernel_rename = {"rename", launch};
