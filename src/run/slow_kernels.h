/* slow.h - no slow path in silence: what of a step runs on other kernels of a GPU than it should.
 *
 * Kernels say in prepare() which of theirs they take and, if another one was wanted, about how much
 * longer this one takes (kernel/kernel_launch.h).  Weighed by the arithmetic of a step, what costs
 * more than a tenth of it is worth a warning. */
#ifndef SK_RUN_SLOW_KERNELS_H
#define SK_RUN_SLOW_KERNELS_H

#include "run/run.h"

/* A line for each op and shape: "attention_grad of 1x131072x16x3x64 (bf16) runs on kernel
 * flash, 2.8 times as long as cuDNN: why; the step is about 90 % longer".  NULL: there is none. */
const char *sk_run_slow_kernels(sk_arena *a, const sk_run *r);

#endif
