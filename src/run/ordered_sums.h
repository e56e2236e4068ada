/* ordered_sums.h - sums of a step in deterministic order (order=canonical): the same bits on any
 * layout.  Private to run/.
 *
 * Sums over the elements of a parameter are taken in double for each reduction block
 * (base/reduction_blocks.h, along every dim); blocks are added as integers, whose order does not
 * matter. */
#ifndef SK_RUN_ORDERED_SUMS_H
#define SK_RUN_ORDERED_SUMS_H

#include "base/fixed.h"
#include "graph/op.h"
#include "kernel/optim.h"

/* The binary tree over the reduction blocks of a loss; n is a power of two. */
SK_BOTH double sk_tree_sum_blocks(const double *cells, int n)
{
    float sum[SK_REDUCTION_BLOCKS_MAX];
    for (int i = 0; i < n; i++) sum[i] = (float)cells[i];
    for (int left = n; left > 1; left /= 2)
        for (int i = 0; i < left / 2; i++) sum[i] = sum[2 * i] + sum[2 * i + 1];
    return n ? (double)sum[0] : 0;
}

/* Of the nodes that make a loss together, a tree each, one after the other. */
SK_BOTH double sk_tree_sums(const double *cells, int n, int trees)
{
    double sum = 0;
    for (int i = 0; i < trees; i++) sum += sk_tree_sum_blocks(cells + (int64_t)i * n, n);
    return sum;
}

/* Calls visit(ctx, from, n, last) for every run of contiguous elements of one reduction block,
 * block after block, of the share (part, of) of all blocks; `last` ends a block. */
void sk_visit_reduction_blocks(const sk_view *v, int part, int of,
                               void (*visit)(void *ctx, int64_t from, int64_t n, bool last),
                               void *ctx);

#endif
