/* call_state.c - what is found out about a call when it is seen for the first time: is it sound,
 * how will it be done, and which hash do members compare. */
#include "coll/collectives.h"
#include "base/hash.h"

#include <stddef.h>
#include <stdio.h>

/* Bytes that everybody may read of all to make its own result; bytes above which two
 * synchronisations without copies are cheaper than one with. */
enum { TINY_READ = 64 << 10, TINY_ALL = 1 << 10 };

static uint64_t sign_seg(uint64_t h, const sk_seg *s)
{
    int64_t dims[] = {s->outer, s->n, s->inner};
    int64_t cut[] = {s->cut.full, s->cut.cells, s->cut.from, s->cut.to};
    int64_t swap[] = {s->swap,       s->mid,       s->n2,     s->cut2.full,
                      s->cut2.cells, s->cut2.from, s->cut2.to};
    h = sk_hash(h, dims, sizeof dims);
    if (s->cut.cells) h = sk_hash(h, cut, sizeof cut);
    return s->swap ? sk_hash(h, swap, sizeof swap) : h;
}

static uint64_t sign(const sk_group_state *m, const sk_coll_call *call)
{
    int64_t words[] = {call->id,
                       call->kind,
                       call->reduce,
                       call->type,
                       call->group,
                       call->n_segs,
                       call->root,
                       call->algorithm,
                       call->common,
                       (int64_t)m->hash,
                       (int64_t)call->degrees,
                       call->rows};
    uint64_t h = sk_hash(SK_HASH_SEED, words, sizeof words);
    for (int i = 0; i < call->n_segs; i++) h = sign_seg(h, &call->segs[i]);
    return h;
}

/* Where everybody waits for everybody, tickets are better on a crowded host.  Where one rank waits
 * for all or all for one, being ahead is what counts. */
static bool is_tiny(const sk_comm *c, const sk_group_state *m, const sk_coll_call *call,
                    int64_t bytes)
{
    sk_coll_kind kind = call->kind;
    if (call->common) return !c->crowded; /* nothing is shown but that I came */
    if (sk_kind_rows[kind].counts || bytes * m->group.n > TINY_READ) return false;
    return sk_kind_rooted(kind) ? bytes <= SK_TINY : !c->crowded && bytes <= TINY_ALL;
}

static sk_sync_way way_of(const sk_comm *c, const sk_group_state *m, const sk_coll_call *call,
                          int64_t bytes)
{
    if (m->group.n == 1) return SK_WAY_ALONE;
    if (is_tiny(c, m, call, bytes)) return SK_WAY_TINY;
    return c->crowded ? SK_WAY_TICKETS : SK_WAY_FLAGS;
}

static sk_call_state *entry(sk_comm *c, const sk_coll_call *call)
{
    sk_call_state **k = &c->collectives->states[((uintptr_t)call >> 4) * 0x9E3779B97F4A7C15u >> 56];
    while (*k && (*k)->call != call) k = &(*k)->next;
    if (!*k) *k = sk_new(&c->arena, sk_call_state);
    return *k;
}

/* Every start() asks: what is not looked at is not compared. */
static inline bool same_seg(const sk_seg *a, const sk_seg *b)
{
    enum { PLAIN = offsetof(sk_seg, cut), ALL = sizeof *a };
    if (!(a->cut.cells | b->cut.cells | (int)a->swap | (int)b->swap)) return !memcmp(a, b, PLAIN);
    return !memcmp(a, b, ALL);
}

static sk_sync sync_of(sk_comm *c, const sk_group_state *m, const sk_coll_call *call, bool executes)
{
    int64_t bytes = sk_call_count(call) * (int64_t)sk_dtype_size(call->type);
    sk_sync s = {.group = call->group,
                 .way = way_of(c, m, call, bytes),
                 .rooted = sk_kind_rooted(call->kind),
                 .at = (const char *)call - c->base,
                 .bytes = bytes};
    s.sign = sign(m, call) + (uint64_t)(executes ? SK_WAY_TICKETS + 1 : s.way);
    s.says = sk_hash(s.sign, (int64_t[]){s.at, m->group.me}, 2 * sizeof s.at);
    return s;
}

sk_status sk_call_state_of(sk_comm *c, const sk_group_state *m, const sk_coll_call *call,
                           sk_call_state **out)
{
    sk_call_state *k = *out = entry(c, call);
    if (k->call == call && !memcmp(k->head, call, sizeof *call) &&
        (!call->n_segs || same_seg(&k->first, &call->segs[0])))
        return SK_OK;
    SK_TRY(sk_call_check(c, m, call));
    const void **known = k->sync.known;
    k->call = call;
    k->executes = m->group.n > 1 && (!m->here || sk_call_executes(call));
    k->sync = sync_of(c, m, call, k->executes);
    k->sync.known = known ? known : sk_many(&c->arena, const void *, c->n_ranks);
    memcpy(k->head, call, sizeof *call);
    if (call->n_segs) k->first = call->segs[0];
    return SK_OK;
}

/* --- when members do not agree --- */

/* Is what a peer is said to have posted a call at all? */
static bool readable(const sk_comm *c, int rank, const sk_coll_call *call)
{
    int64_t at = (const char *)call - (const char *)sk_heap_base(c->heaps, rank);
    int64_t left = sk_heap_bytes(c->heaps, rank) - at - (int64_t)sizeof *call;
    return at >= 0 && left >= 0 && at % 8 == 0 && call->n_segs >= 0 &&
           call->n_segs <= left / (int64_t)sizeof(sk_seg);
}

static void describe(char *out, size_t size, const sk_coll_call *call)
{
    snprintf(out, size, "call %llx (%s of %s, group %d, %d segments, %lld elements)",
             (long long)call->id, call->kind < SK_N_COLLS ? sk_coll_names[call->kind] : "?",
             call->type < SK_N_DTYPES ? sk_dtype_name(call->type) : "?", call->group, call->n_segs,
             (long long)sk_call_count(call));
}

sk_status sk_call_differ(sk_comm *c, const sk_sync *s, int peer, const void *theirs)
{
    const sk_coll_call *mine = ((const sk_call_state *)(const void *)s)->call;
    char a[160], b[160];
    describe(a, sizeof a, mine);
    if (readable(c, peer, theirs)) describe(b, sizeof b, theirs);
    else snprintf(b, sizeof b, "a call that cannot be read");
    sk_status st = sk_fail(SK_EBUG,
                           "rank %d is at %s where rank %d is at %s; their programs or their "
                           "members of the group differ",
                           c->rank, a, peer, b);
    return sk_comm_report(c, st);
}
