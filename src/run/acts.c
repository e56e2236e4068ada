/* acts.c - from the engine to its GPU half. */
#include "run/acts.h"

#include <string.h>

/* They are in skein_cuda; where that is not linked, their addresses are NULL. */
#pragma weak sk_acts_cuda
#pragma weak sk_optim_kernel_parts

const sk_acts *sk_acts_find(void) { return &sk_acts_cuda; }

const sk_optim_kernel *sk_optim_kernel_find(const char *optim)
{
    const sk_optim_kernel *const *table = sk_optim_kernel_parts;
    for (; table && *table; table++)
        if (!strcmp((*table)->optim, optim)) return *table;
    return NULL;
}
