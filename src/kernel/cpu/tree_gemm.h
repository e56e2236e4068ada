/* tree_gemm.h - the matrix product of order=canonical: c = a b, every element by one recipe.
 *
 * The k dim is cut at given borders into reduction blocks (base/reduction_blocks.h).  One element
 * of c is
 *
 *     inside a reduction block     s = 0; for k ascending: s = fma(a[k], b[k], s)
 *     over the reduction blocks    ((s0 + s1) + (s2 + s3)) + ...       a perfect tree of pairs
 *     at last           c = sum, or c = c + sum
 *
 * in f32.  An empty reduction block is a 0 that is added like the others.  Nothing else touches an
 * element, so its bits do not depend on how m and n are cut, on threads, on steps in memory, or on
 * the processor: registers may hold 14 x 32 sums or one.
 *
 *     sk_tree_gemm g = {.m = 2, .n = 3, .k = 4, .a = {a, 4, 1}, .b = {b, 3, 1}, .c = c,
 *                       .c_row = 3, .c_col = 1, .cells = 2, .border = (int64_t[]){0, 2, 4},
 *                       .of = 1};
 *     g.scratch = room for sk_tree_gemm_scratch(&g) bytes;
 *     sk_tree_gemm_run(&g);
 *
 * Any steps are right.  They are fast where one of the two is 1, as BLAS wants it too. */
#ifndef SK_KERNEL_TREE_GEMM_H
#define SK_KERNEL_TREE_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum sk_tree_set { SK_TREE_BEST, SK_TREE_PLAIN, SK_TREE_AVX2, SK_TREE_AVX512 } sk_tree_set;

typedef struct sk_tree_matrix {
    const float *at;
    int64_t row, col; /* elements from one row to the next, from one column to the next */
} sk_tree_matrix;

typedef struct sk_tree_gemm {
    int64_t m, n, k;
    sk_tree_matrix a, b; /* [m, k] and [k, n] */
    float *c;            /* [m, n] */
    int64_t c_row, c_col;
    bool add;
    int cells;             /* a power of two, at most SK_REDUCTION_BLOCKS_MAX */
    const int64_t *border; /* [cells + 1], from 0 up to k */
    int part, of;          /* this thread of the team; each has a scratch of its own */
    void *scratch;         /* of any alignment */
    sk_tree_set set;       /* instructions; 0: the best that there are */
} sk_tree_gemm;

bool sk_tree_gemm_has(sk_tree_set set);             /* on this processor */
size_t sk_tree_gemm_scratch(const sk_tree_gemm *g); /* bytes per thread; looks at no memory */
void sk_tree_gemm_run(const sk_tree_gemm *g);       /* this thread's share */

#endif
