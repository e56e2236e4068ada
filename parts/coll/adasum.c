/* adasum.c - the all-reduce of SK_ADASUM (Maleki et al. 2021): recursive doubling.
 *
 * A combination needs the products of whole vectors (coll/adasum_kernel.h), so the vector is one
 * chunk: log2 n exchanges of all of it, each followed by a combination that both partners make and
 * that has the same bits on both.  Pairs are (0 1)(2 3) ..., then pairs of pairs: near members,
 * whose vectors travel cheaply, first.  When n is not a power of two, as many of the first
 * members as there are too many are taken by twos: the odd one gives its vector to the even one
 * at first and gets the result at last. */
#include "coll/algorithm.h"

/* What arrives is combined into the other of two cells, because this one is being sent. */
static void exchanges(sk_steps *s, const sk_cube *c)
{
    sk_cell now = sk_dst(0), next = sk_tmp(0);
    for (int d = 0; d < c->log; d++) {
        sk_steps_exchange(s, sk_cube_member(c, c->corner ^ 1 << d), now, next);
        sk_cell was = now;
        now = next;
        next = was;
    }
    if (now.space == SK_TMP) sk_steps_copy(s, sk_dst(0), now, 0, 1);
}

static void build(sk_steps *s)
{
    sk_cube c = sk_cube_folded(&s->ask);
    int me = s->ask.me;
    bool gives = c.corner < 0, takes = !gives && me < 2 * c.fold;
    s->cells = 1;
    if (gives) sk_steps_send(s, me - 1, sk_src(0), 0, 1);
    if (takes) sk_steps_recv_sum(s, me + 1, sk_dst(0), sk_dst(0), 0, 1);
    sk_steps_next(s);
    if (!gives) exchanges(s, &c);
    sk_steps_next(s);
    if (gives) sk_steps_recv(s, me - 1, sk_dst(0), 0, 1);
    if (takes) sk_steps_send(s, me + 1, sk_dst(0), 0, 1);
}

static sk_coll_cost price(const sk_coll_ask *a)
{
    int log = sk_log_floor(a->n), fold = !sk_power_of_two(a->n);
    return (sk_coll_cost){log + 2 * fold, log + 2 * fold, log + fold};
}

const sk_coll sk_coll_adasum = {
    .name = "adasum",
    .doc = "recursive doubling with whole vectors, for Adasum (Maleki et al. 2021)",
    .cost = "log2 n a + S log2 n b; 2 a + 2S b more when n is not a power of two",
    .kinds = 1u << SK_ALLREDUCE,
    .order = SK_ORDER_OWN,
    .build = build,
    .price = price,
    .adasum = true,
};
