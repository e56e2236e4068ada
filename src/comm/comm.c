/* comm.c - one rank's end: opening it, and collectives from start to wait.
 *
 * A call is looked at when it is seen for the first time: is it sound, how will it
 * be done, and which hash do members compare.  Then it goes one of three ways:
 * played as a step list (play.c), met over in the heaps of this host (meet.c), or,
 * in a group of one, copied.  Calls do not change while the comm is open. */
#include "comm/fuse.h"
#include "comm/endpoint.h"
#include "coll/execute.h"
#include "coll/sum_kernels.h"
#include "base/clock.h"
#include "base/hash.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

/* Bytes that everybody may read of all to make its own result; bytes above which two meetings
 * without copies are cheaper than one with. */
enum { TINY_READ = 64 << 10, TINY_ALL = 1 << 10 };

const char *const sk_coll_names[SK_N_COLLS] = {"allreduce", "reduce_scatter", "allgather",
                                               "broadcast", "reduce",         "gather",
                                               "scatter",   "alltoall",       "alltoallv"};

/* --- groups --- */

static sk_status find_group(sk_comm *c, const sk_coll_call *call, sk_group_state **out)
{
    int g = call->group;
    if (g < 0 || g >= c->n_groups || c->groups[g].group.me < 0) {
        sk_status st = sk_fail(SK_EBUG, "call %llx uses group %d, rank %d has %d groups",
                               (long long)call->id, g, c->rank, c->n_groups);
        return sk_comm_report(c, st);
    }
    *out = &c->groups[g];
    return SK_OK;
}

/* --- is a call sound? --- */

int64_t sk_call_count(const sk_coll_call *call)
{
    int64_t n = 0;
    for (int i = 0; i < call->n_segs; i++) n += sk_seg_whole(&call->segs[i]);
    return n;
}

bool sk_in_heap(const sk_comm *c, int64_t at, int64_t count, size_t size)
{
    return at >= 0 && count >= 0 && count <= (c->bytes - at) / (int64_t)size;
}

/* Elements that this member gives and gets of a segment. */
static void extents(const sk_group *g, const sk_coll_call *call, const sk_seg *s, int64_t *src,
                    int64_t *dst)
{
    int64_t all = sk_seg_count(s), part = s->outer * sk_seg_rows(s, g->me, g->n).n * s->inner;
    bool root = g->me == call->root;
    *src = *dst = all;
    switch (call->kind) {
    case SK_REDUCE_SCATTER:
        *dst = part;
        break;
    case SK_ALLGATHER:
        *src = part;
        break;
    case SK_BROADCAST:
        *src = root ? all : 0;
        break;
    case SK_REDUCE:
        *dst = root ? all : 0;
        break;
    case SK_GATHER:
        *src = part;
        *dst = root ? all : 0;
        break;
    case SK_SCATTER:
        *src = root ? all : 0;
        *dst = part;
        break;
    case SK_ALLTOALL:
        *src = sk_seg_gives(s, g->me, g->n);
        *dst = sk_seg_gets(s, g->me, g->n);
        break;
    case SK_ALLTOALLV:
        *src = *dst = all * g->n;
        break;
    default:
        break;
    }
}

/* May dst lie there?  The same place, or the part at its place inside the whole, where comm.h says
 * so; otherwise apart. */
static bool apart(const sk_group *g, const sk_coll_call *call, const sk_seg *s, int64_t src_n,
                  int64_t dst_n)
{
    int64_t size = (int64_t)sk_dtype_size(call->type);
    int64_t out = (int64_t)sk_dtype_size(sk_fuse_type(call));
    int64_t before = sk_seg_rows(s, g->me, g->n).at * s->inner * size;
    if (!src_n || !dst_n || s->src + src_n * size <= s->dst || s->dst + dst_n * out <= s->src)
        return true;
    if (out != size) return false;
    switch (call->kind) {
    case SK_ALLREDUCE:
    case SK_BROADCAST:
    case SK_REDUCE:
        return s->src == s->dst;
    case SK_REDUCE_SCATTER:
    case SK_SCATTER:
        return s->outer == 1 && s->dst == s->src + before;
    case SK_ALLGATHER:
    case SK_GATHER:
        return s->outer == 1 && s->src == s->dst + before;
    default:
        return false;
    }
}

/* Can everything be counted, p + 1 times over? */
static bool sizes_good(const sk_seg *s, int p)
{
    int64_t sizes[] = {s->outer, s->n, s->inner, s->swap ? s->mid : 1, s->swap ? s->n2 : 1};
    int64_t all = 1;
    for (int i = 0; i < 5; i++) {
        if (sizes[i] < 0 || sizes[i] > INT64_MAX / (p + 1)) return false;
        if (__builtin_mul_overflow(all, sizes[i], &all)) return false;
    }
    return all <= INT64_MAX / 16 / (p + 1);
}

static bool seg_good(const sk_comm *c, const sk_group *g, const sk_coll_call *call, int i)
{
    const sk_seg *s = &call->segs[i];
    size_t size = sk_dtype_size(call->type);
    int64_t src, dst;
    if (!sizes_good(s, g->n)) return false;
    extents(g, call, s, &src, &dst);
    size_t out = sk_dtype_size(sk_fuse_type(call));
    return (!src || sk_in_heap(c, s->src, src, size)) &&
           (!dst || sk_in_heap(c, s->dst, dst, out)) && apart(g, call, s, src, dst);
}

/* By its list, or by a library; not in the heaps. */
static bool is_played(const sk_coll_call *call)
{
    const sk_coll *a = call->algorithm < 0 ? NULL : sk_coll_parts[call->algorithm];
    return a && !(a->native && a->build);
}

static sk_status check_fields(const sk_comm *c, const sk_group_state *m, const sk_coll_call *call)
{
    long long id = (long long)call->id;
    bool sums =
        call->kind == SK_ALLREDUCE || call->kind == SK_REDUCE_SCATTER || call->kind == SK_REDUCE;
    int parts = 0;
    while (sk_coll_parts[parts]) parts++;
    if (call->kind >= SK_N_COLLS || call->reduce >= SK_N_REDUCES || call->type >= SK_N_DTYPES ||
        call->root < 0 || call->root >= m->group.n || call->algorithm >= parts)
        return sk_fail(SK_EBUG, "call %llx: kind %d, reduction %d, type %d, root %d, algorithm %d",
                       id, call->kind, call->reduce, call->type, call->root, call->algorithm);
    const sk_coll *a = call->algorithm < 0 ? NULL : sk_coll_parts[call->algorithm];
    if (sums && !sk_sum_can(call->type, call->reduce) && !(a && a->adasum))
        return sk_fail(SK_EBUG, "call %llx: %s with reduction %d is not for %s", id,
                       sk_coll_names[call->kind], call->reduce, sk_dtype_name(call->type));
    if (call->kind == SK_ALLTOALLV && !sk_in_heap(c, call->counts, 2 * m->group.n, 8))
        return sk_fail(SK_EBUG, "call %llx: its counts are not in the heap of rank %d", id,
                       c->rank);
    if ((!m->here && !is_played(call)) || (a && a->native && !a->build && !c->wire))
        return sk_fail(SK_EBUG,
                       "call %llx: group %d spans hosts or its algorithm needs a wire: there is "
                       "none, or the algorithm is not for it",
                       id, call->group);
    return SK_OK;
}

/* Does a common call gather what lies in one memory on all members? */
static sk_status check_common(const sk_comm *c, const sk_group_state *m, const sk_coll_call *call)
{
    const sk_group *g = &m->group;
    int64_t size = (int64_t)sk_dtype_size(call->type);
    bool good = call->kind == SK_ALLGATHER && m->here && !is_played(call);
    if (!call->common) return SK_OK;
    for (int i = 0; good && i < call->n_segs; i++) {
        const sk_seg *s = &call->segs[i];
        good = s->outer == 1 &&
               s->src == s->dst + sk_seg_rows(s, g->me, g->n).at * s->inner * size &&
               sk_heaps_same(c->heaps, g->ranks, g->n, s->dst + sk_seg_count(s) * size);
    }
    if (good) return SK_OK;
    return sk_fail(
        SK_EBUG,
        "call %llx: %s on group %d is common, but not an all-gather in place of what its "
        "%d members have in one memory",
        (long long)call->id, sk_coll_names[call->kind], call->group, g->n);
}

static sk_status check_cut(const sk_coll_call *call, int i, int64_t n, const sk_grid *g)
{
    if (sk_grid_good(g, n)) return SK_OK;
    return sk_fail(SK_EBUG,
                   "call %llx (%s): the %lld rows of segment %d are not the cells %d to %d of %d "
                   "in %lld rows",
                   (long long)call->id, sk_coll_names[call->kind], (long long)n, i, g->from, g->to,
                   g->cells, (long long)g->full);
}

static sk_status check_cuts(const sk_coll_call *call, int i)
{
    const sk_seg *s = &call->segs[i];
    if (s->swap > SK_SWAP_N2_N || (s->swap && call->kind != SK_ALLTOALL))
        return sk_fail(SK_EBUG, "call %llx (%s): segment %d has swap %d; only all-to-all has one",
                       (long long)call->id, sk_coll_names[call->kind], i, (int)s->swap);
    SK_TRY(check_cut(call, i, s->n, &s->cut));
    return s->swap ? check_cut(call, i, s->n2, &s->cut2) : SK_OK;
}

static sk_status check_call(sk_comm *c, const sk_group_state *m, const sk_coll_call *call)
{
    int64_t at = (const char *)call - c->base;
    long long id = (long long)call->id;
    if (at < 0 || at > c->bytes - (int64_t)sizeof *call || call->n_segs < 0 ||
        call->n_segs > (c->bytes - at - (int64_t)sizeof *call) / (int64_t)sizeof(sk_seg))
        return sk_fail(SK_EBUG, "call %llx: its call is not in the heap of rank %d", id, c->rank);
    SK_TRY(check_fields(c, m, call));
    SK_TRY(sk_fuse_check(call));
    if (call->partial && !sk_in_heap(c, call->partial, 1, sizeof(sk_partial)))
        return sk_fail(SK_EBUG, "call %llx: its partial sums are not in the heap of rank %d", id,
                       c->rank);
    for (int i = 0; i < call->n_segs; i++) {
        const sk_seg *s = &call->segs[i];
        SK_TRY(check_cuts(call, i));
        if (seg_good(c, &m->group, call, i)) continue;
        return sk_fail(SK_EBUG,
                       "call %llx (%s): segment %d of %s, [%lld][%lld][%lld] from %lld to "
                       "%lld, overlaps itself or leaves the heap of rank %d (%lld bytes)",
                       id, sk_coll_names[call->kind], i, sk_dtype_name(call->type),
                       (long long)s->outer, (long long)s->n, (long long)s->inner, (long long)s->src,
                       (long long)s->dst, c->rank, (long long)c->bytes);
    }
    return check_common(c, m, call);
}

/* --- knowing a call --- */

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
    int64_t words[] = {call->id,     call->kind, call->reduce,    call->type,   call->group,
                       call->n_segs, call->root, call->algorithm, call->common, (int64_t)m->hash};
    int64_t fused[] = {call->cast, (int64_t)lrint((double)call->scale * 0x1p40),
                       call->partial != 0};
    uint64_t h = sk_hash(SK_HASH_SEED, words, sizeof words);
    h = sk_hash(h, fused, sizeof fused);
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
    if (sk_fuse_wanted(call) || kind == SK_ALLTOALLV || bytes * m->group.n > TINY_READ)
        return false;
    return sk_kind_rooted(kind) ? bytes <= SK_TINY : !c->crowded && bytes <= TINY_ALL;
}

static sk_way way_of(const sk_comm *c, const sk_group_state *m, const sk_coll_call *call,
                     int64_t bytes)
{
    if (m->group.n == 1) return SK_WAY_ALONE;
    if (!m->here || is_played(call)) return SK_WAY_EXECUTE;
    if (is_tiny(c, m, call, bytes)) return SK_WAY_TINY;
    return c->crowded ? SK_WAY_TICKETS : SK_WAY_FLAGS;
}

static sk_call_state *entry(sk_comm *c, const sk_coll_call *call)
{
    sk_call_state **k = &c->known[((uintptr_t)call >> 4) * 0x9E3779B97F4A7C15u >> 56];
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

static sk_status known(sk_comm *c, const sk_group_state *m, const sk_coll_call *call,
                       sk_call_state **out)
{
    sk_call_state *k = *out = entry(c, call);
    int64_t at = (const char *)call - c->base;
    if (k->call == call && !memcmp(k->head, call, sizeof *call) &&
        (!call->n_segs || same_seg(&k->first, &call->segs[0])))
        return SK_OK;
    SK_TRY(check_call(c, m, call));
    k->call = call;
    k->bytes = sk_call_count(call) * (int64_t)sk_dtype_size(call->type);
    k->way = way_of(c, m, call, k->bytes);
    k->sign = sign(m, call) + (uint64_t)k->way;
    k->says = sk_hash(k->sign, (int64_t[]){at, m->group.me}, 2 * sizeof at);
    k->signs = 0;
    if (!k->calls) k->calls = sk_many(&c->arena, const sk_coll_call *, c->n_ranks);
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

static void describe(char *out, size_t room, const sk_coll_call *call)
{
    snprintf(out, room, "call %llx (%s of %s, group %d, %d segments, %lld elements)",
             (long long)call->id, call->kind < SK_N_COLLS ? sk_coll_names[call->kind] : "?",
             call->type < SK_N_DTYPES ? sk_dtype_name(call->type) : "?", call->group, call->n_segs,
             (long long)sk_call_count(call));
}

sk_status sk_comm_differ(sk_comm *c, const sk_coll_call *mine, int peer, const sk_coll_call *theirs)
{
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

/* --- collectives --- */

/* What goes to whom is known only now. */
static sk_status check_counts(const sk_comm *c, const sk_group_state *m, const sk_coll_call *call)
{
    const int64_t *counts = (const int64_t *)(const void *)(c->base + call->counts);
    if (call->n_segs != 1 || call->segs[0].outer != 1)
        return sk_fail(SK_EBUG, "call %llx: all-to-all-v takes one segment with outer 1",
                       (long long)call->id);
    for (int i = 0; i < m->group.n; i++)
        if (counts[i] < 0 || counts[i] > call->segs[0].n)
            return sk_fail(SK_EDATA,
                           "call %llx: rank %d has %lld rows for rank %d, and a block has room for "
                           "%lld",
                           (long long)call->id, c->rank, (long long)counts[i], m->group.ranks[i],
                           (long long)call->segs[0].n);
    return SK_OK;
}

static sk_status start(sk_comm *c, sk_group_state *m, const sk_coll_call *call)
{
    sk_call_state *k;
    sk_status st = known(c, m, call, &k);
    if (!st && call->kind == SK_ALLTOALLV) st = check_counts(c, m, call);
    if (!st && m->posted - m->waited >= SK_COMM_FLIGHT)
        st = sk_fail(SK_EBUG, "call %llx is the %dth in flight on group %d, %d may be",
                     (long long)call->id, SK_COMM_FLIGHT + 1, call->group, SK_COMM_FLIGHT);
    if (st) return sk_comm_report(c, st);
    m->flight[m->posted % SK_COMM_FLIGHT] = k;
    if (k->way == SK_WAY_EXECUTE) {
        sk_heaps_slot(c->heaps, c->rank, call->group)->sign[m->posted % SK_COMM_FLIGHT] = k->sign;
        st = sk_execute_begin(c, m, call, m->posted, &m->play[m->posted % SK_COMM_FLIGHT]);
        if (st) return st == SK_EPEER ? st : sk_comm_report(c, st);
        m->over_at[m->posted % SK_COMM_FLIGHT] = 0;
        c->playing++;
    } else sk_sync_start(c, m, k);
    m->posted++;
    return SK_OK;
}

sk_status sk_comm_start(sk_comm *c, const sk_coll_call *call)
{
    sk_group_state *m = NULL;
    SK_TRY(find_group(c, call, &m));
    return start(c, m, call);
}

static sk_status oldest(sk_comm *c, const sk_coll_call *call, sk_group_state **out)
{
    SK_TRY(find_group(c, call, out));
    sk_group_state *m = *out;
    if (m->waited < m->posted && m->flight[m->waited % SK_COMM_FLIGHT]->call == call) return SK_OK;
    sk_status st = sk_fail(SK_EBUG,
                           "rank %d waits for call %llx, which is not the oldest in "
                           "flight on group %d",
                           c->rank, (long long)call->id, call->group);
    return sk_comm_report(c, st);
}

static sk_status go_on(sk_comm *c, sk_group_state *m, uint64_t k, bool *over, int *peer)
{
    double *at = &m->over_at[k % SK_COMM_FLIGHT];
    SK_TRY(sk_execute_progress(c, m->play[k % SK_COMM_FLIGHT], over, peer));
    if (*over && *at <= 0) *at = sk_now();
    return SK_OK;
}

/* Everything that is being played and can go on, goes on. */
sk_status sk_comm_progress(sk_comm *c)
{
    bool over;
    int peer;
    if (c->post) SK_TRY(sk_p2p_progress(c));
    if (!c->playing) return SK_OK;
    for (int g = 0; g < c->n_groups; g++) {
        sk_group_state *m = &c->groups[g];
        for (uint64_t k = m->waited; k < m->posted; k++)
            if (m->play[k % SK_COMM_FLIGHT] && !sk_execute_blocks(m->play[k % SK_COMM_FLIGHT]))
                SK_TRY(go_on(c, m, k, &over, &peer));
    }
    return SK_OK;
}

static sk_status wait_play(sk_comm *c, sk_group_state *m)
{
    sk_execution **p = &m->play[m->waited % SK_COMM_FLIGHT];
    sk_backoff patience = {.peer = -1, .poll = !m->here || c->post};
    sk_status st;
    for (bool over = false;;) {
        st = go_on(c, m, m->waited, &over, &patience.peer);
        if (st || over) break;
        if (c->playing > 1 || c->post) st = sk_comm_progress(c); /* others may be waited for */
        if (!st) st = sk_backoff_wait(c, &patience);
        if (st) break;
    }
    sk_backoff_end(c, &patience);
    sk_execute_end(c, *p);
    *p = NULL;
    c->playing--;
    c->over_at = m->over_at[m->waited % SK_COMM_FLIGHT];
    return st;
}

sk_status sk_comm_wait(sk_comm *c, const sk_coll_call *call)
{
    sk_group_state *m = NULL;
    SK_TRY(oldest(c, call, &m));
    sk_call_state *k = m->flight[m->waited % SK_COMM_FLIGHT];
    c->over_at = 0;
    SK_TRY(k->way == SK_WAY_EXECUTE ? wait_play(c, m) : sk_sync_wait(c, m, k));
    m->waited++;
    return SK_OK;
}

int64_t sk_comm_bytes_sent(const sk_comm *c) { return c->left; }
double sk_comm_finished_at(const sk_comm *c) { return c->over_at; }

sk_status sk_comm_test(sk_comm *c, const sk_coll_call *call, bool *done)
{
    sk_group_state *m = NULL;
    int peer;
    SK_TRY(oldest(c, call, &m));
    sk_call_state *k = m->flight[m->waited % SK_COMM_FLIGHT];
    SK_TRY(sk_comm_progress(c));
    *done = true; /* also of a library's own collective: it has no test, wait() does it */
    if (k->way == SK_WAY_EXECUTE && sk_execute_blocks(m->play[m->waited % SK_COMM_FLIGHT]))
        return SK_OK;
    if (k->way == SK_WAY_EXECUTE) return go_on(c, m, m->waited, done, &peer);
    *done = sk_sync_test(c, m, k);
    return SK_OK;
}

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
    sk_slot *s = sk_heaps_slot(c->heaps, c->rank, g);
    atomic_store(&s->members, m->hash);
    for (int i = 0; i < SK_TINY_SLOTS; i++) /* goes on where an earlier comm of mine ended */
        if (sk_own_count(&s->tiny[i].seq) > m->tiny) m->tiny = sk_own_count(&s->tiny[i].seq);
    m->posted = m->waited = sk_own_count(&s->posted);
    m->met = sk_own_count(&s->met);
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
    c->aborted = &h->word->word;
    c->fenced = !sk_wait_register();
    c->timeout_s = o->timeout_s;
    c->line = sk_heaps_rank_state(h, rank);
    c->base = sk_heap_base(h, rank);
    c->bytes = sk_heap_bytes(h, rank);
    c->groups = sk_many(&c->arena, sk_group_state, n_groups);
    c->calls = c->table = sk_many(&c->arena, const sk_coll_call *, n);
    c->shown = sk_many(&c->arena, const char *, n);
    c->src = sk_many(&c->arena, const void *, n *(o->team ? sk_threads_count(o->team) : 1));
    c->dst = sk_many(&c->arena, void *, n *(o->team ? sk_threads_count(o->team) : 1));
    c->moved = sk_many(&c->arena, int64_t, o->team ? sk_threads_count(o->team) : 1);
    c->team = o->team;
    c->wire = o->wire;
    c->host_of = o->host_of;
    c->where = o->where;
    c->where_ctx = o->where_ctx;
    sk_status st = sk_p2p_open(c);
    if (!st) st = sk_executor_open(c);
    for (int g = 0; !st && g < n_groups; g++) st = open_group(c, g, &o->groups[g]);
    if (st) {
        sk_comm_close(c);
        return sk_trail(st, SK_HERE);
    }
    atomic_store(&c->line->pid, getpid());
    atomic_store(&c->line->state, 0);
    *out = c;
    return SK_OK;
}

void sk_comm_close(sk_comm *c)
{
    if (!c) return;
    if (atomic_load(&c->line->state) < 3) atomic_store(&c->line->state, 3);
    sk_executor_close(c);
    sk_p2p_close(c);
    sk_arena a = c->arena; /* c itself lies in it */
    sk_arena_end(&a);
}
