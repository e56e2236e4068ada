/* order.h - sums of a step in canonical order: the same bits on any layout.  Private to run/.
 *
 * Sums over the elements of a parameter are taken cell by cell (base/cells.h, along every
 * dim), in double, and cells are added as integers, which no order can change. */
#ifndef SK_RUN_ORDER_H
#define SK_RUN_ORDER_H

#include "graph/op.h"
#include "program/optim.h"

/* The tree over the cells of the loss; n is a power of two. */
double sk_order_fold(const double *cells, int n);

/* A sum as two integers, units of 2^-20 and of 2^-60: exact for a cell's sum under 2^40 to 2^-60.
 */
typedef struct sk_fixed {
    int64_t high, low;
} sk_fixed;
void sk_fixed_add(sk_fixed *to, double x);
double sk_fixed_value(const sk_fixed *x);

/* Runs of elements that lie together in one cell, cell after cell: calls visit(ctx, from, n, last)
 * for the share (part, of) of the cells; `last` ends a cell. */
void sk_order_cells(const sk_view *v, int part, int of,
                    void (*visit)(void *ctx, int64_t from, int64_t n, bool last), void *ctx);

#endif
