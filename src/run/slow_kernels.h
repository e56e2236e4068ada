/* slow_kernels.h - which ops of a step run on slower GPU kernels than they should, for a warning.
 *
 * An op says in prepare() which of its kernels it takes and, if it wanted another one, about how
 * many times longer this one takes (kernel/kernel_launch.h).  Ops are weighed by their flops: what
 * makes a step a tenth longer is worth a warning. */
#ifndef SK_RUN_SLOW_KERNELS_H
#define SK_RUN_SLOW_KERNELS_H

#include "run/run.h"

/* A line for each op and shape: "attention_grad of 1x131072x16x3x64 (bf16) runs on kernel
 * flash, 2.8 times as long as cuDNN: why; the step is about 90 % longer".  NULL: there is none. */
const char *sk_run_slow_kernels(sk_arena *a, const sk_run *r);

#endif
