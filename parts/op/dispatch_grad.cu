/* dispatch_grad.cu - the GPU half of dispatch_grad.c: see kernel/cuda/cuda_slots.h. */
#include "kernel/cuda/cuda_slots.h"

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return SK_FLOAT(a->in[0].type,
                    sk_cuda_gather<T>("dispatch_grad", &a->in[0], &a->in[1], NULL, &a->out[0], l));
}

extern "C" const sk_kernel sk_kernel_dispatch_grad = {"dispatch_grad", launch};
