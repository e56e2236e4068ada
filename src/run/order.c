/* order.c - see order.h. */
#include "run/order.h"

#include <math.h>

double sk_order_fold(const double *cells, int n)
{
    float sum[SK_MOST_CELLS];
    for (int i = 0; i < n; i++) sum[i] = (float)cells[i];
    for (int left = n; left > 1; left /= 2)
        for (int i = 0; i < left / 2; i++) sum[i] = sum[2 * i] + sum[2 * i + 1];
    return n ? (double)sum[0] : 0;
}

void sk_fixed_add(sk_fixed *to, double x)
{
    double high = floor(ldexp(x, 20)), rest = x - ldexp(high, -20);
    if (!(fabs(high) < 0x1p61)) high = 0x1p61, rest = 0; /* it stays huge in every sum */
    to->high += (int64_t)high;
    to->low += (int64_t)nearbyint(ldexp(rest, 60));
}

double sk_fixed_value(const sk_fixed *x)
{
    if (x->high >= (int64_t)1 << 61 || x->high < 0) return INFINITY;
    return ldexp((double)x->high, -20) + ldexp((double)x->low, -60);
}

typedef struct walk {
    const sk_view *v;
    int n[SK_MAX_DIM];
    int64_t border[SK_MAX_DIM][SK_MOST_CELLS + 1];
    void (*visit)(void *ctx, int64_t from, int64_t n, bool last);
    void *ctx;
} walk;

/* One cell: its rows, one after the other. */
static void one_cell(const walk *w, const int *cell)
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

void sk_order_cells(const sk_view *v, int part, int of,
                    void (*visit)(void *ctx, int64_t from, int64_t n, bool last), void *ctx)
{
    walk w = {.v = v, .visit = visit, .ctx = ctx};
    int64_t all = 1;
    if (!sk_count(v)) return;
    for (int d = 0; d < v->n; d++) all *= w.n[d] = sk_view_cells(v, d, w.border[d]);
    for (int64_t c = all * part / of; c < all * (part + 1) / of; c++) {
        int cell[SK_MAX_DIM];
        int64_t rest = c;
        for (int d = v->n - 1; d >= 0; d--) {
            cell[d] = (int)(rest % w.n[d]);
            rest /= w.n[d];
        }
        one_cell(&w, cell);
    }
}
