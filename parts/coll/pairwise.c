/* pairwise.c - one partner after the other (Thakur, Rabenseifner and Gropp 2005).
 *
 * In round t a member sends to the one t after it and receives from the one t
 * before it: everybody's link is always full and nobody is stormed.  A
 * reduce-scatter adds as chunks arrive, in an order of its own. */
#include "coll/algorithm.h"

static void build(sk_steps *s)
{
    int n = s->ask.n, me = s->ask.me;
    bool sums = s->ask.kind == SK_REDUCE_SCATTER;
    for (int t = 1; t < n; t++) {
        int to = (me + t) % n, from = (me + n - t) % n;
        sk_steps_send(s, to, sk_src(to), sums ? to : me, 1);
        if (sums) sk_steps_recv_sum(s, from, sk_dst(0), t == 1 ? sk_src(me) : sk_dst(0), me, 1);
        else sk_steps_recv(s, from, sk_dst(from), from, 1);
        if (t == 1 && !sums) sk_steps_copy(s, sk_dst(me), sk_src(me), me, 1);
        sk_steps_next(s);
    }
}

static sk_coll_cost price(const sk_coll_ask *a)
{
    double n = a->n, part = (n - 1) / n;
    return (sk_coll_cost){n - 1, part, a->kind == SK_REDUCE_SCATTER ? part : 0};
}

const sk_coll sk_coll_pairwise = {
    .name = "pairwise",
    .doc = "one partner after the other; any n (Thakur, Rabenseifner and Gropp 2005)",
    .cost = "(n-1) a + S(n-1)/n b",
    .kinds = 1u << SK_ALLTOALL | 1u << SK_REDUCE_SCATTER,
    .order = SK_ORDER_OWN,
    .build = build,
    .price = price,
};
