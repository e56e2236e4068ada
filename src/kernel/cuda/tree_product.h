/* tree_product.h - contractions of canonical order on a GPU, by the recipe of
 * kernel/cpu/tree_gemm.h and so with the CPU's bits: fmaf one after the other inside a reduction
 * block, reduction blocks as a tree of pairs. */
#ifndef SK_KERNEL_TREE_PRODUCT_H
#define SK_KERNEL_TREE_PRODUCT_H

#include "kernel/kernel_launch.h"

/* The arguments of contract, all f32; the result is not empty. */
sk_status sk_tree_product(const sk_args *a, const sk_launch *l);

#endif
