/* dot_products.h - inner products of a batch on a GPU, at the speed of memory: z = sum over k of
 * x y.  cuBLASLt takes such products, whose results are single numbers, with few blocks.
 *
 * k is cut in parts, as many as keep a GPU busy; the sums of parts are put into the workspace and
 * added by a second launch.  The order of a sum depends on the shape alone. */
#ifndef SK_KERNEL_DOT_PRODUCTS_H
#define SK_KERNEL_DOT_PRODUCTS_H

#include "kernel/cuda/contract_axes.h"

typedef struct sk_dots {
    sk_any x, y, z;
    const float *by; /* on the device: what sums are multiplied with; NULL: nothing */
    bool add;
    sk_axes batch;
    int64_t batches, k, step[2]; /* elements between neighbours along k, in x and y */
} sk_dots;

sk_status sk_dot_products(const sk_dots *d, const sk_launch *l);

#endif
