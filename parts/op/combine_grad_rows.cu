/* combine_grad_rows.cu - the GPU half of combine_grad_rows.c: see kernel/cuda/cuda_slots.h. */
#include "kernel/cuda/cuda_slots.h"

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return SK_FLOAT(a->in[0].type, sk_cuda_scatter<T>("combine_grad_rows", &a->in[0], &a->in[1],
                                                      &a->in[2], &a->out[0], l));
}

extern "C" const sk_kernel sk_kernel_combine_grad_rows = {"combine_grad_rows", launch};
