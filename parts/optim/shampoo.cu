/* shampoo.cu - the CUDA kernels of shampoo.c's two passes; between them run operations on matrices.
 */
#include "kernel/cuda/whole_passes.h"

static sk_status direction(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<sk_gradient_pass>("shampoo", j, l);
}

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<sk_step_pass>("shampoo", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_shampoo = {"shampoo", {direction, apply}};
