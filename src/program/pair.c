/* pair.c - from an optimizer to its GPU half. */
#include "program/kernel.h"

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
