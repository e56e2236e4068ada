/* recursive_doubling.c - whole vectors between partners at distance 1, 2, 4 ...
 *
 * log n rounds, the fewest there are, and each of the whole vector: for short ones.
 * Distance 1 comes first, so that sums are those of the tree; that holds for powers
 * of two only (butterfly takes any n, in an order of its own). */
#include "coll/algorithm.h"

static bool can(const sk_coll_ask *a) { return sk_power_of_two(a->n); }

static void all_reduce(sk_steps *s)
{
    int rounds = sk_log_floor(s->ask.n);
    sk_cell acc = sk_src(0);
    s->cells = 1;
    for (int d = 0; d < rounds; d++) {
        sk_cell into = d == rounds - 1 ? sk_dst(0) : sk_tmp(d % 2);
        sk_steps_exchange(s, s->ask.me ^ 1 << d, acc, into);
        acc = into;
    }
}

static void all_gather(sk_steps *s)
{
    int me = s->ask.me;
    sk_steps_send(s, me ^ 1, sk_src(0), me, 1);
    sk_steps_recv(s, me ^ 1, sk_dst(me ^ 1), me ^ 1, 1);
    sk_steps_copy(s, sk_dst(me), sk_src(0), me, 1);
    for (int have = 2; have < s->ask.n; have *= 2) {
        int mine = me & -have, theirs = mine ^ have;
        sk_steps_next(s);
        sk_steps_send(s, me ^ have, sk_dst(mine), mine, have);
        sk_steps_recv(s, me ^ have, sk_dst(theirs), theirs, have);
    }
}

static void build(sk_steps *s)
{
    if (s->ask.kind == SK_ALLREDUCE) all_reduce(s);
    else all_gather(s);
}

static sk_coll_cost price(const sk_coll_ask *a)
{
    double n = a->n, rounds = sk_log_floor(a->n);
    if (a->kind == SK_ALLREDUCE) return (sk_coll_cost){rounds, rounds, rounds};
    return (sk_coll_cost){rounds, (n - 1) / n, 0};
}

const sk_coll sk_coll_recursive_doubling = {
    .name = "recursive_doubling",
    .doc = "whole vectors at distance 1, 2, 4 ...; n = 2^k (Thakur, Rabenseifner and Gropp 2005)",
    .cost = "log n a + S log n b",
    .kinds = 1u << SK_ALLREDUCE | 1u << SK_ALLGATHER,
    .order = SK_ORDER_TREE,
    .can = can,
    .build = build,
    .price = price,
};
