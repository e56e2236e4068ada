/* acts.c - the engine's own work on a GPU, if it is linked, and what that takes. */
#include "run/acts.h"

/* In skein_cuda; where that is not linked, its address is NULL. */
#pragma weak sk_acts_cuda

const sk_acts *sk_acts_find(void) { return &sk_acts_cuda; }

sk_status sk_act_takes(const char *what, sk_dtype type)
{
    if (type <= SK_F16) return SK_OK;
    return sk_fail(SK_ECONF, "%s: elements are %s; on a GPU f32, bf16 and f16 are known", what,
                   sk_dtype_name(type));
}
