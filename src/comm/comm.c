/* comm.c - one rank's end: opening it, and collectives from start to wait.
 *
 * A collective has two rounds of flags.  start() stores where my call lies and
 * raises `posted`.  wait() waits until all members posted, does my share with
 * the peers' memory in place, raises `done`, and waits until all are done.  The
 * agreement (same call, kind, type, shapes, members) is checked in every wait: it
 * reads a few shared lines that nobody writes, so they stay in every core's cache. */
#include "comm/inside.h"
#include "comm/sum.h"
#include "base/hash.h"

#include <stdio.h>
#include <unistd.h>

const char *const sk_coll_names[SK_N_COLLS] = {"allreduce", "reduce_scatter", "allgather",
                                               "broadcast", "reduce",         "gather",
                                               "scatter",   "alltoall",       "alltoallv"};

/* --- groups --- */

static sk_status find_group(sk_comm *c, const sk_coll_call *call, sk_member **out)
{
    int g = call->group;
    if (g < 0 || g >= c->n_groups || c->groups[g].group.me < 0) {
        sk_status st = sk_fail(SK_EBUG, "call %llx uses group %d, rank %d has %d groups",
                               (long long)call->id, g, c->rank, c->n_groups);
        return sk_comm_tell(c, st);
    }
    *out = &c->groups[g];
    return SK_OK;
}

typedef enum flag_kind { POSTED, DONE } flag_kind;

static atomic_ullong *group_flag(const sk_comm *c, const sk_member *m, int group, int i,
                                 flag_kind kind)
{
    sk_slot *s = sk_heaps_slot(c->heaps, m->group.ranks[i], group);
    return kind == POSTED ? &s->posted : &s->done;
}

static void raise_flag(sk_comm *c, const sk_member *m, int group, flag_kind kind, uint64_t to)
{
    atomic_store(group_flag(c, m, group, m->group.me, kind), to);
    for (int i = 0; i < m->group.n; i++)
        if (i != m->group.me) sk_bell_ring(sk_heaps_bell(c->heaps, m->group.ranks[i]));
}

static sk_status await_all(sk_comm *c, const sk_member *m, const sk_coll_call *call, flag_kind kind)
{
    for (int i = 1; i < m->group.n; i++) { /* beginning after me, so that not all eye the same */
        int k = (m->group.me + i) % m->group.n;
        SK_TRY(
            sk_await(c, group_flag(c, m, call->group, k, kind), m->waited + 1, m->group.ranks[k]));
    }
    return SK_OK;
}

/* --- shapes --- */

int64_t sk_call_count(const sk_coll_call *call)
{
    int64_t n = 0;
    for (int i = 0; i < call->n_segs; i++) n += sk_seg_count(&call->segs[i]);
    return n;
}

/* Member i's elements of a segment. */
static int64_t seg_part(const sk_seg *s, int i, int p)
{
    return s->outer * (sk_share(s->n, i + 1, p) - sk_share(s->n, i, p)) * s->inner;
}

bool sk_inside(const sk_comm *c, int64_t at, int64_t count, size_t size)
{
    return at >= 0 && count >= 0 && count <= (c->bytes - at) / (int64_t)size;
}

/* May dst lie there?  The whole buffer of an all-gather or reduce-scatter may hold the part. */
static bool apart(sk_coll_kind kind, const sk_seg *s, int64_t part, int64_t before, int64_t size)
{
    int64_t all = sk_seg_count(s) * size, src_n = kind == SK_ALLGATHER ? part * size : all;
    int64_t dst_n = kind == SK_REDUCE_SCATTER ? part * size : all;
    if (!src_n || !dst_n || s->src + src_n <= s->dst || s->dst + dst_n <= s->src) return true;
    if (kind == SK_ALLREDUCE) return s->src == s->dst;
    if (s->outer != 1) return false;
    return kind == SK_ALLGATHER ? s->src == s->dst + before * size
                                : s->dst == s->src + before * size;
}

static bool seg_good(const sk_comm *c, const sk_group *g, const sk_coll_call *call, int i)
{
    const sk_seg *s = &call->segs[i];
    size_t size = sk_dtype_size(call->type);
    if (s->outer < 0 || s->n < 0 || s->inner < 0) return false;
    int64_t all = sk_seg_count(s), part = seg_part(s, g->me, g->n);
    int64_t src = call->kind == SK_ALLGATHER ? part : all;
    int64_t dst = call->kind == SK_REDUCE_SCATTER ? part : all;
    return sk_inside(c, s->src, src, size) && sk_inside(c, s->dst, dst, size) &&
           apart(call->kind, s, part, sk_share(s->n, g->me, g->n) * s->inner, (int64_t)size);
}

static sk_status check_call(sk_comm *c, const sk_member *m, const sk_coll_call *call)
{
    int64_t at = (const char *)call - c->base;
    long long id = (long long)call->id;
    if (m->posted - m->waited >= SK_COMM_FLIGHT)
        return sk_fail(SK_EBUG, "call %llx is the %dth in flight on group %d, %d may be", id,
                       SK_COMM_FLIGHT + 1, call->group, SK_COMM_FLIGHT);
    if (at < 0 || at > c->bytes - (int64_t)sizeof *call || call->n_segs < 0 ||
        call->n_segs > (c->bytes - at - (int64_t)sizeof *call) / (int64_t)sizeof(sk_seg))
        return sk_fail(SK_EBUG, "call %llx: its call is not in the heap of rank %d", id, c->rank);
    if (call->kind > SK_ALLGATHER || call->reduce > SK_MAXIMUM || call->type >= SK_N_DTYPES)
        return sk_fail(SK_EBUG, "call %llx: kind %d, reduction %d, type %d", id, call->kind,
                       call->reduce, call->type);
    if (call->kind != SK_ALLGATHER && !sk_sum_can(call->type))
        return sk_fail(SK_EBUG, "call %llx: %s is not for %s", id, sk_coll_names[call->kind],
                       sk_dtype_name(call->type));
    for (int i = 0; i < call->n_segs; i++) {
        const sk_seg *s = &call->segs[i];
        if (seg_good(c, &m->group, call, i)) continue;
        return sk_fail(SK_EBUG,
                       "call %llx (%s): segment %d of %s, [%lld][%lld][%lld] from %lld to "
                       "%lld, overlaps itself or leaves the heap of rank %d (%lld bytes)",
                       id, sk_coll_names[call->kind], i, sk_dtype_name(call->type),
                       (long long)s->outer, (long long)s->n, (long long)s->inner, (long long)s->src,
                       (long long)s->dst, c->rank, (long long)c->bytes);
    }
    return SK_OK;
}

/* --- agreement --- */

static bool same_shapes(const sk_coll_call *a, const sk_coll_call *b)
{
    for (int i = 0; i < a->n_segs; i++) {
        const sk_seg *x = &a->segs[i], *y = &b->segs[i];
        if (x->outer != y->outer || x->n != y->n || x->inner != y->inner) return false;
    }
    return true;
}

static bool same_call(const sk_coll_call *a, const sk_coll_call *b)
{
    return a->id == b->id && a->kind == b->kind && a->reduce == b->reduce && a->type == b->type &&
           a->group == b->group && a->n_segs == b->n_segs && same_shapes(a, b);
}

static void describe(char *out, size_t room, const sk_coll_call *call)
{
    snprintf(out, room, "call %llx (%s of %s, group %d, %d segments, %lld elements)",
             (long long)call->id, sk_coll_names[call->kind], sk_dtype_name(call->type), call->group,
             call->n_segs, (long long)sk_call_count(call));
}

static sk_status differ(sk_comm *c, const sk_coll_call *mine, int peer, const sk_coll_call *theirs)
{
    char a[160], b[160];
    describe(a, sizeof a, mine);
    describe(b, sizeof b, theirs);
    sk_status st = sk_fail(SK_EBUG,
                           "rank %d is at %s where rank %d is at %s; their programs or their "
                           "members of the group differ",
                           c->rank, a, peer, b);
    return sk_comm_tell(c, st);
}

/* Fills c->calls with what each member posted, if it is what I posted. */
static sk_status agree(sk_comm *c, const sk_member *m, const sk_coll_call *call)
{
    for (int i = 0; i < m->group.n; i++) {
        int r = m->group.ranks[i];
        sk_slot *s = sk_heaps_slot(c->heaps, r, call->group);
        const char *at = (char *)sk_heap_base(c->heaps, r) + s->call[m->waited % SK_COMM_FLIGHT];
        c->calls[i] = (const sk_coll_call *)(const void *)at;
        uint64_t hash = atomic_load_explicit(&s->members, memory_order_relaxed);
        if (hash != m->hash || !same_call(call, c->calls[i]))
            return differ(c, call, r, c->calls[i]);
    }
    return SK_OK;
}

/* --- collectives --- */

/* Alone in the group: whole and part are the same. */
static void copy_own(sk_comm *c, const sk_coll_call *call)
{
    for (int i = 0; i < call->n_segs; i++) {
        const sk_seg *s = &call->segs[i];
        size_t n = (size_t)sk_seg_count(s) * sk_dtype_size(call->type);
        if (s->src != s->dst) memcpy(c->base + s->dst, c->base + s->src, n);
    }
}

sk_status sk_comm_start(sk_comm *c, const sk_coll_call *call)
{
    sk_member *m = NULL;
    SK_TRY(find_group(c, call, &m));
    sk_status st = check_call(c, m, call);
    if (st) return sk_comm_tell(c, st);
    sk_slot *slot = sk_heaps_slot(c->heaps, c->rank, call->group);
    slot->call[m->posted % SK_COMM_FLIGHT] = (const char *)call - c->base;
    raise_flag(c, m, call->group, POSTED, ++m->posted);
    return SK_OK;
}

sk_status sk_comm_wait(sk_comm *c, const sk_coll_call *call)
{
    sk_member *m = NULL;
    SK_TRY(find_group(c, call, &m));
    const sk_slot *slot = sk_heaps_slot(c->heaps, c->rank, call->group);
    if (m->waited == m->posted ||
        slot->call[m->waited % SK_COMM_FLIGHT] != (const char *)call - c->base) {
        sk_status st = sk_fail(SK_EBUG,
                               "rank %d waits for call %llx, which is not the oldest in "
                               "flight on group %d",
                               c->rank, (long long)call->id, call->group);
        return sk_comm_tell(c, st);
    }
    if (m->group.n == 1) copy_own(c, call);
    else {
        SK_TRY(await_all(c, m, call, POSTED));
        SK_TRY(agree(c, m, call));
        sk_shm_work(c, &m->group, call);
        raise_flag(c, m, call->group, DONE, m->waited + 1);
        SK_TRY(await_all(c, m, call, DONE));
        sk_shm_end(c, call);
    }
    m->waited++;
    return SK_OK;
}

/* --- opening --- */

static sk_status open_group(sk_comm *c, int g, const sk_group *from)
{
    sk_member *m = &c->groups[g];
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
    sk_slot *s = sk_heaps_slot(c->heaps, c->rank, g);
    atomic_store(&s->members, m->hash);
    m->posted = m->waited =
        sk_own_count(&s->posted); /* goes on where an earlier comm of mine ended */
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
    c->timeout_s = o->timeout_s;
    c->line = sk_heaps_line(h, rank);
    c->base = sk_heap_base(h, rank);
    c->bytes = sk_heap_bytes(h, rank);
    c->groups = sk_many(&c->arena, sk_member, n_groups);
    c->calls = sk_many(&c->arena, const sk_coll_call *, n);
    c->src = sk_many(&c->arena, const void *, n);
    c->dst = sk_many(&c->arena, void *, n);
    sk_status st = SK_OK;
    for (int g = 0; !st && g < n_groups; g++) st = open_group(c, g, &o->groups[g]);
    if (st) {
        sk_comm_close(c);
        return sk_trail(st, SK_HERE);
    }
    atomic_store(&c->line->pid, getpid());
    *out = c;
    return SK_OK;
}

void sk_comm_close(sk_comm *c)
{
    if (!c) return;
    sk_arena a = c->arena; /* c itself lies in it */
    sk_arena_end(&a);
}
