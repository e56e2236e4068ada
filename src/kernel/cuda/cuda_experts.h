/* cuda_experts.h - a warp that looks at the logits of one token: lane e % 32 has expert e.  For GPU
 * halves of ops around route, whose rows are short. */
#ifndef SK_KERNEL_CUDA_EXPERTS_H
#define SK_KERNEL_CUDA_EXPERTS_H

#include "kernel/cuda/cuda_rows.h"

/* The largest logit, of equals the first. */
typedef struct sk_choice {
    float logit;
    int expert;
} sk_choice;

static __device__ inline sk_choice sk_first_choice(sk_any x, int64_t at, int experts)
{
    sk_choice mine = {-INFINITY, INT32_MAX};
    for (int e = (int)threadIdx.x; e < experts; e += 32) {
        float v = sk_get(x, at + e);
        if (mine.expert == INT32_MAX || v > mine.logit) mine = sk_choice{v, e};
    }
#pragma unroll
    for (int k = 16; k; k /= 2) {
        float v = __shfl_xor_sync(~0u, mine.logit, k);
        int e = __shfl_xor_sync(~0u, mine.expert, k);
        if (v > mine.logit || (v == mine.logit && e < mine.expert) || mine.expert == INT32_MAX)
            mine = sk_choice{v, e};
    }
    return mine;
}

#endif
