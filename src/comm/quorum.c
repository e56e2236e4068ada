/* quorum.c - who commits a step, and reading the weights of a rank while they stay as they are; see
 * quorum.h.
 *
 * The word is `step << 32 | who has come`.  Steps are sealed one after the other, so one word is
 * enough: a rank at a later step than the word's has weights that its step has made, so that step
 * is sealed. */
#include "comm/quorum.h"
#include "comm/endpoint.h"
#include "comm/hang_diagnosis.h"
#include "comm/quorum_block.h"
#include "base/clock.h"

#include <string.h>

enum { CHANGES = -1 }; /* sk_quorum_rank.readers: the weights change */

static sk_quorum_rank *rank_of(const sk_comm *c, int rank) { return &c->heaps->quorum->rank[rank]; }

static void ring_all(const sk_comm *c)
{
    for (int r = 0; r < c->n_ranks; r++)
        if (r != c->rank) sk_bell_ring(sk_heaps_bell(c->heaps, r));
}

void sk_quorum_begin(sk_comm *c, int64_t step)
{
    sk_quorum_rank *me = rank_of(c, c->rank);
    sk_assert(c->n_ranks <= SK_QUORUM_RANKS);
    atomic_store(&me->at, (unsigned long long)step);
    ring_all(c);
}

bool sk_quorum_over(const sk_comm *c, int64_t step)
{
    return sk_reached(&c->heaps->quorum->sealed, (uint64_t)step + 1);
}

double *sk_quorum_sums(const sk_comm *c, int rank) { return rank_of(c, rank)->sums; }

/* --- ranks that are behind --- */

static sk_status does_nothing(sk_comm *c, int rank, int64_t behind, double seconds)
{
    const sk_rank_state *l = sk_heaps_rank_state(c->heaps, rank);
    return sk_comm_report(
        c, sk_fail(SK_EPEER,
                   "rank %d (pid %lld) has done nothing for %.3g s, and is %lld step%s behind: it "
                   "hangs, is stopped, or is slower than comm.timeout=%g allows",
                   rank, (long long)atomic_load(&l->pid), seconds, (long long)behind,
                   behind == 1 ? "" : "s", c->timeout_s));
}

/* It waits for another rank, up to a timeout of its own: in a replay for a turn that is far away.
 */
static bool waits(const sk_rank_state *l)
{
    return atomic_load_explicit(&l->waits_for, memory_order_relaxed) >= 0 &&
           sk_process_state(l) != 'T';
}

sk_status sk_quorum_look(sk_comm *c, int64_t step)
{
    double now = sk_now();
    for (int r = 0; r < c->n_ranks; r++) {
        sk_seen_rank *s = &c->seen[r];
        const sk_rank_state *l = sk_heaps_rank_state(c->heaps, r);
        int64_t at = (int64_t)atomic_load(&rank_of(c, r)->at);
        long long beat = atomic_load_explicit(&l->heartbeat, memory_order_relaxed);
        if (at >= step || beat != s->heartbeat || s->looked <= 0 || now - s->looked > c->timeout_s)
            s->heartbeat = beat, s->since = now; /* I was away myself for so long: begin anew */
        s->looked = now;
        if (c->timeout_s <= 0 || now - s->since <= c->timeout_s) continue;
        if (!waits(l)) return does_nothing(c, r, step - at, now - s->since);
        s->since = now;
    }
    return SK_OK;
}

/* All are near enough to step `step`, which is about to begin. */
static sk_status await_window(sk_comm *c, int64_t step)
{
    for (int r = 0; r < c->n_ranks && step + 2 > SK_QUORUM_WINDOW; r++)
        if (r != c->rank)
            SK_TRY(sk_await(c, &rank_of(c, r)->at, (uint64_t)step + 2 - SK_QUORUM_WINDOW, r));
    return SK_OK;
}

/* --- arriving --- */

static bool is_complete(const sk_quorum_ask *q, unsigned set)
{
    return q->imposed ? set == q->imposed : __builtin_popcount(set) >= q->need;
}

static sk_status seal(sk_comm *c, const sk_quorum_ask *q, unsigned set)
{
    sk_quorum_block *b = c->heaps->quorum;
    b->set[q->step % SK_QUORUM_WINDOW] = set;
    if (q->seal) SK_TRY(q->seal(q->ctx, q->step, set));
    atomic_store(&b->sealed, (unsigned long long)q->step + 1);
    ring_all(c);
    return SK_OK;
}

/* A rank that has not come, for error reports. */
static int absent(const sk_comm *c, unsigned set)
{
    for (int r = 0; r < c->n_ranks; r++)
        if (!(set >> r & 1)) return r;
    return -1;
}

static sk_status await_seal(sk_comm *c, const sk_quorum_ask *q)
{
    sk_quorum_block *b = c->heaps->quorum;
    sk_backoff p = {.peer = -1};
    sk_status st = SK_OK;
    while (!st && !sk_quorum_over(c, q->step)) {
        unsigned come = (unsigned)atomic_load(&b->word);
        p.peer = absent(c, come | (q->imposed ? ~q->imposed : 0));
        st = sk_backoff_wait(c, &p);
    }
    sk_backoff_end(c, &p);
    return st;
}

sk_status sk_quorum_arrive(sk_comm *c, const sk_quorum_ask *q, unsigned *set)
{
    sk_quorum_block *b = c->heaps->quorum;
    unsigned mine = 1u << c->rank;
    unsigned long long word = atomic_load(&b->word), next;
    SK_TRY(sk_quorum_look(c, q->step));
    *set = 0;
    if (q->imposed && !(q->imposed & mine)) return SK_OK;
    do {
        int64_t at = (int64_t)(word >> 32);
        unsigned come = at == q->step ? (unsigned)word : 0;
        if (at > q->step || (at == q->step && is_complete(q, come))) return SK_OK;
        if (at < q->step) SK_TRY(await_window(c, q->step));
        next = (unsigned long long)q->step << 32 | come | mine;
    } while (!atomic_compare_exchange_strong(&b->word, &word, next));
    if (is_complete(q, (unsigned)next)) SK_TRY(seal(c, q, (unsigned)next));
    else SK_TRY(await_seal(c, q));
    *set = b->set[q->step % SK_QUORUM_WINDOW];
    return SK_OK;
}

sk_status sk_quorum_meet(sk_comm *c, int64_t step, unsigned set, int time)
{
    uint64_t count = 2 * (uint64_t)step + (uint64_t)time;
    atomic_store(&rank_of(c, c->rank)->met, count);
    ring_all(c);
    for (int r = 0; r < c->n_ranks; r++)
        if (set >> r & 1) SK_TRY(sk_await(c, &rank_of(c, r)->met, count, r));
    return SK_OK;
}

/* --- weights that stay as they are --- */

static int reader_of(const sk_comm *c)
{
    for (int r = 0; r < c->n_ranks; r++)
        if (atomic_load(&rank_of(c, r)->reads) == c->rank + 1) return r;
    return -1;
}

sk_status sk_quorum_change(sk_comm *c)
{
    sk_quorum_rank *me = rank_of(c, c->rank);
    sk_backoff p = {.peer = -1};
    sk_status st = SK_OK;
    for (int none = 0; !st && !atomic_compare_exchange_strong(&me->readers, &none, CHANGES);
         none = 0) {
        p.peer = reader_of(c);
        st = sk_backoff_wait(c, &p);
    }
    sk_backoff_end(c, &p);
    return st;
}

void sk_quorum_changed(sk_comm *c, int64_t done, const void *result, size_t bytes)
{
    sk_quorum_rank *me = rank_of(c, c->rank);
    sk_assert(done > 0 && bytes <= SK_QUORUM_RESULT);
    memcpy(me->result[(done - 1) % SK_QUORUM_WINDOW], result, bytes);
    atomic_store(&me->done, (unsigned long long)done);
    atomic_store(&me->readers, 0);
    ring_all(c);
}

/* The rank with the newest weights, if they are new enough and do not change just now. */
static bool try_borrow(sk_comm *c, int64_t least, int *from, int64_t *done)
{
    *from = -1;
    for (int r = 0; r < c->n_ranks; r++) {
        int64_t has = (int64_t)atomic_load(&rank_of(c, r)->done);
        if (r != c->rank && has >= least && (*from < 0 || has > *done)) *from = r, *done = has;
    }
    if (*from < 0) return false;
    sk_quorum_rank *m = rank_of(c, *from);
    int readers = atomic_load(&m->readers);
    atomic_store(&rank_of(c, c->rank)->reads, *from + 1); /* first: who waits for me can name me */
    while (readers != CHANGES)
        if (atomic_compare_exchange_strong(&m->readers, &readers, readers + 1)) {
            *done = (int64_t)atomic_load(&m->done);
            return true;
        }
    atomic_store(&rank_of(c, c->rank)->reads, 0);
    return false;
}

/* One of those who made the step and have not taken it in yet. */
static int member_of(const sk_comm *c, int64_t step)
{
    if (!sk_quorum_over(c, step)) return -1; /* the set is written until then */
    unsigned set = c->heaps->quorum->set[step % SK_QUORUM_WINDOW] & ~(1u << c->rank);
    return set ? __builtin_ctz(set) : -1;
}

sk_status sk_quorum_borrow(sk_comm *c, int64_t least, int *from, int64_t *done)
{
    sk_backoff p = {.peer = -1};
    sk_status st = SK_OK;
    while (!st && !try_borrow(c, least, from, done)) {
        p.peer = *from >= 0 ? *from : member_of(c, least - 1);
        st = sk_backoff_wait(c, &p);
    }
    sk_backoff_end(c, &p);
    return st;
}

/* Nobody reads my slots of steps that my weights have not taken in. */
const void *sk_quorum_result(sk_comm *c, int from, int64_t step)
{
    int64_t slot = step % SK_QUORUM_WINDOW;
    void *mine = rank_of(c, c->rank)->result[slot];
    return memcpy(mine, rank_of(c, from)->result[slot], SK_QUORUM_RESULT);
}

void sk_quorum_return(sk_comm *c, int from)
{
    atomic_store(&rank_of(c, c->rank)->reads, 0);
    atomic_fetch_sub(&rank_of(c, from)->readers, 1);
    sk_bell_ring(sk_heaps_bell(c->heaps, from));
}
