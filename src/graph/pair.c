/* pair.c - from an op to its GPU half. */
#include "graph/kernel.h"

#include <string.h>

/* The table is in skein_cuda; where that is not linked, its address is NULL. */
#pragma weak sk_kernel_parts

const sk_kernel *sk_kernel_find(const char *op)
{
    const sk_kernel *const *table = sk_kernel_parts;
    for (; table && *table; table++)
        if (!strcmp((*table)->op, op)) return *table;
    return NULL;
}
