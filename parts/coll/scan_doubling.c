/* scan_doubling.c - prefix sums over members in log n rounds.
 *
 * In round d members at distance 2^d exchange the sums of their aligned blocks of 2^d members.  The
 * upper one adds the lower block to its prefix; both add the two blocks if there are members to the
 * right of them, who need the sum:
 *
 *     n = 6      prefixes after round 0: 0, 01, 2, 23, 4, 45      blocks 01, 23
 *                              round 1: 0, 01, 012, 0123, 4, 45   block  0123
 *                              round 2: ..., 01234, 012345
 *
 * A prefix of k members is the block of the largest power of two below k plus the rest, which is
 * the order of the tree, for any n. */
#include "coll/algorithm.h"

/* Is the sum of m's aligned block of 2^d members wanted?  Then the block is complete. */
static bool wanted(int m, int d, int n) { return (m | ((1 << d) - 1)) + 1 < n; }

static void build(sk_steps *s)
{
    int n = s->ask.n, me = s->ask.me;
    sk_cell block = sk_src(0), came = sk_tmp(2);
    s->cells = 1;
    for (int d = 0; d < sk_log_ceil(n); d++) {
        int peer = me ^ 1 << d;
        bool upper = peer < me, both = wanted(me, d + 1, n);
        if (peer >= n) continue; /* the block is the last one and not complete: nobody wants it */
        if (!upper || both) sk_steps_send(s, peer, block, 0, 1);
        if (upper || both) sk_steps_recv(s, peer, came, 0, 1);
        sk_steps_next(s);
        if (both) sk_steps_sum(s, sk_tmp(d % 2), block, came, 0, 1);
        if (upper) sk_steps_sum(s, sk_dst(0), sk_dst(0), came, 0, 1);
        sk_steps_next(s);
        if (both) block = sk_tmp(d % 2);
    }
}

static sk_coll_cost price(const sk_coll_ask *a)
{
    int rounds = sk_log_ceil(a->n), most = 0;
    for (int m = 0; m < a->n; m++) {
        int sums = __builtin_popcount((unsigned)m);
        for (int d = 1; d < rounds; d++) sums += wanted(m, d, a->n);
        if (sums > most) most = sums;
    }
    return (sk_coll_cost){rounds, rounds, most};
}

const sk_coll sk_coll_scan_doubling = {
    .name = "scan_doubling",
    .doc = "prefix sums by blocks at distance 1, 2, 4 ...; any n (Hillis and Steele 1986)",
    .cost = "log n a + S log n b",
    .kinds = 1u << SK_SCAN,
    .order = SK_ORDER_TREE,
    .build = build,
    .price = price,
};
