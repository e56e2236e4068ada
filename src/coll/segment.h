/* segment.h - which rows of a segment belong to whom, evenly or by reduction blocks; for coll/ and
 * those who plan its calls.
 *
 * Everything that is cut asks here, so that a member's part is the same rows in the heaps, in an
 * executed list and in what members check.  The even cut is inline and costs one branch: it is in
 * the way of every small call. */
#ifndef SK_COLL_SEGMENT_H
#define SK_COLL_SEGMENT_H

#include "coll/call.h"

static inline int64_t sk_even_at(int64_t n, int i, int p) { return n * i / p; }
static inline int64_t sk_even_part(int64_t n, int i, int p)
{
    return sk_even_at(n, i + 1, p) - sk_even_at(n, i, p);
}

typedef struct sk_rows { /* [at, at + n) */
    int64_t at, n;
} sk_rows;

sk_rows sk_grid_rows(const sk_grid *g, int i, int p);

/* Part i of p of n rows. */
static inline sk_rows sk_cut_rows(int64_t n, const sk_grid *g, int i, int p)
{
    if (g->cells) return sk_grid_rows(g, i, p);
    return (sk_rows){sk_even_at(n, i, p), sk_even_part(n, i, p)};
}

static inline sk_rows sk_seg_rows(const sk_seg *s, int i, int p)
{
    return sk_cut_rows(s->n, &s->cut, i, p);
}

/* Elements of [outer][n][inner]. */
static inline int64_t sk_seg_count(const sk_seg *s) { return s->outer * s->n * s->inner; }
/* With the two dims more that an exchange has: no member has as many of it. */
static inline int64_t sk_seg_whole(const sk_seg *s)
{
    return sk_seg_count(s) * (s->swap ? s->mid * s->n2 : 1);
}

/* Are n rows what the grid says? */
bool sk_grid_good(const sk_grid *g, int64_t n);

/* --- all-to-all, and the exchange of two dims --- */

int64_t sk_swap_gives(const sk_seg *s, int i, int p);
static inline int64_t sk_seg_gives(const sk_seg *s, int i, int p) /* elements of member i's src */
{
    return s->swap ? sk_swap_gives(s, i, p) : sk_seg_count(s);
}
int64_t sk_seg_gets(const sk_seg *s, int i, int p); /* of its dst */
int64_t sk_seg_largest(const sk_seg *s, int p);     /* of what goes from one to another: most */
bool sk_seg_uniform(const sk_seg *s, int p);        /* that is what goes from each to each */

/* What goes from one member to another, in elements: `outer` times `runs` times `run` in a row.
 * Run r of o lies at + o * far + r * near elements into src, or dst.  One of the two has its runs
 * in a row (near is run), in the other even the last run of o and the first of o + 1 are `near`
 * apart. */
typedef struct sk_side {
    int64_t at, far, near;
} sk_side;
typedef struct sk_block {
    int64_t outer, runs, run;
    sk_side src, dst;
} sk_block;
sk_block sk_seg_block(const sk_seg *s, int from, int to, int p);

static inline int64_t sk_block_count(const sk_block *b) { return b->outer * b->runs * b->run; }

#endif
