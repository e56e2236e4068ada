/* gpu_support.h - does the GPU backend execute this instruction, with the types of its operands?
 *
 * What GPU halves take is declared where a host can read it: sk_op.types of ops, sk_update_takes()
 * of optimizers, sk_code_takes() of codecs, sk_inst_kernel_takes() of the kernels of other
 * instructions. So a program can be checked without a device: gpu_memory.c does it before the first
 * launch, and test/parts/types.c for every model that is shipped. */
#ifndef SK_RUN_GPU_SUPPORT_H
#define SK_RUN_GPU_SUPPORT_H

#include "program/program.h"

/* SK_OK, or a sentence that names the op, the operand and both types. */
sk_status sk_gpu_supports(const sk_program *p, int pc);

#endif
