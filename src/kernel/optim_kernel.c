/* optim_kernel.c - from an optimizer to its GPU half, and what that takes. */
#include "kernel/optim_kernel.h"

#include <string.h>

/* The table is in skein_cuda; where that is not linked, its address is NULL. */
#pragma weak sk_optim_kernel_parts

const sk_optim_kernel *sk_optim_kernel_find(const char *optim)
{
    const sk_optim_kernel *const *table = sk_optim_kernel_parts;
    for (; table && *table; table++)
        if (!strcmp((*table)->optim, optim)) return *table;
    return NULL;
}

sk_status sk_update_takes(const char *optim, const sk_update_job *j)
{
    if (j->grad_type > SK_F16)
        return sk_fail(SK_ECONF, "%s: gradients are %s; on a GPU f32, bf16 and f16 are known",
                       optim, sk_dtype_name(j->grad_type));
    if (j->state_type > SK_BF16 && j->state_type != SK_U8)
        return sk_fail(SK_ECONF, "%s: the state is %s; on a GPU f32, bf16 and int8 are known",
                       optim, sk_dtype_name(j->state_type));
    if (j->narrow_type > SK_F16)
        return sk_fail(SK_ECONF, "%s: narrow weights are %s; on a GPU bf16 and f16 are known",
                       optim, sk_dtype_name(j->narrow_type));
    if (j->ordered && j->grad_type != SK_F32)
        return sk_fail(SK_ECONF, "%s: gradients are %s; order=canonical is for f32", optim,
                       sk_dtype_name(j->grad_type));
    return SK_OK;
}
