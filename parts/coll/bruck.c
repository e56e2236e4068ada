/* bruck.c - log n rounds for any n (Bruck, Ho, Kipnis, Upfal and Weathersby 1997).
 *
 * All-gather: after round d a member has the 2^(d+1) chunks from its own on, and so
 * each is received straight into its place; a stretch that passes chunk n - 1 is two
 * messages.
 *
 * All-to-all: what must travel the distance j goes in the rounds of the bits of j,
 * packed with all others of the round into one message.  Every chunk is sent up to
 * log n times: for short ones. */
#include "coll/algorithm.h"

/* --- all-gather --- */

typedef void message(sk_steps *s, int peer, sk_cell at, int chunk, int n);
static void ranged(sk_steps *s, message *act, int peer, int chunk, int n)
{
    int head = n < s->ask.n - chunk ? n : s->ask.n - chunk;
    act(s, peer, sk_dst(chunk), chunk, head);
    act(s, peer, sk_dst(0), 0, n - head);
}

static void all_gather(sk_steps *s)
{
    int n = s->ask.n, me = s->ask.me;
    for (int have = 1; have < n; have *= 2) {
        int to = (me + n - have) % n, from = (me + have) % n;
        int more = have < n - have ? have : n - have;
        if (have == 1) sk_steps_send(s, to, sk_src(0), me, 1);
        else ranged(s, sk_steps_send, to, me, more);
        ranged(s, sk_steps_recv, from, from, more);
        if (have == 1) sk_steps_copy(s, sk_dst(me), sk_src(0), me, 1);
        sk_steps_next(s);
    }
}

/* --- all-to-all --- */

/* How many of the distances below n have the bit d. */
static int travellers(int n, int d)
{
    int whole = n >> (d + 1) << d, rest = (n & ((2 << d) - 1)) - (1 << d);
    return whole + (rest > 0 ? rest : 0);
}

/* TMP: [j] what is on its way and has come the lower bits of j; behind them what goes out in this
 * round, behind that what comes in.  Chunks all have one size, their numbers mean nothing. */
static void hop(sk_steps *s, int d)
{
    int n = s->ask.n, me = s->ask.me, count = travellers(n, d), at = 0;
    sk_cell out = sk_tmp(n), in = sk_tmp(n + count);
    for (int j = 1 << d; j < n; j++) {
        if (!(j >> d & 1)) continue;
        bool fresh = !(j & ((1 << d) - 1));
        sk_steps_copy(s, sk_cell_at(out, at++), fresh ? sk_src((me + j) % n) : sk_tmp(j), 0, 1);
    }
    sk_steps_next(s);
    sk_steps_send(s, (me + (1 << d)) % n, out, 0, count);
    sk_steps_recv(s, (me + n - (1 << d)) % n, in, 0, count);
    at = 0;
    for (int j = 1 << d; j < n; j++) {
        if (!(j >> d & 1)) continue;
        bool there = !(j >> (d + 1));
        sk_steps_copy(s, there ? sk_dst((me + n - j) % n) : sk_tmp(j), sk_cell_at(in, at++), 0, 1);
    }
    sk_steps_next(s);
}

static void build(sk_steps *s)
{
    if (s->ask.kind == SK_ALLGATHER) {
        all_gather(s);
        return;
    }
    sk_steps_copy(s, sk_dst(s->ask.me), sk_src(s->ask.me), 0, 1);
    for (int d = 0; 1 << d < s->ask.n; d++) hop(s, d);
}

static sk_coll_cost price(const sk_coll_ask *a)
{
    double n = a->n, moved = n - 1;
    int rounds = sk_log_ceil(a->n);
    if (a->kind == SK_ALLTOALL) {
        moved = 0;
        for (int d = 0; d < rounds; d++) moved += travellers(a->n, d);
    }
    return (sk_coll_cost){rounds, moved / n, 0};
}

const sk_coll sk_coll_bruck = {
    .name = "bruck",
    .doc = "all-gather and all-to-all in log n rounds; any n (Bruck and others 1997)",
    .cost = "log n a + S(n-1)/n b, all-to-all log n a + S (log n)/2 b",
    .kinds = 1u << SK_ALLGATHER | 1u << SK_ALLTOALL,
    .order = SK_ORDER_TREE, /* nothing is added */
    .build = build,
    .price = price,
};
