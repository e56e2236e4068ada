/* shared_passes.h - the GPU halves of passes that several optimizers have (kernel/optim.h):
 * compiled once, for all of them.  optim: whose name is in errors. */
#ifndef SK_KERNEL_SHARED_PASSES_H
#define SK_KERNEL_SHARED_PASSES_H

#include "kernel/optim_kernel.h"

sk_status sk_cuda_pass_gradient(const char *optim, const sk_update_job *j, const sk_launch *l);
sk_status sk_cuda_pass_step(const char *optim, const sk_update_job *j, const sk_launch *l);
sk_status sk_cuda_pass_adamw(const char *optim, const sk_update_job *j, const sk_launch *l);
sk_status sk_cuda_pass_sgd(const char *optim, const sk_update_job *j, const sk_launch *l);

/* The job with knob `by` + k at k, for a pass that has its knobs in other places. */
static inline sk_update_job sk_update_knobs(const sk_update_job *j, int by)
{
    sk_update_job moved = *j;
    for (int k = 0; k < SK_MAX_KNOB; k++)
        moved.knob[k] = k + by < SK_MAX_KNOB ? j->knob[k + by] : 0;
    moved.momentum = j->momentum >> by;
    return moved;
}

#endif
