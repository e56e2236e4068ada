/* inst_kernels.c - the kernels of instructions that are no ops, if skein_cuda is linked, and the
 * types that they take. */
#include "run/gpu/inst_kernels.h"

/* In skein_cuda; where that is not linked, its address is NULL. */
#pragma weak sk_inst_kernels_cuda

const sk_inst_kernels *sk_inst_kernels_find(void) { return &sk_inst_kernels_cuda; }

sk_status sk_inst_kernel_takes(const char *what, sk_dtype type)
{
    if (type <= SK_F16) return SK_OK;
    return sk_fail(SK_ECONF, "%s: elements are %s; on a GPU f32, bf16 and f16 are known", what,
                   sk_dtype_name(type));
}
