/* soap.cu - the CUDA kernels of soap.c's two passes; between them run operations on matrices. */
#include "kernel/cuda/shared_passes.h"

static sk_status direction(const sk_update_job *j, const sk_launch *l)
{
    return sk_cuda_pass_gradient("soap", j, l);
}

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    return sk_cuda_pass_step("soap", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_soap = {"soap", {direction, apply}};
