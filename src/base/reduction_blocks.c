/* reduction_blocks.c - see reduction_blocks.h. */
#include "base/reduction_blocks.h"

int sk_reduction_blocks(int64_t n, int most)
{
    int blocks = 1;
    while (2 * blocks <= n && 2 * blocks <= most) blocks *= 2;
    return blocks;
}

void sk_tree_part(int *from, int *to, int i, int p)
{
    while (p > 1) {
        int left = 1, half = *from + (*to - *from) / 2;
        while (2 * left < p) left *= 2;
        if (*to - *from <= 1) { /* one block, or none: the first has it */
            if (i) *from = *to;
            return;
        }
        if (i < left) *to = half, p = left;
        else *from = half, i -= left, p -= left;
    }
}
