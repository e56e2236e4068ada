/* route_biased.cu - the GPU half of route_biased.c: see graph/cuda_route.h. */
#include "graph/cuda_route.h"

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return sk_cuda_route("route_biased", a, l);
}

extern "C" const sk_kernel sk_kernel_route_biased = {"route_biased", launch};
