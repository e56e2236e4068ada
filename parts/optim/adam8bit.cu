/* adam8bit.cu - the GPU half of adam8bit.c: AdamW, whatever the type of its state is. */
#include "kernel/cuda/shared_passes.h"

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    return sk_cuda_pass_adamw("adam8bit", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_adam8bit = {"adam8bit", {apply}};
