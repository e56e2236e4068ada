/* shm.c - one rank's end: collectives and messages over the shared heaps.
 *
 * A collective has two rounds of flags.  start() stores where my call lies and
 * raises `posted`.  wait() waits until all members posted, does my share with
 * the peers' memory in place, raises `done`, and waits until all are done.
 * Shares of an all-reduce of S bytes on p members:
 *
 *     two-shot   member i sums its p-th of all elements (the segments laid end to end) over
 *                all sources and stores it to all destinations: 2S of traffic per core, 2pS of
 *                DRAM, the least possible while each member keeps a copy
 *     one-shot   below ONE_SHOT elements: everybody sums everything for itself; no line that
 *                a peer owns is written.  The sum waits in scratch until all are done, since
 *                the destination may be the source that others still read
 *
 * Which of the two depends only on what members agree upon.  The agreement (same
 * instruction, kind, type, shapes, members) is checked in every wait: it reads a
 * few shared lines that nobody writes, so they stay in every core's cache.
 *
 * Waiting is spinning for SPINS, yielding for YIELDS, then sleeping on the bell.
 * With more ranks than cores spinning only keeps the awaited rank from running:
 * a wait then yields a few times and sleeps.  Whoever raises a flag looks whether
 * its readers sleep.  The two orders "raise flag, read asleep" and "set asleep,
 * read flag" must not both miss, hence sequentially consistent atomics there. */
#include "comm/heap.h"
#include "comm/sum.h"
#include "base/clock.h"
#include "base/hash.h"

#include <sched.h>
#include <stdio.h>
#include <unistd.h>

enum { ONE_SHOT = 1024, SPINS = 2000, YIELDS = 200, CROWDED_YIELDS = 8, GRAIN = 32 };

typedef struct member_of { /* a group, and my counts in it */
    sk_group group;
    uint64_t hash, posted, waited;
} member_of;

struct sk_comm {
    sk_arena arena;
    sk_heaps *heaps;
    int rank, n_ranks, n_groups;
    bool crowded;
    double timeout_s;
    sk_line *line;
    member_of *groups;
    char *base;
    int64_t bytes;
    const sk_coll_call **calls; /* per member, of the collective at hand */
    const void **src;
    void **dst;
    _Alignas(64) char scratch[ONE_SHOT * 8];
};

static const char *const kind_names[] = {"all-reduce", "reduce-scatter", "all-gather"};

/* --- failing --- */

/* After sk_fail: put my story on the board, or drop it if somebody else was first. */
static sk_status tell(sk_comm *c, sk_status code)
{
    if (sk_heaps_abort(c->heaps, code, c->rank, sk_error())) return code;
    sk_error_set("");
    return SK_EPEER;
}

static sk_status hushed(void)
{
    sk_error_set("");
    return SK_EPEER;
}

static sk_status too_long(sk_comm *c, int peer, double seconds)
{
    const sk_line *l = sk_heaps_line(c->heaps, peer);
    char waits[64] = "not waiting for a rank";
    long long step = atomic_load(&l->step), pc = atomic_load(&l->pc);
    long long on = atomic_load(&l->waits_for);
    if (on >= 0) snprintf(waits, sizeof waits, "waiting for rank %lld", on);
    sk_status st =
        sk_fail(SK_EPEER,
                "rank %d waited %.3g s at instruction %lld for rank %d (which is at "
                "step %lld, instruction %lld, %s); it hangs, died, or is slower than "
                "the timeout allows",
                c->rank, seconds, (long long)atomic_load(&c->line->pc), peer, step, pc, waits);
    return tell(c, st);
}

/* --- waiting --- */

static inline void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline bool reached(const atomic_ullong *flag, uint64_t least)
{
    return atomic_load_explicit(flag, memory_order_acquire) >= least;
}

/* A count that I alone raise. */
static uint64_t mine(const atomic_ullong *flag)
{
    return atomic_load_explicit(flag, memory_order_relaxed);
}

static sk_status sleep_until(sk_comm *c, const atomic_ullong *flag, uint64_t least, int peer)
{
    sk_bell *bell = sk_heaps_bell(c->heaps, c->rank);
    double start = sk_now(), slice = c->timeout_s > 0 ? c->timeout_s / 8 : 1;
    int yields = c->crowded ? CROWDED_YIELDS : YIELDS;
    for (int i = 0; !reached(flag, least); i++) {
        if (!sk_heaps_quiet(c->heaps)) return hushed();
        double waited = sk_now() - start;
        if (c->timeout_s > 0 && waited > c->timeout_s) return too_long(c, peer, waited);
        if (i < yields) {
            sched_yield();
            continue;
        }
        unsigned seen = atomic_load(&bell->ring);
        atomic_store(&bell->asleep, 1);
        if (atomic_load(flag) < least && sk_heaps_quiet(c->heaps)) sk_bell_sleep(bell, seen, slice);
        atomic_store(&bell->asleep, 0);
    }
    return SK_OK;
}

/* Until *flag, raised by peer, is at least `least`. */
static sk_status await(sk_comm *c, const atomic_ullong *flag, uint64_t least, int peer)
{
    for (int i = c->crowded ? SPINS : 0; i < SPINS; i++) {
        if (reached(flag, least)) return SK_OK;
        if (!sk_heaps_quiet(c->heaps)) return hushed();
        pause_cpu();
    }
    if (reached(flag, least)) return SK_OK;
    atomic_store_explicit(&c->line->waits_for, peer, memory_order_relaxed);
    sk_status st = sleep_until(c, flag, least, peer);
    atomic_store_explicit(&c->line->waits_for, -1, memory_order_relaxed);
    return st;
}

/* --- groups --- */

static sk_status find_group(sk_comm *c, const sk_coll_call *call, member_of **out)
{
    int g = call->group;
    if (g < 0 || g >= c->n_groups || c->groups[g].group.me < 0) {
        sk_status st = sk_fail(SK_EBUG, "call %llx uses group %d, rank %d has %d groups",
                               (long long)call->id, g, c->rank, c->n_groups);
        return tell(c, st);
    }
    *out = &c->groups[g];
    return SK_OK;
}

typedef enum flag_kind { POSTED, DONE } flag_kind;

static atomic_ullong *group_flag(const sk_comm *c, const member_of *m, int group, int i,
                                 flag_kind kind)
{
    sk_slot *s = sk_heaps_slot(c->heaps, m->group.ranks[i], group);
    return kind == POSTED ? &s->posted : &s->done;
}

static void raise_flag(sk_comm *c, const member_of *m, int group, flag_kind kind, uint64_t to)
{
    atomic_store(group_flag(c, m, group, m->group.me, kind), to);
    for (int i = 0; i < m->group.n; i++)
        if (i != m->group.me) sk_bell_ring(sk_heaps_bell(c->heaps, m->group.ranks[i]));
}

static sk_status await_all(sk_comm *c, const member_of *m, const sk_coll_call *call, flag_kind kind)
{
    for (int i = 1; i < m->group.n; i++) { /* beginning after me, so that not all eye the same */
        int k = (m->group.me + i) % m->group.n;
        SK_TRY(await(c, group_flag(c, m, call->group, k, kind), m->waited + 1, m->group.ranks[k]));
    }
    return SK_OK;
}

/* --- shapes --- */

static int64_t cut(int64_t n, int i, int p) { return n * i / p; }
static int64_t seg_count(const sk_seg *s) { return s->outer * s->n * s->inner; }

static int64_t call_count(const sk_coll_call *call)
{
    int64_t n = 0;
    for (int i = 0; i < call->n_segs; i++) n += seg_count(&call->segs[i]);
    return n;
}

/* Member i's elements of a segment. */
static int64_t seg_part(const sk_seg *s, int i, int p)
{
    return s->outer * (cut(s->n, i + 1, p) - cut(s->n, i, p)) * s->inner;
}

static bool inside(const sk_comm *c, int64_t at, int64_t count, size_t size)
{
    return at >= 0 && count >= 0 && count <= (c->bytes - at) / (int64_t)size;
}

/* May dst lie there?  The whole buffer of an all-gather or reduce-scatter may hold the part. */
static bool apart(sk_coll_kind kind, const sk_seg *s, int64_t part, int64_t before, int64_t size)
{
    int64_t all = seg_count(s) * size, src_n = kind == SK_ALLGATHER ? part * size : all;
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
    int64_t all = seg_count(s), part = seg_part(s, g->me, g->n);
    int64_t src = call->kind == SK_ALLGATHER ? part : all;
    int64_t dst = call->kind == SK_REDUCE_SCATTER ? part : all;
    return inside(c, s->src, src, size) && inside(c, s->dst, dst, size) &&
           apart(call->kind, s, part, cut(s->n, g->me, g->n) * s->inner, (int64_t)size);
}

static sk_status check_call(sk_comm *c, const member_of *m, const sk_coll_call *call)
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
        return sk_fail(SK_EBUG, "call %llx: %s is not for %s", id, kind_names[call->kind],
                       sk_dtype_name(call->type));
    for (int i = 0; i < call->n_segs; i++) {
        const sk_seg *s = &call->segs[i];
        if (seg_good(c, &m->group, call, i)) continue;
        return sk_fail(SK_EBUG,
                       "call %llx (%s): segment %d of %s, [%lld][%lld][%lld] from %lld to "
                       "%lld, overlaps itself or leaves the heap of rank %d (%lld bytes)",
                       id, kind_names[call->kind], i, sk_dtype_name(call->type),
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
             (long long)call->id, kind_names[call->kind], sk_dtype_name(call->type), call->group,
             call->n_segs, (long long)call_count(call));
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
    return tell(c, st);
}

/* Fills c->calls with what each member posted, if it is what I posted. */
static sk_status agree(sk_comm *c, const member_of *m, const sk_coll_call *call)
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

/* --- the work --- */

/* The sources of segment s on all members, `from` elements in. */
static void aim_src(sk_comm *c, const sk_group *g, int s, int64_t from, size_t size)
{
    for (int i = 0; i < g->n; i++)
        c->src[i] = (char *)sk_heap_base(c->heaps, g->ranks[i]) + c->calls[i]->segs[s].src +
                    from * (int64_t)size;
}

static void aim_dst(sk_comm *c, const sk_group *g, int s, int64_t from, size_t size)
{
    for (int i = 0; i < g->n; i++)
        c->dst[i] = (char *)sk_heap_base(c->heaps, g->ranks[i]) + c->calls[i]->segs[s].dst +
                    from * (int64_t)size;
}

/* Slices in whole cache lines, so that two members rarely write to one. */
static int64_t share(int64_t total, int i, int p)
{
    return i == p ? total : cut(total, i, p) / GRAIN * GRAIN;
}

static void two_shot(sk_comm *c, const sk_group *g, const sk_coll_call *call, int64_t total)
{
    size_t size = sk_dtype_size(call->type);
    int64_t lo = share(total, g->me, g->n), hi = share(total, g->me + 1, g->n), at = 0;
    for (int s = 0; s < call->n_segs && at < hi; s++) {
        int64_t n = seg_count(&call->segs[s]);
        int64_t from = lo > at ? lo - at : 0, to = hi - at < n ? hi - at : n;
        at += n;
        if (from >= to) continue;
        aim_src(c, g, s, from, size);
        aim_dst(c, g, s, from, size);
        sk_sum(call->type, call->reduce, g->n, c->src, g->n, c->dst, to - from);
    }
}

static void one_shot(sk_comm *c, const sk_group *g, const sk_coll_call *call)
{
    size_t size = sk_dtype_size(call->type);
    char *to = c->scratch;
    for (int s = 0; s < call->n_segs; s++) {
        int64_t n = seg_count(&call->segs[s]);
        aim_src(c, g, s, 0, size);
        sk_sum(call->type, call->reduce, g->n, c->src, 1, (void *[]){to}, n);
        to += n * (int64_t)size;
    }
}

static void one_shot_end(sk_comm *c, const sk_coll_call *call)
{
    const char *from = c->scratch;
    for (int s = 0; s < call->n_segs; s++) {
        size_t n = (size_t)seg_count(&call->segs[s]) * sk_dtype_size(call->type);
        memcpy(c->base + call->segs[s].dst, from, n);
        from += n;
    }
}

static void reduce_scatter(sk_comm *c, const sk_group *g, const sk_coll_call *call)
{
    size_t size = sk_dtype_size(call->type);
    for (int i = 0; i < call->n_segs; i++) {
        const sk_seg *s = &call->segs[i];
        int64_t lo = cut(s->n, g->me, g->n), run = (cut(s->n, g->me + 1, g->n) - lo) * s->inner;
        char *to = c->base + s->dst;
        for (int64_t o = 0; run && o < s->outer; o++, to += run * (int64_t)size) {
            aim_src(c, g, i, (o * s->n + lo) * s->inner, size);
            sk_sum(call->type, call->reduce, g->n, c->src, 1, (void *[]){to}, run);
        }
    }
}

/* Member k's piece of every segment into its place in mine. */
static void pull(sk_comm *c, const sk_group *g, const sk_coll_call *call, int k)
{
    int64_t size = (int64_t)sk_dtype_size(call->type);
    const char *heap = sk_heap_base(c->heaps, g->ranks[k]);
    for (int i = 0; i < call->n_segs; i++) {
        const sk_seg *s = &call->segs[i];
        int64_t lo = cut(s->n, k, g->n), run = (cut(s->n, k + 1, g->n) - lo) * s->inner * size;
        const char *from = heap + c->calls[k]->segs[i].src;
        char *to = c->base + s->dst + lo * s->inner * size;
        if (from == to || !run) continue; /* my own piece, in place */
        for (int64_t o = 0; o < s->outer; o++, from += run, to += s->n * s->inner * size)
            memcpy(to, from, (size_t)run);
    }
}

static void all_gather(sk_comm *c, const sk_group *g, const sk_coll_call *call)
{
    for (int i = 1; i <= g->n; i++) pull(c, g, call, (g->me + i) % g->n);
}

/* Alone in the group: whole and part are the same. */
static void copy_own(sk_comm *c, const sk_coll_call *call)
{
    for (int i = 0; i < call->n_segs; i++) {
        const sk_seg *s = &call->segs[i];
        size_t n = (size_t)seg_count(s) * sk_dtype_size(call->type);
        if (s->src != s->dst) memcpy(c->base + s->dst, c->base + s->src, n);
    }
}

static bool is_one_shot(const sk_coll_call *call, int64_t total)
{
    return call->kind == SK_ALLREDUCE && total < ONE_SHOT;
}

static void do_share(sk_comm *c, const sk_group *g, const sk_coll_call *call, int64_t total)
{
    if (call->kind == SK_REDUCE_SCATTER) reduce_scatter(c, g, call);
    else if (call->kind == SK_ALLGATHER) all_gather(c, g, call);
    else if (is_one_shot(call, total)) one_shot(c, g, call);
    else two_shot(c, g, call, total);
}

/* --- collectives --- */

sk_status sk_comm_start(sk_comm *c, const sk_coll_call *call)
{
    member_of *m = NULL;
    SK_TRY(find_group(c, call, &m));
    sk_status st = check_call(c, m, call);
    if (st) return tell(c, st);
    sk_slot *slot = sk_heaps_slot(c->heaps, c->rank, call->group);
    slot->call[m->posted % SK_COMM_FLIGHT] = (const char *)call - c->base;
    raise_flag(c, m, call->group, POSTED, ++m->posted);
    return SK_OK;
}

sk_status sk_comm_wait(sk_comm *c, const sk_coll_call *call)
{
    member_of *m = NULL;
    SK_TRY(find_group(c, call, &m));
    const sk_slot *slot = sk_heaps_slot(c->heaps, c->rank, call->group);
    if (m->waited == m->posted ||
        slot->call[m->waited % SK_COMM_FLIGHT] != (const char *)call - c->base) {
        sk_status st = sk_fail(SK_EBUG,
                               "rank %d waits for call %llx, which is not the oldest in "
                               "flight on group %d",
                               c->rank, (long long)call->id, call->group);
        return tell(c, st);
    }
    if (m->group.n == 1) copy_own(c, call);
    else {
        int64_t total = call_count(call);
        SK_TRY(await_all(c, m, call, POSTED));
        SK_TRY(agree(c, m, call));
        do_share(c, &m->group, call, total);
        raise_flag(c, m, call->group, DONE, m->waited + 1);
        SK_TRY(await_all(c, m, call, DONE));
        if (is_one_shot(call, total)) one_shot_end(c, call);
    }
    m->waited++;
    return SK_OK;
}

/* --- messages --- */

static sk_status check_peer(sk_comm *c, int peer, int64_t bytes)
{
    if (peer >= 0 && peer < c->n_ranks && bytes >= 0) return SK_OK;
    sk_status st = sk_fail(SK_EBUG, "rank %d of %d has a message of %lld bytes with rank %d",
                           c->rank, c->n_ranks, (long long)bytes, peer);
    return tell(c, st);
}

sk_status sk_comm_send(sk_comm *c, int to, int64_t tag, const void *data, int64_t bytes)
{
    SK_TRY(check_peer(c, to, bytes));
    int64_t at = (const char *)data - c->base;
    if (!inside(c, at, bytes, 1)) {
        sk_status st = sk_fail(SK_EBUG, "rank %d sends %lld bytes to rank %d from outside its heap",
                               c->rank, (long long)bytes, to);
        return tell(c, st);
    }
    sk_pair *p = sk_heaps_pair(c->heaps, c->rank, to);
    uint64_t k = mine(&p->sent);
    if (k >= SK_COMM_FLIGHT) /* the note's place must have been read */
        SK_TRY(await(c, &p->received, k - SK_COMM_FLIGHT + 1, to));
    p->note[k % SK_COMM_FLIGHT] = (struct sk_note){.at = at, .bytes = bytes, .tag = tag};
    atomic_store(&p->sent, k + 1);
    sk_bell_ring(sk_heaps_bell(c->heaps, to));
    return SK_OK;
}

sk_status sk_comm_recv(sk_comm *c, int from, int64_t tag, void *data, int64_t bytes)
{
    SK_TRY(check_peer(c, from, bytes));
    sk_pair *p = sk_heaps_pair(c->heaps, from, c->rank);
    uint64_t k = mine(&p->received);
    SK_TRY(await(c, &p->sent, k + 1, from));
    const struct sk_note *note = &p->note[k % SK_COMM_FLIGHT];
    if (note->tag != tag || note->bytes != bytes) {
        sk_status st = sk_fail(SK_EBUG,
                               "rank %d expects message %lld of %lld bytes from rank %d, which "
                               "sent message %lld of %lld bytes; their programs differ",
                               c->rank, (long long)tag, (long long)bytes, from,
                               (long long)note->tag, (long long)note->bytes);
        return tell(c, st);
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
    uint64_t sent = mine(&p->sent);
    if ((uint64_t)count > sent) {
        sk_status st = sk_fail(SK_EBUG, "rank %d waits for %lld sends to rank %d and made %llu",
                               c->rank, (long long)count, to, (unsigned long long)sent);
        return tell(c, st);
    }
    return await(c, &p->received, (uint64_t)count, to);
}

sk_status sk_comm_barrier(sk_comm *c)
{
    atomic_ullong *entered = &sk_heaps_bell(c->heaps, c->rank)->barrier;
    uint64_t k = mine(entered) + 1;
    atomic_store(entered, k);
    for (int r = 0; r < c->n_ranks; r++)
        if (r != c->rank) sk_bell_ring(sk_heaps_bell(c->heaps, r));
    for (int i = 1; i < c->n_ranks; i++) {
        int r = (c->rank + i) % c->n_ranks;
        SK_TRY(await(c, &sk_heaps_bell(c->heaps, r)->barrier, k, r));
    }
    return SK_OK;
}

/* --- opening --- */

static sk_status open_group(sk_comm *c, int g, const sk_group *from)
{
    member_of *m = &c->groups[g];
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
    m->posted = m->waited = mine(&s->posted); /* goes on where an earlier comm of mine ended */
    return SK_OK;
}

sk_status sk_comm_open(sk_heaps *h, int rank, const sk_group *groups, int n_groups,
                       double timeout_s, sk_comm **out)
{
    int n = sk_heaps_ranks(h);
    if (rank < 0 || rank >= n || n_groups < 0 || n_groups > SK_COMM_GROUPS)
        return sk_fail(SK_EBUG, "comm: rank %d of %d with %d groups; at most %d groups", rank, n,
                       n_groups, SK_COMM_GROUPS);
    sk_arena a = {0};
    sk_comm *c = sk_new(&a, sk_comm);
    *c = (sk_comm){.arena = a, .heaps = h, .rank = rank, .n_ranks = n, .n_groups = n_groups};
    c->crowded = sk_heaps_crowded(h);
    c->timeout_s = timeout_s;
    c->line = sk_heaps_line(h, rank);
    c->base = sk_heap_base(h, rank);
    c->bytes = sk_heap_bytes(h, rank);
    c->groups = sk_many(&c->arena, member_of, n_groups);
    c->calls = sk_many(&c->arena, const sk_coll_call *, n);
    c->src = sk_many(&c->arena, const void *, n);
    c->dst = sk_many(&c->arena, void *, n);
    sk_status st = SK_OK;
    for (int g = 0; !st && g < n_groups; g++) st = open_group(c, g, &groups[g]);
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
