/* circulant.c - halving and doubling for any n with work alike on all members (Traeff 2024).
 *
 * Rabenseifner and Traeff (2004) ask for halving that stays balanced where n is not a power of
 * two.  Blocks of powers of two (binary_blocks) leave small blocks idle, folding (rabenseifner)
 * the surplus members.  Here chunks are n, and a member numbers them from its own on.  From n on
 * distances are halved, rounded up: with `far` chunks still open and half of them `near`, a member
 * sends the chunks from `near` on to the member at that distance, for which they are the first
 * ones, and adds as many to its own first ones.  In the end chunk 0, its own, is complete: n - 1
 * chunks were added and sent by every member, the least possible, in log n rounds.  The way back
 * is Bruck's all-gather.  Each chunk is added in an order of its own. */
#include "coll/algorithm.h"

typedef void message(sk_steps *s, int peer, sk_cell at, int chunk, int n);

/* Chunks that follow each other, counted round: one message, or two past the last chunk. */
static void ranged(sk_steps *s, message *act, int peer, sk_space space, int chunk, int n)
{
    int head = n < s->ask.n - chunk ? n : s->ask.n - chunk;
    act(s, peer, (sk_cell){space, chunk}, chunk, head);
    act(s, peer, (sk_cell){space, 0}, 0, n - head);
}

static void send_sums(sk_steps *s, int peer, sk_space from, int chunk, int n)
{
    ranged(s, sk_steps_send, peer, from, chunk, n);
}

static void add_sums(sk_steps *s, int peer, sk_space sums, bool first, int n)
{
    int me = s->ask.me, head = n < s->ask.n - me ? n : s->ask.n - me;
    sk_space with = first ? SK_SRC : sums;
    sk_steps_recv_sum(s, peer, (sk_cell){sums, me}, (sk_cell){with, me}, me, head);
    sk_steps_recv_sum(s, peer, (sk_cell){sums, 0}, (sk_cell){with, 0}, 0, n - head);
}

/* Sums are made in DST, or in TMP where that is one chunk. */
static void reduce_scatter(sk_steps *s)
{
    int n = s->ask.n, me = s->ask.me;
    sk_space sums = s->ask.kind == SK_ALLREDUCE ? SK_DST : SK_TMP;
    for (int far = n; far > 1; far = (far + 1) / 2) {
        int near = (far + 1) / 2, to = (me + near) % n, from = (me + n - near) % n;
        bool first = far == n, last = near == 1;
        send_sums(s, to, first ? SK_SRC : sums, to, far - near);
        if (last && sums == SK_TMP)
            sk_steps_recv_sum(s, from, sk_dst(0), (sk_cell){first ? SK_SRC : SK_TMP, me}, me, 1);
        else add_sums(s, from, sums, first, far - near);
        int middle = (me + near - 1) % n; /* of an odd n: neither sent nor added to */
        if (first && n % 2) sk_steps_copy(s, (sk_cell){sums, middle}, sk_src(middle), middle, 1);
        sk_steps_next(s);
    }
}

static void all_gather(sk_steps *s)
{
    int n = s->ask.n, me = s->ask.me;
    for (int d = sk_log_ceil(n) - 1; d >= 0; d--) {
        int near = (n + (1 << (d + 1)) - 1) >> (d + 1), far = (n + (1 << d) - 1) >> d;
        int from = (me + near) % n;
        ranged(s, sk_steps_send, (me + n - near) % n, SK_DST, me, far - near);
        ranged(s, sk_steps_recv, from, SK_DST, from, far - near);
        sk_steps_next(s);
    }
}

static void build(sk_steps *s)
{
    reduce_scatter(s);
    if (s->ask.kind == SK_ALLREDUCE) all_gather(s);
}

static sk_coll_cost price(const sk_coll_ask *a)
{
    double rounds = sk_log_ceil(a->n), part = (a->n - 1.0) / a->n;
    int ways = a->kind == SK_ALLREDUCE ? 2 : 1;
    return (sk_coll_cost){ways * rounds, ways * part, part};
}

const sk_coll sk_coll_circulant = {
    .name = "circulant",
    .doc = "halving and doubling with work alike on all members; any n (Traeff 2024)",
    .cost = "2 log n a + 2S(n-1)/n b; reduce-scatter half of it",
    .kinds = 1u << SK_ALLREDUCE | 1u << SK_REDUCE_SCATTER,
    .order = SK_ORDER_OWN,
    .build = build,
    .price = price,
};
