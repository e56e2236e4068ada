/* kernel_launch.c - from an op, and from a product of matrices, to its GPU half. */
#include "kernel/kernel_launch.h"
#include "kernel/product.h"

#include <string.h>

/* They are in skein_cuda; where that is not linked, their addresses are NULL. */
#pragma weak sk_kernel_parts
#pragma weak sk_lt_run
#pragma weak sk_lt_prepare

const sk_kernel *sk_kernel_find(const char *op)
{
    const sk_kernel *const *table = sk_kernel_parts;
    for (; table && *table; table++)
        if (!strcmp((*table)->op, op)) return *table;
    return NULL;
}

sk_status sk_product_run(const sk_product *p, const sk_launch *l, bool *ran)
{
    if (sk_lt_run) return sk_lt_run(p, l->stream, l->workspace, l->workspace_bytes, ran);
    if (ran) *ran = false;
    return SK_OK;
}

sk_status sk_product_prepare(const sk_product *p, const sk_launch *l, bool *found)
{
    if (sk_lt_prepare) return sk_lt_prepare(p, l->stream, l->workspace, l->workspace_bytes, found);
    if (found) *found = false;
    return SK_OK;
}
