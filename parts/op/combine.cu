/* combine.cu - the GPU half of combine.c: see kernel/cuda/cuda_slots.h. */
#include "kernel/cuda/cuda_slots.h"

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return SK_FLOAT(a->in[0].type,
                    sk_cuda_gather<T>("combine", &a->in[0], &a->in[1], &a->in[2], &a->out[0], l));
}

extern "C" const sk_kernel sk_kernel_combine = {"combine", launch};
