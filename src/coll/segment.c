/* segment.c - which rows of a segment belong to whom. */
#include "coll/segment.h"
#include "base/reduction_blocks.h"

/* --- cells --- */

static int64_t border(const sk_grid *g, int cell) { return g->full * cell / g->cells; }

sk_rows sk_grid_rows(const sk_grid *g, int i, int p)
{
    int from = g->from, to = g->to;
    sk_tree_part(&from, &to, i, p);
    int64_t at = border(g, from);
    return (sk_rows){at - border(g, g->from), border(g, to) - at};
}

bool sk_grid_good(const sk_grid *g, int64_t n)
{
    if (!g->cells) return true;
    if (g->cells < 0 || g->full < 0 || g->full > INT64_MAX / g->cells) return false;
    if (g->from < 0 || g->from > g->to || g->to > g->cells) return false;
    return border(g, g->to) - border(g, g->from) == n;
}

static int64_t widest(int64_t n, const sk_grid *g, int p)
{
    int64_t most = 0;
    if (!g->cells) return (n + p - 1) / p;
    for (int i = 0; i < p; i++) {
        int64_t rows = sk_grid_rows(g, i, p).n;
        if (rows > most) most = rows;
    }
    return most;
}

/* --- all-to-all --- */

/* Rows of the dim that is split before, and of the one that is split after. */
static sk_rows rows_before(const sk_seg *s, int i, int p)
{
    return s->swap == SK_SWAP_N_N2 ? sk_seg_rows(s, i, p) : sk_cut_rows(s->n2, &s->cut2, i, p);
}

static sk_rows rows_after(const sk_seg *s, int i, int p)
{
    return s->swap == SK_SWAP_N_N2 ? sk_cut_rows(s->n2, &s->cut2, i, p) : sk_seg_rows(s, i, p);
}

int64_t sk_swap_gives(const sk_seg *s, int i, int p)
{
    int64_t all = s->swap == SK_SWAP_N_N2 ? s->n2 : s->n;
    return s->outer * s->mid * s->inner * all * rows_before(s, i, p).n;
}

int64_t sk_seg_gets(const sk_seg *s, int i, int p)
{
    if (!s->swap) return s->outer * sk_seg_rows(s, i, p).n * s->inner * p;
    int64_t all = s->swap == SK_SWAP_N_N2 ? s->n : s->n2;
    return s->outer * s->mid * s->inner * all * rows_after(s, i, p).n;
}

int64_t sk_seg_largest(const sk_seg *s, int p)
{
    int64_t each = s->outer * s->inner * widest(s->n, &s->cut, p);
    return s->swap ? each * s->mid * widest(s->n2, &s->cut2, p) : each;
}

bool sk_seg_uniform(const sk_seg *s, int p)
{
    return widest(s->n, &s->cut, p) * p == s->n &&
           (!s->swap || widest(s->n2, &s->cut2, p) * p == s->n2);
}

sk_block sk_seg_block(const sk_seg *s, int from, int to, int p)
{
    sk_block b = {.outer = s->outer, .runs = 1};
    if (!s->swap) {
        sk_rows rows = sk_seg_rows(s, to, p);
        b.run = rows.n * s->inner;
        b.src = (sk_side){rows.at * s->inner, s->n * s->inner, b.run};
        b.dst = (sk_side){from * s->outer * b.run, b.run, b.run};
        return b;
    }
    sk_rows gone = rows_before(s, from, p), kept = rows_after(s, to, p);
    bool forth = s->swap == SK_SWAP_N_N2; /* then src has the short runs */
    sk_rows slow = forth ? gone : kept, fast = forth ? kept : gone;
    b.runs = slow.n * s->mid;
    b.run = fast.n * s->inner;
    sk_side thin = {fast.at * s->inner, b.runs * s->n2 * s->inner, s->n2 * s->inner};
    sk_side full = {slow.at * s->mid * b.run, s->n * s->mid * b.run, b.run};
    b.src = forth ? thin : full;
    b.dst = forth ? full : thin;
    return b;
}
