/* reduction_blocks.h - how order=canonical cuts a dim, so that sums have the same bits on any
 * layout.
 *
 * A dim is divided into reduction blocks, a power of two of them, which belong to the logical
 * tensor and not to a layout: block i of n elements is [n*i/blocks, n*(i+1)/blocks).  A sum over
 * the dim is taken one element after the other inside a block, and over the blocks as a tree of
 * pairs. Ranks are dealt blocks as the tree goes: of p ranks, the largest power of two below p
 * share the first half of the blocks, the others the second half.  So every rank has a subtree of
 * its own, and adding up ranks in the order of the tree of coll/call.h finishes the one big tree.
 * More ranks than blocks leave some with nothing. */
#ifndef SK_BASE_REDUCTION_BLOCKS_H
#define SK_BASE_REDUCTION_BLOCKS_H

#include <stdint.h>

enum { SK_REDUCTION_BLOCKS_MAX = 64 };

/* The largest power of two up to n and `most`; 1 for an empty dim. */
int sk_reduction_blocks(int64_t n, int most);

/* Part i of p of the blocks [*from, *to), a subtree; narrows the range in place. */
void sk_tree_part(int *from, int *to, int i, int p);

#endif
