/* ordered_sums.c - reduction blocks of a view, one after the other. */
#include "run/ordered_sums.h"

typedef struct walk {
    const sk_view *v;
    int n[SK_MAX_DIM];
    int64_t border[SK_MAX_DIM][SK_REDUCTION_BLOCKS_MAX + 1];
    void (*visit)(void *ctx, int64_t from, int64_t n, bool last);
    void *ctx;
} walk;

/* One block: its rows, one after the other. */
static void one_block(const walk *w, const int *cell)
{
    const sk_view *v = w->v;
    int d = v->n - 1;
    int64_t size[SK_MAX_DIM], rows = 1;
    for (int k = 0; k < v->n; k++) size[k] = w->border[k][cell[k] + 1] - w->border[k][cell[k]];
    for (int k = 0; k < d; k++) rows *= size[k];
    for (int64_t r = 0; r < rows; r++) {
        int64_t from = d < 0 ? 0 : w->border[d][cell[d]] * v->step[d], rest = r;
        for (int k = d - 1; k >= 0; k--) {
            from += (w->border[k][cell[k]] + rest % size[k]) * v->step[k];
            rest /= size[k];
        }
        w->visit(w->ctx, from, d < 0 ? 1 : size[d], r + 1 == rows);
    }
}

void sk_visit_reduction_blocks(const sk_view *v, int part, int of,
                               void (*visit)(void *ctx, int64_t from, int64_t n, bool last),
                               void *ctx)
{
    walk w = {.v = v, .visit = visit, .ctx = ctx};
    int64_t all = 1;
    if (!sk_count(v)) return;
    for (int d = 0; d < v->n; d++) all *= w.n[d] = sk_view_reduction_blocks(v, d, w.border[d]);
    for (int64_t c = all * part / of; c < all * (part + 1) / of; c++) {
        int cell[SK_MAX_DIM];
        int64_t rest = c;
        for (int d = v->n - 1; d >= 0; d--) {
            cell[d] = (int)(rest % w.n[d]);
            rest /= w.n[d];
        }
        one_block(&w, cell);
    }
}
