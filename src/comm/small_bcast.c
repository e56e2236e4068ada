/* small_bcast.c - a few bytes from rank 0 to all, or from all to rank 0.
 *
 * Every rank has a notice in the control block of its host.  Between hosts they go over
 * the wire, to and from the first rank of a host; barriers make sure that nobody
 * reads what is not written yet or writes what is still being read. */
#include "comm/endpoint.h"

enum { BCAST_TAG = (1 << (SK_WIRE_TAG_BITS - 1)) + 2 };

static char *notice_of(const sk_comm *c, int rank) { return sk_heaps_bell(c->heaps, rank)->notice; }

/* The first rank of the host of a rank. */
static int first_of(const sk_comm *c, int rank)
{
    int r = 0;
    while (c->host_of && c->host_of[r] != c->host_of[rank]) r++;
    return r;
}

static sk_status move(sk_comm *c, bool out, int peer, void *data, size_t bytes)
{
    sk_backoff p = {.peer = peer, .poll = true};
    sk_wire *w = c->wire;
    sk_req req = -1;
    sk_status st = SK_OK;
    int64_t n = (int64_t)bytes;
    for (bool done = false; !st && !done;) {
        if (req >= 0) st = w->test(w, req, &done, NULL);
        else
            st = out ? w->send(w, peer, BCAST_TAG, data, n, &req)
                     : w->recv(w, peer, BCAST_TAG, data, n, &req);
        if (st) st = sk_comm_report(c, st);
        else if (!done) st = sk_comm_progress(c);
        if (!st && !done) st = sk_backoff_wait(c, &p);
    }
    sk_backoff_end(c, &p);
    return st;
}

sk_status sk_comm_small_bcast(sk_comm *c, void *data, size_t bytes)
{
    sk_assert(bytes <= SK_SMALL_BYTES);
    int first = first_of(c, c->rank);
    if (c->rank == first && c->rank) SK_TRY(move(c, false, 0, notice_of(c, c->rank), bytes));
    if (!c->rank) memcpy(notice_of(c, 0), data, bytes);
    for (int r = 1; !c->rank && r < c->n_ranks; r++)
        if (!sk_on_this_host(c, r) && first_of(c, r) == r) SK_TRY(move(c, true, r, data, bytes));
    SK_TRY(sk_comm_barrier(c));
    memcpy(data, notice_of(c, first), bytes);
    return sk_comm_barrier(c);
}

/* Rank 0: rank r's bytes, wherever it is. */
static sk_status fetch(sk_comm *c, int r, void *to, size_t bytes)
{
    if (!sk_on_this_host(c, r)) return move(c, false, r, to, bytes);
    memcpy(to, notice_of(c, r), bytes);
    return SK_OK;
}

sk_status sk_comm_small_gather(sk_comm *c, const void *mine, size_t bytes, void *all)
{
    sk_assert(bytes <= SK_SMALL_BYTES);
    memcpy(notice_of(c, c->rank), mine, bytes);
    SK_TRY(sk_comm_barrier(c));
    for (int r = 0; !c->rank && r < c->n_ranks; r++)
        SK_TRY(fetch(c, r, (char *)all + (size_t)r * bytes, bytes));
    if (!sk_on_this_host(c, 0)) SK_TRY(move(c, true, 0, notice_of(c, c->rank), bytes));
    return sk_comm_barrier(c);
}
