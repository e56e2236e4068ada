/* order.h - sums of a step in canonical order: the same bits on any layout.  Private to run/.
 *
 * Sums over the elements of a parameter are taken cell by cell (base/reduction_blocks.h, along
 * every dim), in double, and cells are added as integers, which no order can change. */
#ifndef SK_RUN_ORDERED_SUMS_H
#define SK_RUN_ORDERED_SUMS_H

#include "base/fixed.h"
#include "graph/op.h"
#include "kernel/optim.h"

/* The tree over the cells of the loss; n is a power of two. */
SK_BOTH double sk_tree_sum_blocks(const double *cells, int n)
{
    float sum[SK_REDUCTION_BLOCKS_MAX];
    for (int i = 0; i < n; i++) sum[i] = (float)cells[i];
    for (int left = n; left > 1; left /= 2)
        for (int i = 0; i < left / 2; i++) sum[i] = sum[2 * i] + sum[2 * i + 1];
    return n ? (double)sum[0] : 0;
}

/* Runs of elements that lie together in one cell, cell after cell: calls visit(ctx, from, n, last)
 * for the share (part, of) of the cells; `last` ends a cell. */
void sk_visit_reduction_blocks(const sk_view *v, int part, int of,
                               void (*visit)(void *ctx, int64_t from, int64_t n, bool last),
                               void *ctx);

#endif
