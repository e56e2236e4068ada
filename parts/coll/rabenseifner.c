/* rabenseifner.c - halving and doubling for any n, surplus members folded (Rabenseifner 2004).
 *
 * Of the first 2 (n - 2^k) members the two of a pair exchange halves and add them,
 * then the odd one gives its half to the even one; halving and doubling on 2^k; the
 * even one gives the result back.  The fold moves up to 2 S more than the 2^k alone
 * would, and shifts the blocks of the tree: binary_blocks does neither. */
#include "coll/algorithm.h"

/* Both of a pair: `mine` is the half that is added here. */
static void fold(sk_steps *s, int peer, int mine, int half)
{
    int other = half - mine;
    sk_steps_send(s, peer, sk_src(other), other, half);
    sk_steps_recv_sum(s, peer, sk_dst(mine), sk_src(mine), mine, half);
    sk_steps_next(s);
}

static void surplus(sk_steps *s, const sk_cube *c)
{
    int even = s->ask.me - 1, half = s->cells / 2;
    fold(s, even, half, half);
    sk_steps_send(s, even, sk_dst(half), half, half);
    s->round += 2 * c->log + 1;
    sk_steps_recv(s, even, sk_dst(0), 0, s->cells);
}

static void build(sk_steps *s)
{
    sk_cube c = sk_cube_folded(&s->ask);
    int half = 1 << (c.log - 1), odd = s->ask.me + 1;
    bool paired = c.corner < c.fold;
    s->cells = 2 * half;
    if (c.corner < 0) {
        surplus(s, &c);
        return;
    }
    if (paired) {
        fold(s, odd, 0, half);
        sk_steps_recv(s, odd, sk_dst(half), half, half);
    }
    if (c.fold) s->round = 2;
    sk_cube_halve(s, &c, paired ? sk_dst(0) : sk_src(0), sk_dst(0));
    sk_cube_double(s, &c, sk_dst(0));
    if (paired) sk_steps_send(s, odd, sk_dst(0), 0, s->cells);
}

static sk_coll_cost price(const sk_coll_ask *a)
{
    double rounds = sk_log_floor(a->n), p = 1 << sk_log_floor(a->n), part = (p - 1) / p;
    double folds = !sk_power_of_two(a->n);
    return (sk_coll_cost){2 * rounds + 3 * folds, 2 * part + 2 * folds, part + folds / 2};
}

const sk_coll sk_coll_rabenseifner = {
    .name = "rabenseifner",
    .doc = "halving and doubling with the surplus folded; any n (Rabenseifner 2004)",
    .cost = "(2 log n + 3) a + 4S b, less for 2^k",
    .kinds = 1u << SK_ALLREDUCE,
    .order = SK_ORDER_OWN,
    .build = build,
    .price = price,
};
