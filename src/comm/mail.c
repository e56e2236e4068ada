/* mail.c - messages between two ranks, and the barrier of all. */
#include "comm/inside.h"

/* --- messages --- */

static sk_status check_peer(sk_comm *c, int peer, int64_t bytes)
{
    if (peer >= 0 && peer < c->n_ranks && bytes >= 0) return SK_OK;
    sk_status st = sk_fail(SK_EBUG, "rank %d of %d has a message of %lld bytes with rank %d",
                           c->rank, c->n_ranks, (long long)bytes, peer);
    return sk_comm_tell(c, st);
}

sk_status sk_comm_send(sk_comm *c, int to, int64_t tag, const void *data, int64_t bytes)
{
    SK_TRY(check_peer(c, to, bytes));
    int64_t at = (const char *)data - c->base;
    if (!sk_inside(c, at, bytes, 1)) {
        sk_status st = sk_fail(SK_EBUG, "rank %d sends %lld bytes to rank %d from outside its heap",
                               c->rank, (long long)bytes, to);
        return sk_comm_tell(c, st);
    }
    sk_pair *p = sk_heaps_pair(c->heaps, c->rank, to);
    uint64_t k = sk_own_count(&p->sent);
    if (k >= SK_COMM_FLIGHT) /* the note's place must have been read */
        SK_TRY(sk_await(c, &p->received, k - SK_COMM_FLIGHT + 1, to));
    p->note[k % SK_COMM_FLIGHT] = (struct sk_note){.at = at, .bytes = bytes, .tag = tag};
    atomic_store(&p->sent, k + 1);
    sk_bell_ring(sk_heaps_bell(c->heaps, to));
    return SK_OK;
}

sk_status sk_comm_recv(sk_comm *c, int from, int64_t tag, void *data, int64_t bytes)
{
    SK_TRY(check_peer(c, from, bytes));
    sk_pair *p = sk_heaps_pair(c->heaps, from, c->rank);
    uint64_t k = sk_own_count(&p->received);
    SK_TRY(sk_await(c, &p->sent, k + 1, from));
    const struct sk_note *note = &p->note[k % SK_COMM_FLIGHT];
    if (note->tag != tag || note->bytes != bytes) {
        sk_status st = sk_fail(SK_EBUG,
                               "rank %d expects message %lld of %lld bytes from rank %d, which "
                               "sent message %lld of %lld bytes; their programs differ",
                               c->rank, (long long)tag, (long long)bytes, from,
                               (long long)note->tag, (long long)note->bytes);
        return sk_comm_tell(c, st);
    }
    if (bytes) memcpy(data, (const char *)sk_heap_base(c->heaps, from) + note->at, (size_t)bytes);
    atomic_store(&p->received, k + 1);
    sk_bell_ring(sk_heaps_bell(c->heaps, from));
    return SK_OK;
}

sk_status sk_comm_sent(sk_comm *c, int to, int64_t count)
{
    SK_TRY(check_peer(c, to, 0));
    if (count <= 0) return SK_OK;
    const sk_pair *p = sk_heaps_pair(c->heaps, c->rank, to);
    uint64_t sent = sk_own_count(&p->sent);
    if ((uint64_t)count > sent) {
        sk_status st = sk_fail(SK_EBUG, "rank %d waits for %lld sends to rank %d and made %llu",
                               c->rank, (long long)count, to, (unsigned long long)sent);
        return sk_comm_tell(c, st);
    }
    return sk_await(c, &p->received, (uint64_t)count, to);
}

sk_status sk_comm_barrier(sk_comm *c)
{
    atomic_ullong *entered = &sk_heaps_bell(c->heaps, c->rank)->barrier;
    uint64_t k = sk_own_count(entered) + 1;
    atomic_store(entered, k);
    for (int r = 0; r < c->n_ranks; r++)
        if (r != c->rank) sk_bell_ring(sk_heaps_bell(c->heaps, r));
    for (int i = 1; i < c->n_ranks; i++) {
        int r = (c->rank + i) % c->n_ranks;
        SK_TRY(sk_await(c, &sk_heaps_bell(c->heaps, r)->barrier, k, r));
    }
    return SK_OK;
}
