/* shampoo.cu - the CUDA kernels of shampoo.c's two passes; between them run operations on matrices.
 */
#include "kernel/cuda/shared_passes.h"

static sk_status direction(const sk_update_job *j, const sk_launch *l)
{
    return sk_cuda_pass_gradient("shampoo", j, l);
}

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    return sk_cuda_pass_step("shampoo", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_shampoo = {"shampoo", {direction, apply}};
