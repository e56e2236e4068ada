/* halving_doubling.c - halves of what is left, at distance 1, 2, 4 ..., and back.
 *
 * Rabenseifner's all-reduce for powers of two: fewest bytes in 2 log n rounds.
 * Distance 1 comes first, so that sums are those of the tree; hence member i ends
 * with the chunk whose number is i with its bits read backwards.  An all-reduce
 * does not care; a reduce-scatter takes one more round in which chunks go to their
 * owners, an all-gather begins with it. */
#include "coll/algorithm.h"

static bool can(const sk_coll_ask *a) { return sk_power_of_two(a->n); }

static void reduce_scatter(sk_steps *s, const sk_cube *c)
{
    int me = s->ask.me, other = sk_cube_chunk(c, me, s->ask.n);
    sk_cell sums = sk_tmp(me % 2 ? -s->ask.n / 2 : 0); /* only my half is ever summed */
    sk_cube_halve(s, c, sk_src(0), sums);
    if (other == me) {
        sk_steps_copy(s, sk_dst(0), sk_cell_at(sums, me), me, 1);
        return;
    }
    sk_steps_send(s, other, sk_cell_at(sums, other), other, 1);
    sk_steps_recv(s, other, sk_dst(0), me, 1);
}

static void all_gather(sk_steps *s, const sk_cube *c)
{
    int me = s->ask.me, other = sk_cube_chunk(c, me, s->ask.n);
    if (other != me) {
        sk_steps_send(s, other, sk_src(0), me, 1);
        sk_steps_recv(s, other, sk_dst(other), other, 1);
    } else {
        sk_steps_copy(s, sk_dst(me), sk_src(0), me, 1);
    }
    sk_steps_next(s);
    sk_cube_double(s, c, sk_dst(0));
}

static void build(sk_steps *s)
{
    sk_cube c = {.log = sk_log_floor(s->ask.n), .corner = s->ask.me};
    if (s->ask.kind == SK_REDUCE_SCATTER) reduce_scatter(s, &c);
    if (s->ask.kind == SK_ALLGATHER) all_gather(s, &c);
    if (s->ask.kind != SK_ALLREDUCE) return;
    sk_cube_halve(s, &c, sk_src(0), sk_dst(0));
    sk_cube_double(s, &c, sk_dst(0));
}

static sk_coll_cost price(const sk_coll_ask *a)
{
    double n = a->n, part = (n - 1) / n, rounds = sk_log_floor(a->n), turn = n > 2;
    if (a->kind == SK_ALLREDUCE) return (sk_coll_cost){2 * rounds, 2 * part, part};
    return (sk_coll_cost){rounds + turn, part + turn / n, a->kind == SK_REDUCE_SCATTER ? part : 0};
}

const sk_coll sk_coll_halving_doubling = {
    .name = "halving_doubling",
    .doc = "halves at distance 1, 2, 4 ... and back; n = 2^k (Rabenseifner 2004)",
    .cost = "2 log n a + 2S(n-1)/n b",
    .kinds = 1u << SK_ALLREDUCE | 1u << SK_REDUCE_SCATTER | 1u << SK_ALLGATHER,
    .order = SK_ORDER_TREE,
    .can = can,
    .build = build,
    .price = price,
};
