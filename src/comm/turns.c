/* turns.c - see turns.h. */
#include "comm/turns.h"
#include "comm/endpoint.h"
#include "comm/quorum_block.h"

static sk_quorum_rank *rank_of(const sk_comm *c, int rank) { return &c->heaps->quorum->rank[rank]; }

static void ring_all(const sk_comm *c)
{
    for (int r = 0; r < c->n_ranks; r++)
        if (r != c->rank) sk_bell_ring(sk_heaps_bell(c->heaps, r));
}

/* A run that is resumed has steps behind it. */
void sk_turn_begin(sk_comm *c, int64_t step)
{
    sk_quorum_begin(c, step);
    sk_turn_done(c, step);
}

void sk_turn_done(sk_comm *c, int64_t steps)
{
    atomic_store(&rank_of(c, c->rank)->done, (unsigned long long)steps);
    ring_all(c);
}

int64_t sk_turn_ahead(const sk_comm *c)
{
    int64_t most = 0;
    for (int r = 0; r < c->n_ranks; r++) {
        int64_t done = (int64_t)atomic_load(&rank_of(c, r)->done);
        if (done > most) most = done;
    }
    return most;
}

sk_status sk_turn_bound(sk_comm *c, int64_t step, int most)
{
    SK_TRY(sk_quorum_look(c, step));
    for (int r = 0; most >= 0 && r < c->n_ranks; r++)
        if (r != c->rank && step > most)
            SK_TRY(sk_await(c, &rank_of(c, r)->done, (uint64_t)(step - most), r));
    return SK_OK;
}

sk_status sk_turn_settle(sk_comm *c)
{
    unsigned long long mine = atomic_load(&rank_of(c, c->rank)->done), its;
    for (int r = 0; r < c->n_ranks; r++)
        while ((its = atomic_load(&rank_of(c, r)->done)) < mine)
            SK_TRY(sk_await(c, &rank_of(c, r)->done, its + 1, r));
    return SK_OK;
}

sk_turn_state *sk_turn_state_of(sk_comm *c) { return &c->heaps->quorum->state; }

static int64_t ask(sk_comm *c)
{
    sk_quorum_block *b = c->heaps->quorum;
    unsigned long long ticket = atomic_fetch_add(&b->tickets, 1);
    atomic_store(&b->asked[ticket % SK_QUORUM_RANKS], c->rank + 1);
    return (int64_t)ticket;
}

/* Another rank that does not wait; -1: all do. */
static int busy(const sk_comm *c)
{
    for (int r = 0; r < c->n_ranks; r++) {
        const sk_rank_state *l = sk_heaps_rank_state(c->heaps, r);
        if (r != c->rank && atomic_load_explicit(&l->waits_for, memory_order_relaxed) < 0) return r;
    }
    return -1;
}

/* Whose turn it is, also if it has not come yet.  In a replay nobody has asked for the next one: a
 * rank that does not wait, itself.  -1: nobody's. */
static int whose(const sk_comm *c)
{
    const sk_quorum_block *b = c->heaps->quorum;
    unsigned long long over = atomic_load(&b->over), tickets = atomic_load(&b->tickets);
    int rank = atomic_load(&b->holder) - 1;
    if (rank < 0 && over < tickets) rank = atomic_load(&b->asked[over % SK_QUORUM_RANKS]) - 1;
    else if (rank < 0) rank = busy(c);
    return rank == c->rank ? -1 : rank;
}

sk_status sk_turn_take(sk_comm *c, int64_t first, int64_t turn, int64_t *got)
{
    sk_quorum_block *b = c->heaps->quorum;
    sk_backoff p = {.peer = -1};
    sk_status st = SK_OK;
    int64_t at, was = -1;
    *got = turn >= 0 ? turn : first + ask(c);
    while (!st && (at = (int64_t)atomic_load(&b->over)) + first != *got) {
        if (at != was) sk_backoff_end(c, &p); /* each turn of another has a timeout of its own */
        was = at;
        p.peer = whose(c);
        st = sk_backoff_wait(c, &p);
    }
    sk_backoff_end(c, &p);
    if (!st) atomic_store(&b->holder, c->rank + 1);
    return st;
}

void sk_turn_end(sk_comm *c)
{
    sk_quorum_block *b = c->heaps->quorum;
    sk_assert(atomic_load(&b->holder) == c->rank + 1);
    atomic_store(&b->holder, 0);
    atomic_fetch_add(&b->over, 1);
    ring_all(c);
}
