/* butterfly.c - recursive doubling for any n: surplus members are folded into a neighbour.
 *
 * After the split-phase all-reduce of GASPI: short vectors, few rounds, and between
 * start and test the caller computes.  Of the first 2 (n - 2^k) members the odd ones
 * give their vector to the even one before them, and get the sum at the end; the
 * rest is a butterfly on 2^k.  The pairs shift the blocks, so that sums are not
 * those of the tree. */
#include "coll/algorithm.h"

/* The odd one of a pair: gives, and waits for the sum. */
static void surplus(sk_steps *s, const sk_cube *c)
{
    int even = s->ask.me - 1;
    sk_steps_send(s, even, sk_src(0), 0, 1);
    s->round += c->log + 1;
    sk_steps_recv(s, even, sk_dst(0), 0, 1);
}

static void build(sk_steps *s)
{
    sk_cube c = sk_cube_folded(&s->ask);
    sk_cell acc = sk_src(0);
    bool paired = c.corner < c.fold;
    s->cells = 1;
    if (c.corner < 0) {
        surplus(s, &c);
        return;
    }
    if (paired) sk_steps_recv_sum(s, s->ask.me + 1, acc = sk_tmp(1), sk_src(0), 0, 1);
    if (c.fold) sk_steps_next(s);
    for (int d = 0; d < c.log; d++) {
        sk_cell into = d == c.log - 1 ? sk_dst(0) : sk_tmp(d % 2);
        sk_steps_exchange(s, sk_cube_member(&c, c.corner ^ 1 << d), acc, into);
        acc = into;
    }
    if (paired) sk_steps_send(s, s->ask.me + 1, acc, 0, 1);
}

static sk_coll_cost price(const sk_coll_ask *a)
{
    int rounds = sk_log_floor(a->n), fold = !sk_power_of_two(a->n);
    return (sk_coll_cost){rounds + 2 * fold, rounds + 2 * fold, rounds + fold};
}

const sk_coll sk_coll_butterfly = {
    .name = "butterfly",
    .doc = "recursive doubling with the surplus folded; any n (GASPI's split-phase all-reduce)",
    .cost = "(log n + 2) a + S (log n + 2) b",
    .kinds = 1u << SK_ALLREDUCE,
    .order = SK_ORDER_OWN,
    .build = build,
    .price = price,
};
