/* ring.c - chunks go round (Patarasuk and Yuan 2009; Gibiansky 2017, Baidu).
 *
 * Every member talks to its two neighbours only.  In the first n - 1 rounds a chunk
 * visits all members and is added to on its way, beginning behind its owner; in the
 * other n - 1 the sums go round.  Fewest bytes, and the kindest to links, but each
 * chunk is added in an order of its own. */
#include "coll/algorithm.h"

static int back(const sk_coll_ask *a, int d) { return (a->me + 2 * a->n - d) % a->n; }

/* Where the sum of a round is kept: what was sent on in the round before is free again. */
static sk_cell sum_at(const sk_coll_ask *a, int t, int chunk)
{
    if (a->kind == SK_ALLREDUCE) return sk_dst(chunk);
    return t == a->n - 2 ? sk_dst(0) : sk_tmp(t % 2);
}

static void reduce_scatter(sk_steps *s)
{
    const sk_coll_ask *a = &s->ask;
    sk_cell have = sk_src(back(a, 1));
    for (int t = 0; t < a->n - 1; t++) {
        int give = back(a, t + 1), get = back(a, t + 2);
        sk_steps_send(s, (a->me + 1) % a->n, have, give, 1);
        have = sum_at(a, t, get);
        sk_steps_recv_sum(s, back(a, 1), have, sk_src(get), get, 1);
        sk_steps_next(s);
    }
}

static void all_gather(sk_steps *s, sk_cell mine)
{
    const sk_coll_ask *a = &s->ask;
    for (int t = 0; t < a->n - 1; t++) {
        int give = back(a, t), get = back(a, t + 1);
        sk_steps_send(s, (a->me + 1) % a->n, t ? sk_dst(give) : mine, give, 1);
        sk_steps_recv(s, back(a, 1), sk_dst(get), get, 1);
        if (!t && mine.space == SK_SRC) sk_steps_copy(s, sk_dst(a->me), mine, a->me, 1);
        sk_steps_next(s);
    }
}

static void build(sk_steps *s)
{
    sk_coll_kind kind = s->ask.kind;
    if (kind != SK_ALLGATHER) reduce_scatter(s);
    if (kind == SK_ALLREDUCE) all_gather(s, sk_dst(s->ask.me));
    if (kind == SK_ALLGATHER) all_gather(s, sk_src(0));
}

static sk_coll_cost price(const sk_coll_ask *a)
{
    double n = a->n, part = (n - 1) / n;
    if (a->kind == SK_ALLREDUCE) return (sk_coll_cost){2 * (n - 1), 2 * part, part};
    return (sk_coll_cost){n - 1, part, a->kind == SK_REDUCE_SCATTER ? part : 0};
}

const sk_coll sk_coll_ring = {
    .name = "ring",
    .doc = "chunks go round between neighbours; any n (Patarasuk and Yuan 2009, Baidu 2017)",
    .cost = "2(n-1) a + 2S(n-1)/n b",
    .kinds = 1u << SK_ALLREDUCE | 1u << SK_REDUCE_SCATTER | 1u << SK_ALLGATHER,
    .order = SK_ORDER_OWN,
    .build = build,
    .price = price,
};
