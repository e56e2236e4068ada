/* shm_sync.c - members of one host meet over a call: tiny operands, flags, tickets (shm_sync.h). */
#include "comm/endpoint.h"

enum {
    ALL_AT_ONCE = 32 << 10
}; /* bytes read of all members, below which one rank does all shares */

static sk_group_slot *slot_of(const sk_comm *c, const sk_group_state *m, int group, int i)
{
    return sk_heaps_slot(c->heaps, m->group.ranks[i], group);
}

static void ring_others(sk_comm *c, const sk_group_state *m)
{
    for (int i = 0; i < m->group.n; i++)
        if (i != m->group.me) sk_bell_ring(sk_heaps_bell(c->heaps, m->group.ranks[i]));
}

static const void *call_at(const sk_comm *c, const sk_group_state *m, int i, int64_t at)
{
    return c->heaps->base[m->group.ranks[i]] + at;
}

static void post(sk_comm *c, const sk_group_state *m, const sk_sync *k, uint64_t number)
{
    sk_group_slot *s = slot_of(c, m, k->group, m->group.me);
    s->call[number % SK_COMM_FLIGHT] = k->at;
    s->sign[number % SK_COMM_FLIGHT] = k->sign;
}

/* Fills c->peers with what each member posted, if it is what I posted. */
static sk_status agree(sk_comm *c, const sk_group_state *m, const sk_sync *k, uint64_t number)
{
    for (int i = 0; i < m->group.n; i++) {
        const sk_group_slot *s = slot_of(c, m, k->group, i);
        c->peers[i] = call_at(c, m, i, s->call[number % SK_COMM_FLIGHT]);
        if (s->sign[number % SK_COMM_FLIGHT] != k->sign)
            return c->client->differ(c, k, m->group.ranks[i], c->peers[i]);
    }
    return SK_OK;
}

/* --- tiny --- */

static sk_status await_tiny(sk_comm *c, const sk_group_state *m, int group, int i, uint64_t t)
{
    return sk_await(c, &slot_of(c, m, group, i)->tiny[t % SK_TINY_SLOTS].seq, t, m->group.ranks[i]);
}

static void show(sk_comm *c, const sk_group_state *m, const sk_sync *k, uint64_t t)
{
    sk_tiny *mine = &slot_of(c, m, k->group, m->group.me)->tiny[t % SK_TINY_SLOTS];
    c->client->show(c, k, mine->data);
    mine->sign = k->sign;
    mine->call = k->at;
    sk_raise(c, &mine->seq, t);
    ring_others(c, m);
}

static sk_status tiny(sk_comm *c, sk_group_state *m, const sk_sync *k)
{
    const sk_group *g = &m->group;
    int group = k->group;
    uint64_t t = ++m->tiny;
    if (m->together + SK_TINY_SLOTS <= t) { /* is everybody done with what I write over? */
        for (int i = 0; i < g->n; i++)
            if (i != g->me) SK_TRY(await_tiny(c, m, group, i, t - SK_TINY_SLOTS + 1));
        m->together = t - SK_TINY_SLOTS + 1;
    }
    show(c, m, k, t);
    for (int j = 0; j < g->n; j++) {
        int i = (g->me + j) % g->n;
        const sk_tiny *theirs = &slot_of(c, m, group, i)->tiny[t % SK_TINY_SLOTS];
        c->shown[i] = theirs->data;
        if (j && !c->client->needs(c, k, i)) continue;
        SK_TRY(await_tiny(c, m, group, i, t));
        if (theirs->sign != k->sign)
            return c->client->differ(c, k, g->ranks[i], call_at(c, m, i, theirs->call));
    }
    if (!k->rooted) m->together = t;
    c->client->result(c, k, c->shown);
    return SK_OK;
}

/* --- flags --- */

static sk_status await_all(sk_comm *c, const sk_group_state *m, int group, bool done)
{
    for (int j = 1; j < m->group.n; j++) { /* beginning after me, so that not all eye the same */
        int i = (m->group.me + j) % m->group.n;
        const sk_group_slot *s = slot_of(c, m, group, i);
        SK_TRY(sk_await(c, done ? &s->done : &s->posted, m->waited + 1, m->group.ranks[i]));
    }
    return SK_OK;
}

static sk_status by_flags(sk_comm *c, sk_group_state *m, const sk_sync *k)
{
    int group = k->group;
    SK_TRY(await_all(c, m, group, false));
    SK_TRY(agree(c, m, k, m->waited));
    c->client->share(c, k, c->peers, m->group.me);
    sk_raise(c, &slot_of(c, m, group, m->group.me)->done, m->waited + 1);
    ring_others(c, m);
    return await_all(c, m, group, true);
}

/* --- tickets --- */

/* A rank that may not have come, for error reports; the counter tells only how many did. */
static int somebody(const sk_comm *c, const sk_group_state *m, int group)
{
    for (int i = 0; i < m->group.n; i++) {
        uint64_t posted =
            atomic_load_explicit(&slot_of(c, m, group, i)->posted, memory_order_relaxed);
        if (i != m->group.me && posted <= m->waited) return m->group.ranks[i];
    }
    return m->group.ranks[(m->group.me + 1) % m->group.n];
}

/* Shares [*from, the result) are mine to do; none: nothing is left. */
static uint64_t take(atomic_ullong *taken, uint64_t end, bool all, uint64_t *from)
{
    unsigned long long next = atomic_load_explicit(taken, memory_order_relaxed);
    while (next < end) {
        uint64_t to = all ? end : next + 1;
        if (!atomic_compare_exchange_weak(taken, &next, to)) continue;
        *from = next;
        return to;
    }
    *from = end;
    return end;
}

/* Where the members' calls lie.  Reading it costs a cache line of each, so it is remembered: if the
 * sum of what everybody says is the same as then, nothing has changed. */
static sk_status look_up(sk_comm *c, sk_group_state *m, sk_sync *k, const sk_ticket_counts *t,
                         size_t at, int odd, const void *const **peers)
{
    uint64_t sum = atomic_load(&t->signs[odd]) - m->before[at][odd];
    *peers = k->known;
    if (m->seen[at][odd] && k->signs == sum) return SK_OK;
    SK_TRY(agree(c, m, k, m->waited));
    *peers = c->peers;
    if (!m->seen[at][odd]) return SK_OK;
    memcpy(k->known, c->peers, sizeof *c->peers * (size_t)m->group.n);
    k->signs = sum;
    return SK_OK;
}

static sk_status by_tickets(sk_comm *c, sk_group_state *m, sk_sync *k)
{
    const sk_group *g = &m->group;
    int group = k->group, n = g->n;
    uint64_t number = m->lap[m->waited % SK_COMM_FLIGHT], lap = number / SK_COMM_FLIGHT;
    uint64_t end = (lap + 1) * (uint64_t)n, from = 0, to = 0;
    size_t at = number % SK_COMM_FLIGHT;
    int odd = (int)(lap & 1);
    sk_ticket_counts *t = &slot_of(c, m, group, 0)->meeting[at];
    if (!sk_reached(&t->came, end)) SK_TRY(sk_await(c, &t->came, end, somebody(c, m, group)));
    const void *const *peers = NULL;
    for (bool first = true;
         (to = take(&t->taken, end, k->bytes * n < ALL_AT_ONCE, &from)) > from;) {
        if (first) SK_TRY(look_up(c, m, k, t, at, odd, &peers));
        first = false;
        for (uint64_t u = from; u < to; u++) c->client->share(c, k, peers, (int)(u % (uint64_t)n));
        if (atomic_fetch_add(&t->finished, to - from) + to - from == end) ring_others(c, m);
    }
    if (!sk_reached(&t->finished, end))
        SK_TRY(sk_await(c, &t->finished, end, somebody(c, m, group)));
    m->before[at][odd] = atomic_load(&t->signs[odd]);
    m->seen[at][odd] = true;
    return SK_OK;
}

/* --- all of them --- */

void sk_sync_open(sk_comm *c, int group)
{
    sk_group_state *m = &c->groups[group];
    sk_group_slot *s = slot_of(c, m, group, m->group.me);
    atomic_store(&s->members, m->hash);
    for (int i = 0; i < SK_TINY_SLOTS; i++)
        if (sk_own_count(&s->tiny[i].seq) > m->tiny) m->tiny = sk_own_count(&s->tiny[i].seq);
    m->posted = m->waited = sk_own_count(&s->posted);
    m->met = sk_own_count(&s->met);
}

void sk_sync_start(sk_comm *c, sk_group_state *m, const sk_sync *k)
{
    int group = k->group;
    sk_assert(m->here && m->posted - m->waited < SK_COMM_FLIGHT);
    sk_group_slot *mine = slot_of(c, m, group, m->group.me);
    post(c, m, k, m->posted);
    if (k->way == SK_WAY_TINY || k->way == SK_WAY_ALONE) {
        atomic_store_explicit(&mine->posted, m->posted + 1, memory_order_release);
        return;
    }
    sk_raise(c, &mine->posted, m->posted + 1);
    if (k->way == SK_WAY_TICKETS) {
        sk_ticket_counts *t = &slot_of(c, m, group, 0)->meeting[m->met % SK_COMM_FLIGHT];
        m->lap[m->posted % SK_COMM_FLIGHT] = m->met;
        uint64_t end = (m->met / SK_COMM_FLIGHT + 1) * (uint64_t)m->group.n;
        atomic_fetch_add(&t->signs[m->met / SK_COMM_FLIGHT & 1], k->says);
        bool last = atomic_fetch_add(&t->came, 1) + 1 == end;
        atomic_store_explicit(&mine->met, ++m->met, memory_order_relaxed);
        if (!last) return; /* nobody can go on yet: n arrivals would wake n sleepers each */
    }
    ring_others(c, m);
}

sk_status sk_sync_wait(sk_comm *c, sk_group_state *m, sk_sync *k)
{
    sk_assert(m->waited < m->posted && k->group < c->n_groups);
    if (k->way == SK_WAY_TINY) return tiny(c, m, k);
    if (k->way == SK_WAY_TICKETS) return by_tickets(c, m, k);
    if (k->way == SK_WAY_FLAGS) return by_flags(c, m, k);
    c->peers[0] = call_at(c, m, 0, k->at);
    c->client->share(c, k, c->peers, 0);
    return SK_OK;
}

bool sk_sync_test(sk_comm *c, const sk_group_state *m, const sk_sync *k)
{
    int group = k->group;
    for (int i = 0; i < m->group.n; i++)
        if (!sk_reached(&slot_of(c, m, group, i)->posted, m->waited + 1)) return false;
    return true;
}
