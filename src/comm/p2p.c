/* p2p.c - messages between two ranks (send and recv), and the barrier of all.
 *
 * Between ranks of one host a message is a record in a ring of the control block, and the
 * receiver copies out of the sender's heap.  Between hosts it goes over the wire:
 * send() hands it over, sent() and sk_p2p_progress() look after it.  A wire does
 * nothing by itself, so whoever waits while messages are under way must call
 * sk_p2p_progress() now and then: the receiver of a long one waits for that. */
#include "comm/endpoint.h"
#include "base/hash.h"

/* Tags of the wire: executions of step lists have the lower half of what fits into
 * SK_WIRE_TAG_BITS. */
enum { P2P_TAG = 1 << (SK_WIRE_TAG_BITS - 1), BARRIER_TAG };

typedef struct send_window { /* messages to one rank of another host */
    uint64_t sent, gone;
    sk_req req[SK_COMM_FLIGHT];
} send_window;

typedef struct sk_p2p {
    send_window **windows;    /* by rank; NULL: never sent to */
    int *busy, n_busy;        /* ranks to which messages are under way */
    int *leader, n_hosts, me; /* the first rank of each host; which host is mine */
    char heard, told;         /* messages of the barrier: has a stop been asked for? */
} sk_p2p;

/* --- opening --- */

static bool is_new(const sk_comm *c, const sk_p2p *p, int rank)
{
    for (int i = 0; i < p->n_hosts; i++)
        if (c->host_of[p->leader[i]] == c->host_of[rank]) return false;
    return true;
}

sk_status sk_p2p_open(sk_comm *c)
{
    if (!c->wire) return SK_OK;
    if (!c->host_of) return sk_fail(SK_EBUG, "comm: a wire needs a table of hosts");
    sk_p2p *p = c->p2p = sk_new(&c->arena, sk_p2p);
    p->windows = sk_many(&c->arena, send_window *, c->n_ranks);
    p->busy = sk_many(&c->arena, int, c->n_ranks);
    p->leader = sk_many(&c->arena, int, c->n_ranks);
    for (int r = 0; r < c->n_ranks; r++)
        if (is_new(c, p, r)) p->leader[p->n_hosts++] = r;
    for (int i = 0; i < p->n_hosts; i++)
        if (sk_on_this_host(c, p->leader[i])) p->me = i;
    return SK_OK;
}

/* --- over the wire --- */

static sk_status told(sk_comm *c, sk_status st) { return st ? sk_comm_report(c, st) : SK_OK; }

/* Drops messages that have gone from the front of a send window. */
static sk_status look_at(sk_comm *c, send_window *l)
{
    for (bool done = true; l->gone < l->sent; l->gone++) {
        SK_TRY(told(c, c->wire->test(c->wire, l->req[l->gone % SK_COMM_FLIGHT], &done, NULL)));
        if (!done) break;
    }
    return SK_OK;
}

sk_status sk_p2p_progress(sk_comm *c)
{
    sk_p2p *p = c->p2p;
    for (int i = p ? p->n_busy - 1 : -1; i >= 0; i--) {
        send_window *l = p->windows[p->busy[i]];
        SK_TRY(look_at(c, l));
        if (l->gone == l->sent) p->busy[i] = p->busy[--p->n_busy];
    }
    return SK_OK;
}

/* Until the first `count` messages of a send window have gone. */
static sk_status await_gone(sk_comm *c, send_window *l, uint64_t count, int to)
{
    sk_backoff p = {.peer = to, .poll = true};
    sk_status st = SK_OK;
    while (!st && l->gone < count) {
        st = sk_comm_progress(c);
        if (!st && l->gone < count) st = sk_backoff_wait(c, &p);
    }
    sk_backoff_end(c, &p);
    return st;
}

/* Until the wire says that one message is over. */
static sk_status await_req(sk_comm *c, sk_req r, int peer, int64_t *bytes)
{
    sk_backoff p = {.peer = peer, .poll = true};
    sk_status st = SK_OK;
    for (bool done = false; !st;) {
        st = told(c, c->wire->test(c->wire, r, &done, bytes));
        if (st || done) break;
        st = sk_comm_progress(c);
        if (!st) st = sk_backoff_wait(c, &p);
    }
    sk_backoff_end(c, &p);
    return st;
}

/* A request can be had as soon as others are over. */
static sk_status begin(sk_comm *c, bool out, int peer, int64_t tag, void *data, int64_t bytes,
                       sk_req *r)
{
    sk_backoff p = {.peer = peer, .poll = true};
    sk_wire *w = c->wire;
    sk_status st = SK_OK;
    for (*r = -1; !st;) {
        st = out ? w->send(w, peer, tag, data, bytes, r) : w->recv(w, peer, tag, data, bytes, r);
        st = told(c, st);
        if (st || *r >= 0) break;
        st = sk_comm_progress(c);
        if (!st) st = sk_backoff_wait(c, &p);
    }
    sk_backoff_end(c, &p);
    return st;
}

static int64_t wire_tag(int64_t tag)
{
    uint64_t hash = sk_hash(SK_HASH_SEED, &tag, sizeof tag);
    return (int64_t)(hash << SK_WIRE_TAG_BITS | P2P_TAG);
}

static send_window *window_to(sk_comm *c, int to)
{
    send_window **l = &c->p2p->windows[to];
    if (!*l) *l = sk_new(&c->arena, send_window);
    return *l;
}

static sk_status send_wire(sk_comm *c, int to, int64_t tag, int64_t at, int64_t bytes)
{
    sk_p2p *p = c->p2p;
    send_window *l = window_to(c, to);
    if (l->sent >= SK_COMM_FLIGHT) SK_TRY(await_gone(c, l, l->sent - SK_COMM_FLIGHT + 1, to));
    sk_req r = -1;
    SK_TRY(begin(c, true, to, wire_tag(tag), c->base + at, bytes, &r));
    if (l->gone == l->sent) {
        int i = 0;
        while (i < p->n_busy && p->busy[i] != to) i++;
        if (i == p->n_busy) p->busy[p->n_busy++] = to;
    }
    sk_assert(l->sent - l->gone < SK_COMM_FLIGHT && p->n_busy <= c->n_ranks);
    l->req[l->sent++ % SK_COMM_FLIGHT] = r;
    return SK_OK;
}

static sk_status wrong_message(sk_comm *c, int from, int64_t tag, int64_t bytes, int64_t got_tag,
                               int64_t got_bytes)
{
    sk_status st = sk_fail(SK_EBUG,
                           "rank %d expects message %lld of %lld bytes from rank %d, which "
                           "sent message %lld of %lld bytes; their programs differ",
                           c->rank, (long long)tag, (long long)bytes, from, (long long)got_tag,
                           (long long)got_bytes);
    return sk_comm_report(c, st);
}

static sk_status recv_wire(sk_comm *c, int from, int64_t tag, void *data, int64_t bytes)
{
    sk_req r = -1;
    int64_t got = 0;
    SK_TRY(begin(c, false, from, wire_tag(tag), data, bytes, &r));
    SK_TRY(await_req(c, r, from, &got));
    return got == bytes ? SK_OK : wrong_message(c, from, tag, bytes, tag, got);
}

/* --- messages --- */

static sk_status check_peer(sk_comm *c, int peer, int64_t bytes)
{
    if (peer >= 0 && peer < c->n_ranks && bytes >= 0 && (c->wire || sk_on_this_host(c, peer)))
        return SK_OK;
    sk_status st = sk_fail(SK_EBUG, "rank %d of %d has a message of %lld bytes with rank %d",
                           c->rank, c->n_ranks, (long long)bytes, peer);
    return sk_comm_report(c, st);
}

sk_status sk_comm_send(sk_comm *c, int to, int64_t tag, const void *data, int64_t bytes)
{
    SK_TRY(check_peer(c, to, bytes));
    int64_t at = (const char *)data - c->base;
    if (!sk_in_heap(c, at, bytes, 1)) {
        sk_status st = sk_fail(SK_EBUG, "rank %d sends %lld bytes to rank %d from outside its heap",
                               c->rank, (long long)bytes, to);
        return sk_comm_report(c, st);
    }
    c->bytes_sent += bytes;
    if (!sk_on_this_host(c, to)) return send_wire(c, to, tag, at, bytes);
    sk_channel *p = sk_heaps_channel(c->heaps, c->rank, to);
    uint64_t k = sk_own_count(&p->sent);
    sk_assert(sk_own_count(&p->received) <= k);
    if (k >= SK_COMM_FLIGHT) /* the record's place must have been read */
        SK_TRY(sk_await(c, &p->received, k - SK_COMM_FLIGHT + 1, to));
    p->note[k % SK_COMM_FLIGHT] = (struct sk_message){.at = at, .bytes = bytes, .tag = tag};
    atomic_store(&p->sent, k + 1);
    sk_bell_ring(sk_heaps_bell(c->heaps, to));
    return SK_OK;
}

sk_status sk_comm_recv(sk_comm *c, int from, int64_t tag, void *data, int64_t bytes)
{
    SK_TRY(check_peer(c, from, bytes));
    if (!sk_on_this_host(c, from)) return recv_wire(c, from, tag, data, bytes);
    sk_channel *p = sk_heaps_channel(c->heaps, from, c->rank);
    uint64_t k = sk_own_count(&p->received);
    SK_TRY(sk_await(c, &p->sent, k + 1, from));
    const struct sk_message *m = &p->note[k % SK_COMM_FLIGHT];
    if (m->tag != tag || m->bytes != bytes)
        return wrong_message(c, from, tag, bytes, m->tag, m->bytes);
    if (bytes) memcpy(data, (const char *)sk_heap_base(c->heaps, from) + m->at, (size_t)bytes);
    atomic_store(&p->received, k + 1);
    sk_bell_ring(sk_heaps_bell(c->heaps, from));
    return SK_OK;
}

int64_t sk_comm_sends(const sk_comm *c, int to)
{
    if (sk_on_this_host(c, to))
        return (int64_t)sk_own_count(&sk_heaps_channel(c->heaps, c->rank, to)->sent);
    return c->p2p && c->p2p->windows[to] ? (int64_t)c->p2p->windows[to]->sent : 0;
}

sk_status sk_comm_sent(sk_comm *c, int to, int64_t count)
{
    SK_TRY(check_peer(c, to, 0));
    if (count <= 0) return SK_OK;
    const sk_channel *p = sk_heaps_channel(c->heaps, c->rank, to);
    send_window *l = sk_on_this_host(c, to) ? NULL : window_to(c, to);
    uint64_t sent = l ? l->sent : sk_own_count(&p->sent);
    if ((uint64_t)count > sent) {
        sk_status st = sk_fail(SK_EBUG, "rank %d waits for %lld sends to rank %d and made %llu",
                               c->rank, (long long)count, to, (unsigned long long)sent);
        return sk_comm_report(c, st);
    }
    return l ? await_gone(c, l, (uint64_t)count, to)
             : sk_await(c, &p->received, (uint64_t)count, to);
}

/* --- the barrier --- */

/* A rank of this host that has not entered barrier k, for error reports: the counter says only how
 * many did. */
static int absent(const sk_comm *c, uint64_t k)
{
    for (int i = 1; i < c->n_ranks; i++) {
        int r = (c->rank + i) % c->n_ranks;
        if (sk_on_this_host(c, r) && !sk_reached(&sk_heaps_bell(c->heaps, r)->barrier, k)) return r;
    }
    return (c->rank + 1) % c->n_ranks;
}

/* All ranks of this host.  One counter, so that a barrier of n ranks costs n steps and not n * n;
 * the last rank that enters wakes the others. */
static sk_status barrier_here(sk_comm *c)
{
    sk_abort_word *w = c->heaps->abort;
    atomic_ullong *mine = &sk_heaps_bell(c->heaps, c->rank)->barrier;
    uint64_t k = sk_own_count(mine) + 1, n = (uint64_t)c->heaps->n_here;
    atomic_store_explicit(mine, k, memory_order_release);
    if (atomic_fetch_add(&w->entered, 1) + 1 < k * n)
        return sk_await(c, &w->passed, k, absent(c, k));
    sk_raise(c, &w->passed, k);
    for (int r = 0; r < c->n_ranks; r++)
        if (r != c->rank && sk_on_this_host(c, r)) sk_bell_ring(sk_heaps_bell(c->heaps, r));
    return SK_OK;
}

/* First ranks of hosts: dissemination, log2 rounds of one message (Hensgen, Finkel and Manber
 * 1988). It says whether a stop has been asked for on a host that the sender knows of, so that
 * behind a barrier all hosts know what one knew before. */
static sk_status barrier_hosts(sk_comm *c)
{
    sk_p2p *p = c->p2p;
    for (int d = 1; d < p->n_hosts; d *= 2) {
        int to = p->leader[(p->me + d) % p->n_hosts];
        int from = p->leader[(p->me - d + p->n_hosts) % p->n_hosts];
        sk_req in = -1, out = -1;
        p->told = (char)sk_heaps_stop_asked(c->heaps);
        SK_TRY(begin(c, false, from, BARRIER_TAG, &p->heard, sizeof p->heard, &in));
        SK_TRY(begin(c, true, to, BARRIER_TAG, &p->told, sizeof p->told, &out));
        SK_TRY(await_req(c, in, from, NULL));
        SK_TRY(await_req(c, out, to, NULL));
        if (p->heard) sk_heaps_ask_stop(c->heaps);
    }
    return SK_OK;
}

sk_status sk_comm_barrier(sk_comm *c)
{
    SK_TRY(barrier_here(c));
    if (!c->p2p || c->p2p->n_hosts == 1) return SK_OK;
    if (c->p2p->leader[c->p2p->me] == c->rank) SK_TRY(barrier_hosts(c));
    return barrier_here(c);
}
