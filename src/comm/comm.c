/* comm.c - one rank's end: opened, closed, and its progress. */
#include "comm/endpoint.h"
#include "comm/quorum_block.h"
#include "base/hash.h"

#include <unistd.h>

/* --- what is where --- */

bool sk_on_this_host(const sk_comm *c, int rank)
{
    if (c->host_of && c->host_of[rank] != c->host_of[c->rank]) return false;
    return sk_heap_base(c->heaps, rank) != NULL;
}

bool sk_in_heap(const sk_comm *c, int64_t at, int64_t count, size_t size)
{
    return at >= 0 && count >= 0 && count <= (c->bytes - at) / (int64_t)size;
}

/* --- progress --- */

sk_status sk_comm_progress(sk_comm *c)
{
    if (c->p2p) SK_TRY(sk_p2p_progress(c));
    return c->in_flight ? c->client->progress(c) : SK_OK;
}

int64_t sk_comm_bytes_sent(const sk_comm *c) { return c->bytes_sent; }

/* --- opening --- */

static sk_status open_group(sk_comm *c, int g, const sk_group *from)
{
    sk_group_state *m = &c->groups[g];
    bool fits = from->n >= 0 && from->n <= c->n_ranks && from->me < from->n;
    for (int i = 0; fits && i < from->n; i++)
        fits = from->ranks[i] >= 0 && from->ranks[i] < c->n_ranks;
    if (!fits || (from->me >= 0 && from->ranks[from->me] != c->rank))
        return sk_fail(SK_EBUG, "group %d of rank %d has %d members, and rank %d is not number %d",
                       g, c->rank, from->n, c->rank, from->me);
    int *ranks = sk_many(&c->arena, int, from->n);
    if (from->n) memcpy(ranks, from->ranks, (size_t)from->n * sizeof *ranks);
    m->group = (sk_group){.n = from->n, .me = from->n ? from->me : -1, .ranks = ranks};
    m->hash = sk_hash(SK_HASH_SEED, ranks, (size_t)from->n * sizeof *ranks);
    if (m->group.me < 0) return SK_OK;
    sk_sync_open(c, g);
    m->here = true;
    for (int i = 0; i < from->n; i++) m->here = m->here && sk_on_this_host(c, ranks[i]);
    return SK_OK;
}

sk_status sk_comm_open(sk_heaps *h, const sk_comm_opts *o, sk_comm **out)
{
    int n = sk_heaps_ranks(h), rank = o->rank, n_groups = o->n_groups;
    if (rank < 0 || rank >= n || n_groups < 0 || n_groups > SK_COMM_GROUPS)
        return sk_fail(SK_EBUG, "comm: rank %d of %d with %d groups; at most %d groups", rank, n,
                       n_groups, SK_COMM_GROUPS);
    sk_arena a = {0};
    sk_comm *c = sk_new(&a, sk_comm);
    *c = (sk_comm){.arena = a, .heaps = h, .rank = rank, .n_ranks = n, .n_groups = n_groups};
    c->crowded = sk_heaps_crowded(h);
    c->aborted = &h->abort->word;
    c->fenced = !sk_wait_register();
    c->timeout_s = o->timeout_s;
    c->state = sk_heaps_rank_state(h, rank);
    c->base = sk_heap_base(h, rank);
    c->bytes = sk_heap_bytes(h, rank);
    c->groups = sk_many(&c->arena, sk_group_state, n_groups);
    c->peers = sk_many(&c->arena, const void *, n);
    c->shown = sk_many(&c->arena, const char *, n);
    c->seen = sk_many(&c->arena, sk_seen_rank, n);
    c->team = o->team;
    c->wire = o->wire;
    c->host_of = o->host_of;
    c->links = o->links;
    c->where = o->where;
    c->where_ctx = o->where_ctx;
    sk_status st = sk_p2p_open(c);
    for (int g = 0; !st && g < n_groups; g++) st = open_group(c, g, &o->groups[g]);
    if (st) {
        sk_comm_close(c);
        return sk_trail(st, SK_HERE);
    }
    atomic_store(&c->state->pid, getpid());
    atomic_store(&c->state->state, 0);
    *out = c;
    return SK_OK;
}

void sk_comm_close(sk_comm *c)
{
    if (!c) return;
    if (atomic_load(&c->state->state) < 3) atomic_store(&c->state->state, 3);
    sk_arena a = c->arena; /* c itself lies in it */
    sk_arena_end(&a);
}
