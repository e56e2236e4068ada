/* args.c - see args.h. */
#include "kernel/args.h"
#include "base/status.h"

void sk_view_dense(sk_view *v)
{
    int64_t step = 1;
    for (int i = v->n - 1; i >= 0; i--) {
        v->step[i] = step;
        step *= v->size[i];
    }
}

int sk_view_reduction_blocks(const sk_view *v, int d, int64_t border[SK_REDUCTION_BLOCKS_MAX + 1])
{
    int64_t cells = v->cells[d], end = v->at[d] + v->size[d];
    int n = 0;
    sk_assert(d >= 0 && d < SK_MAX_DIM && cells <= SK_REDUCTION_BLOCKS_MAX);
    border[0] = 0;

    for (int64_t i = 0; i < cells && v->size[d]; i++) {
        int64_t from = v->full[d] * i / cells, to = v->full[d] * (i + 1) / cells;
        if (from < v->at[d] || to > end) continue;
        border[++n] = to - v->at[d];
    }
    if (!n || border[n] != v->size[d]) border[n = 1] = v->size[d];
    sk_assert(n <= SK_REDUCTION_BLOCKS_MAX && !(n & (n - 1))); /* a power of two: sums are a tree */

    return n;
}
