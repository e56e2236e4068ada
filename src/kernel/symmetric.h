/* symmetric.h - half of a symmetric matrix, as it is sent: n rows of n / 2 + 1 numbers.
 *
 *     packed[i][k] = x[i][(i + k) % n]        k = 0 .. n / 2
 *
 * Of each pair x[i][j], x[j][i] one is there, in the row from which the way to the right, around
 * the end, is shorter.  For n odd these are n (n + 1) / 2 numbers, the triangle; for n even n / 2
 * more, since both of a pair are there if the way is n / 2.  Unlike a triangle it is a rectangle
 * whose row i is made of row i alone, so it is sharded by rows as the matrix is (tensor
 * parallelism, ZeRO), and shards have equal bytes.
 *
 * The matrix is a view "..rR": letters that count matrices, letters of rows, as many letters of
 * columns.  Rows may be a shard, columns are complete.  The packed view is "..rk". */
#ifndef SK_KERNEL_SYMMETRIC_H
#define SK_KERNEL_SYMMETRIC_H

#include "kernel/args.h"

SK_BOTH int64_t sk_symmetric_half(int64_t n) { return n / 2 + 1; }

typedef struct sk_symmetric {
    int64_t all;  /* rows of all matrices that are here */
    int64_t rows; /* of one matrix that are here */
    int64_t n, half;
    sk_view row; /* dims of rows alone */
} sk_symmetric;

static inline sk_symmetric sk_symmetric_of(const sk_view *x, const sk_view *packed)
{
    int r = x->n - packed->n + 1, first = x->n - 2 * r;
    sk_symmetric s = {.all = sk_span(x, 0, first + r),
                      .rows = sk_span(x, first, first + r),
                      .n = sk_span(x, first + r, x->n),
                      .half = packed->size[packed->n - 1]};
    s.row.n = r;
    for (int d = 0; d < r; d++) {
        s.row.size[d] = x->size[first + d];
        s.row.at[d] = x->at[first + d];
        s.row.full[d] = x->full[first + d];
    }
    return s;
}

/* Element (i, j) of a matrix whose packed rows begin at `packed`: its place there. */
SK_BOTH int64_t sk_symmetric_place(int64_t n, int64_t half, int64_t i, int64_t j)
{
    int64_t k = j < i ? j - i + n : j - i;
    return k < half ? i * half + k : j * half + n - k;
}

#endif
