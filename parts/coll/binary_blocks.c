/* binary_blocks.c - halving and doubling for any n, in blocks of powers of two.
 *
 * The members are cut by the bits of n, the largest block first: 13 = 8 + 4 + 1
 * (Rabenseifner and Traeff 2004).  Each block halves for itself; then the smallest
 * gives its sums to the next larger one, that to the next, until the largest has
 * all; the totals go the same way down, and each block doubles for itself.  Sums
 * meet as A8 + (A4 + A1): that is the tree, for every n.  With 2 log n + 2 rounds and
 * at most 3 S bytes (2 S for most n) it is the all-reduce of long vectors. */
#include "coll/algorithm.h"

typedef struct block {
    int first, log; /* log -1: there is none */
} block;

/* The block that holds member i; where blocks end, none. */
static block block_of(int n, int i)
{
    int first = 0, log = sk_log_floor(n);
    if (i < 0 || i >= n) return (block){.log = -1};
    for (;; log--) {
        if (!(n >> log & 1)) continue;
        if (i < first + (1 << log)) return (block){first, log};
        first += 1 << log;
    }
}

static sk_cube cube_of(block b, int me)
{
    return (sk_cube){.log = b.log, .corner = me - b.first, .first = b.first};
}

/* Between me and the members of the larger block that have a part of my chunks. */
static void with_larger(sk_steps *s, block mine, block large, bool up)
{
    sk_cube c = cube_of(large, large.first);
    int n = s->cells >> large.log;
    for (int i = s->ask.me - mine.first; i < 1 << large.log; i += 1 << mine.log) {
        int chunk = sk_cube_chunk(&c, i, s->cells);
        if (up) sk_steps_send(s, sk_cube_member(&c, i), sk_dst(chunk), chunk, n);
        else sk_steps_recv(s, sk_cube_member(&c, i), sk_dst(chunk), chunk, n);
    }
}

/* Between me and the one member of the smaller block that has my chunks. */
static void with_smaller(sk_steps *s, block mine, block small, bool up)
{
    sk_cube c = cube_of(mine, s->ask.me);
    int chunk = sk_cube_chunk(&c, c.corner, s->cells), n = s->cells >> mine.log;
    int peer = small.first + c.corner % (1 << small.log);
    if (up) sk_steps_recv_sum(s, peer, sk_dst(chunk), sk_dst(chunk), chunk, n);
    else sk_steps_send(s, peer, sk_dst(chunk), chunk, n);
}

/* How many blocks are larger than this one: its place in the chain. */
static int place_of(int n, block b) { return __builtin_popcount((unsigned)n >> (b.log + 1)); }

static void build(sk_steps *s)
{
    int n = s->ask.n, log = sk_log_floor(n);
    block mine = block_of(n, s->ask.me);
    block large = block_of(n, mine.first - 1), small = block_of(n, mine.first + (1 << mine.log));
    sk_cube c = cube_of(mine, s->ask.me);
    s->cells = 1 << log;
    sk_cube_halve(s, &c, sk_src(0), sk_dst(0));
    if (small.log >= 0) with_smaller(s, mine, small, true);
    if (large.log >= 0) {
        s->round = large.log; /* when it has halved */
        with_larger(s, mine, large, true);
        s->round = log + place_of(n, mine);
        with_larger(s, mine, large, false);
    }
    s->round = log + 1 + place_of(n, mine);
    if (small.log >= 0) with_smaller(s, mine, small, false);
    sk_steps_next(s);
    sk_cube_double(s, &c, sk_dst(0));
}

/* The busiest is the largest block, or a middle one, that takes and gives both ways. */
static sk_coll_cost price(const sk_coll_ask *a)
{
    int log = sk_log_floor(a->n), above = a->n & (a->n - 1); /* above: without the smallest block */
    double p = 1 << log, part = (p - 1) / p;
    if (!above) return (sk_coll_cost){2 * log, 2 * part, part};
    bool middle = above & (above - 1);
    return (sk_coll_cost){2 * log + 2, middle ? 2 + 2.0 / (above & -above) : 2, 1};
}

const sk_coll sk_coll_binary_blocks = {
    .name = "binary_blocks",
    .doc = "halving and doubling in blocks of 2^k; any n (Rabenseifner and Traeff 2004)",
    .cost = "(2 log n + 2) a + 2S b, for some n up to 3S",
    .kinds = 1u << SK_ALLREDUCE,
    .order = SK_ORDER_TREE,
    .build = build,
    .price = price,
};
