/* sgd.cu - the GPU half of sgd.c. */
#include "kernel/cuda/shared_passes.h"

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    return sk_cuda_pass_sgd("sgd", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_sgd = {"sgd", {apply}};
