/* route_biased.cu - the GPU half of route_biased.c: see kernel/cuda/cuda_router.h. */
#include "kernel/cuda/cuda_router.h"

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return sk_cuda_route("route_biased", a, l);
}

extern "C" const sk_kernel sk_kernel_route_biased = {"route_biased", launch};
