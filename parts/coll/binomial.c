/* binomial.c - binomial trees, distance 1 first on the way up.
 *
 * Up: in round d the members whose number ends in 1 and d zeros give what they have
 * to the one 2^d below: after it every 2^(d+1)-th holds its block, and for any n the
 * sums are those of the tree, at member 0.  A reduce therefore always goes to member
 * 0, and once more to another root: order is worth a message.  What adds nothing
 * (gather, and the ways down) turns the tree so that the root is number 0. */
#include "coll/algorithm.h"

static int turned(const sk_coll_ask *a, int member) { return (member + a->n - a->root) % a->n; }
static int member_of(const sk_coll_ask *a, int v) { return (v + a->root) % a->n; }

/* The distance at which number v gives upwards; for 0 one that is beyond all. */
static int reach(const sk_coll_ask *a, int v) { return v ? v & -v : 1 << sk_log_ceil(a->n); }

static int least(int x, int y) { return x < y ? x : y; }

/* --- whole vectors --- */

/* Leaves the sum in cell `acc` of member 0; another with children uses it on the way. */
static void up(sk_steps *s, sk_cell acc)
{
    const sk_coll_ask *a = &s->ask;
    sk_cell have = sk_src(0);
    for (int d = 1; d < reach(a, a->me); d *= 2, sk_steps_next(s)) {
        if (a->me + d >= a->n) continue;
        sk_steps_recv_sum(s, a->me + d, acc, have, 0, 1);
        have = acc;
    }
    if (a->me) sk_steps_send(s, a->me - reach(a, a->me), have, 0, 1);
}

static void down(sk_steps *s, sk_cell have)
{
    const sk_coll_ask *a = &s->ask;
    int v = turned(a, a->me), mine = reach(a, v), first = s->round;
    int rounds = sk_log_ceil(a->n);
    if (v) {
        s->round = first + rounds - 1 - sk_log_floor(mine);
        sk_steps_recv(s, member_of(a, v - mine), have = sk_dst(0), 0, 1);
    }
    for (int d = mine / 2; d; d /= 2) {
        s->round = first + rounds - 1 - sk_log_floor(d);
        if (v + d < a->n) sk_steps_send(s, member_of(a, v + d), have, 0, 1);
    }
}

static void reduce(sk_steps *s)
{
    const sk_coll_ask *a = &s->ask;
    bool direct = a->root == 0 && a->me == 0;
    up(s, direct ? sk_dst(0) : sk_tmp(0));
    s->round = sk_log_ceil(a->n);
    if (a->root == 0) return;
    if (a->me == 0) sk_steps_send(s, a->root, sk_tmp(0), 0, 1);
    if (a->me == a->root) sk_steps_recv(s, 0, sk_dst(0), 0, 1);
}

static void all_reduce(sk_steps *s)
{
    s->ask.root = 0;
    up(s, sk_dst(0));
    s->round = sk_log_ceil(s->ask.n);
    down(s, sk_dst(0));
}

/* --- chunks --- */

/* Messages of the chunks of the numbers v, v + 1, ...: two where they pass member n - 1. */
typedef void message(sk_steps *s, int peer, sk_cell at, int chunk, int n);
static void ranged(sk_steps *s, message *act, int peer, sk_cell at, int v, int n)
{
    int chunk = member_of(&s->ask, v), head = least(n, s->ask.n - chunk);
    bool in_place = at.space != SK_TMP; /* the cell of a chunk has its number */
    act(s, peer, in_place ? sk_cell_at(at, chunk) : at, chunk, head);
    if (head < n) act(s, peer, in_place ? at : sk_cell_at(at, head), 0, n - head);
}

/* A member keeps what it gathers in TMP, its own chunk first; the root in DST. */
static void gather(sk_steps *s)
{
    const sk_coll_ask *a = &s->ask;
    int v = turned(a, a->me), mine = reach(a, v), n = least(mine, a->n - v);
    for (int d = 1; d < mine; d *= 2, sk_steps_next(s)) {
        if (v + d >= a->n) continue;
        sk_cell into = v ? sk_tmp(d) : sk_dst(0);
        ranged(s, sk_steps_recv, member_of(a, v + d), into, v + d, least(d, a->n - v - d));
        if (d == 1) sk_steps_copy(s, v ? sk_tmp(0) : sk_dst(a->me), sk_src(0), a->me, 1);
    }
    if (!v) return;
    if (n == 1) sk_steps_send(s, member_of(a, v - mine), sk_src(0), a->me, 1);
    else ranged(s, sk_steps_send, member_of(a, v - mine), sk_tmp(0), v, n);
}

static void scatter(sk_steps *s)
{
    const sk_coll_ask *a = &s->ask;
    int v = turned(a, a->me), mine = reach(a, v), n = least(mine, a->n - v);
    int rounds = sk_log_ceil(a->n);
    s->round = rounds - 1 - sk_log_floor(mine);
    if (v && n == 1) sk_steps_recv(s, member_of(a, v - mine), sk_dst(0), a->me, 1);
    else if (v) ranged(s, sk_steps_recv, member_of(a, v - mine), sk_tmp(0), v, n);
    for (int d = mine / 2; d; d /= 2) {
        s->round = rounds - 1 - sk_log_floor(d);
        if (v + d >= a->n) continue;
        sk_cell from = v ? sk_tmp(d) : sk_src(0);
        ranged(s, sk_steps_send, member_of(a, v + d), from, v + d, least(d, a->n - v - d));
    }
    if (n > 1) sk_steps_copy(s, sk_dst(0), v ? sk_tmp(0) : sk_src(a->me), a->me, 1);
}

static void build(sk_steps *s)
{
    sk_coll_kind kind = s->ask.kind;
    if (kind == SK_GATHER) gather(s);
    if (kind == SK_SCATTER) scatter(s);
    if (kind == SK_GATHER || kind == SK_SCATTER) return;
    s->cells = 1;
    if (kind == SK_REDUCE) reduce(s);
    if (kind == SK_ALLREDUCE) all_reduce(s);
    if (kind == SK_BROADCAST) down(s, sk_src(0));
}

static sk_coll_cost price(const sk_coll_ask *a)
{
    double n = a->n, log = sk_log_ceil(a->n), more = a->root != 0;
    switch (a->kind) {
    case SK_ALLREDUCE:
        return (sk_coll_cost){2 * log, 2 * log, log};
    case SK_REDUCE:
        return (sk_coll_cost){log + more, log + more, log};
    case SK_BROADCAST:
        return (sk_coll_cost){log, log, 0};
    default:
        return (sk_coll_cost){log, (n - 1) / n, 0};
    }
}

const sk_coll sk_coll_binomial = {
    .name = "binomial",
    .doc = "binomial trees, sums as the tree's; any n (Thakur, Rabenseifner and Gropp 2005)",
    .cost = "log n a + S log n b, all-reduce twice; gather, scatter log n a + S(n-1)/n b",
    .kinds = 1u << SK_ALLREDUCE | 1u << SK_BROADCAST | 1u << SK_REDUCE | 1u << SK_GATHER |
             1u << SK_SCATTER,
    .order = SK_ORDER_TREE,
    .build = build,
    .price = price,
};
