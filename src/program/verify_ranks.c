/* verify_ranks.c - the programs of all ranks, simulated together before the first byte moves.
 *
 * P1, P2 and P3 run all programs together: calls and messages are matched as they would be, and in
 * a deadlock the ranks that wait are named.  A wait is what it is in comm/: first until all members
 * have started the call, then until all have done their share of it.  What can be proved about one
 * program alone is in verify_one.c.
 *
 * The walk takes time and memory in proportion to the instructions of all ranks: the members of a
 * group share one record of each call, with counts, and a rank knows only the ranks that it sends
 * to.  A rank may be simulated with the program of another rank of its class (sk_classes): groups
 * and peers are then those at the same relative coordinates (class_program.c).  sk_verify_rank
 * proves that its own program is the one that was simulated. */
#include "program/class_program.h"
#include "base/hash.h"
#include "base/strings.h"

#include <inttypes.h>
#include <string.h>

typedef struct message {
    int64_t tag, bytes;
} message;

typedef struct lane { /* messages from a rank to another */
    int to;
    message *v;
    int n, cap;
    int taken;
} lane;

/* The calls of one group, by their number modulo SK_COMM_FLIGHT.  Counts only grow: each call adds
 * the number of members. */
typedef struct calls {
    struct {
        const sk_call_plan *call; /* as the first rank that started it has it */
        int rank;                 /* who that is */
        const sk_inst *start;     /* of that rank */
        int64_t posted, shared;
    } v[SK_COMM_FLIGHT];
} calls;

typedef struct circle { /* a rank in a group */
    uint64_t members;   /* hash of who is in it */
    int first, n, me;
    int64_t posted, shared, done;             /* calls announced, worked on, finished */
    const sk_call_plan *mine[SK_COMM_FLIGHT]; /* announced */
    calls *all;                               /* NULL: none was started so far */
} circle;

typedef struct walker {
    int pc;
    circle *groups;
    struct {
        lane *v;
        int n, cap;
    } lanes;
} walker;

typedef struct walk {
    const sk_program *const *p;
    int n;
    walker *w;
    int *member_list; /* space for the members of a group */
    sk_arena *arena;
    bool moved; /* some rank made progress */
} walk;

static bool same_call(const walk *k, int me, int other, const sk_call_plan *a,
                      const sk_call_plan *b)
{
    /* reduction blocks of a class, not their offsets: see sk_verify_rank */
    bool placed = k->p[me]->rank == me && k->p[other]->rank == other;
    return sk_call_alike(a, b, placed) && a->group == b->group;
}

static sk_status differ(const walk *k, int me, int other, const sk_call_plan *a,
                        const sk_call_plan *b)
{
    return sk_fail(SK_EBUG,
                   "P1: rank %d calls '%s' (kind %d, %" PRId64 " elements of %s, %d members, by "
                   "%s) where rank %d calls '%s' (kind %d, %" PRId64 " of %s, %d, %s) on the same "
                   "group",
                   me, a->what, (int)a->kind, a->elements, sk_dtype_name(a->type),
                   k->w[me].groups[a->group].n, sk_algorithm_name(a->algorithm), other, b->what,
                   (int)b->kind, b->elements, sk_dtype_name(b->type),
                   k->w[other].groups[b->group].n, sk_algorithm_name(b->algorithm));
}

/* --- calls --- */

/* The first start of a rank on a group: do all members have the same list of members?  Checked once
 * per list. */
static sk_status join(walk *k, int r, const sk_call_plan *c)
{
    circle *mine = &k->w[r].groups[c->group], *first = &k->w[mine->first].groups[c->group];
    bool asked = first->all && first->members == mine->members;
    int n = asked ? 0 : sk_program_members(k->p[r], r, c->group, k->member_list);
    for (int i = 0; i < n; i++) {
        int m = k->member_list[i];
        if (k->w[m].groups[c->group].members == mine->members) continue;
        return sk_fail(SK_EBUG,
                       "P1: rank %d calls '%s' on group %d with rank %d, which has other "
                       "members in it",
                       r, c->what, c->group, m);
    }
    if (!first->all) first->all = sk_new(k->arena, calls);
    mine->all = first->all;
    return SK_OK;
}

static int step_start(walk *k, int r, const sk_inst *in, sk_status *st)
{
    const sk_call_plan *c = &k->p[r]->calls.v[in->call];
    circle *g = &k->w[r].groups[c->group];
    if (g->me < 0 || g->posted - g->done >= SK_COMM_FLIGHT) {
        *st = sk_fail(SK_EBUG, "P1: rank %d starts '%s' %s", r, c->what,
                      g->me < 0 ? "on a group it is not in" : "with too many calls in flight");
        return -1;
    }
    if (!g->all) *st = join(k, r, c);
    if (*st) return -1;
    int at = (int)(g->posted % SK_COMM_FLIGHT);
    if (g->all->v[at].posted++ % g->n == 0) {
        g->all->v[at].call = c;
        g->all->v[at].rank = r;
        g->all->v[at].start = in;
    } else if (!sk_insts_due_alike(g->all->v[at].start, in)) {
        *st = sk_fail(SK_EBUG, "P1: rank %d calls '%s' in other steps than rank %d", r, c->what,
                      g->all->v[at].rank);
        return -1;
    } else if (!same_call(k, r, g->all->v[at].rank, c, g->all->v[at].call)) {
        *st = differ(k, r, g->all->v[at].rank, c, g->all->v[at].call);
        return -1;
    }
    g->mine[at] = c;
    g->posted++;
    return 1;
}

/* Have all members added to this count of call `seq`? */
static bool all_did(const circle *g, int64_t count, int64_t seq)
{
    return count >= (seq / SK_COMM_FLIGHT + 1) * g->n;
}

/* 1: made progress, 0: must wait, -1: failed */
static int step_wait(walk *k, int r, const sk_call_plan *c, sk_status *st)
{
    circle *g = &k->w[r].groups[c->group];
    int64_t seq = g->done;
    int at = (int)(seq % SK_COMM_FLIGHT);
    if (g->posted <= seq || g->mine[at] != c) {
        *st = sk_fail(SK_EBUG, "P1: rank %d waits for '%s', which is not the oldest it started", r,
                      c->what);
        return -1;
    }
    if (!all_did(g, g->all->v[at].posted, seq)) return 0;
    if (g->shared <= seq) {
        g->all->v[at].shared++;
        g->shared = seq + 1;
        k->moved = true;
    }
    if (!all_did(g, g->all->v[at].shared, seq)) return 0;
    g->done++;
    return 1;
}

/* --- messages --- */

static lane *lane_to(walk *k, int from, int to)
{
    walker *w = &k->w[from];
    for (int i = 0; i < w->lanes.n; i++)
        if (w->lanes.v[i].to == to) return &w->lanes.v[i];
    lane *l = sk_push(k->arena, &w->lanes);
    *l = (lane){.to = to};
    return l;
}

static int step_recv(walk *k, int r, int peer, const sk_inst *in, sk_status *st)
{
    lane *q = lane_to(k, peer, r);
    int64_t bytes = k->p[r]->bufs.v[in->out[0]].bytes;
    if (q->taken == q->n) return 0;
    const message *m = &q->v[q->taken++];
    if (m->tag == in->tag && m->bytes == bytes) return 1;
    *st = sk_fail(SK_EBUG,
                  "P2: rank %d receives '%s' (%" PRId64 " bytes), but rank %d sent another "
                  "tensor (%" PRId64 " bytes) there",
                  r, k->p[r]->bufs.v[in->out[0]].name, bytes, peer, m->bytes);
    return -1;
}

static int step_message(walk *k, int r, const sk_inst *in, sk_status *st)
{
    int peer = sk_program_peer(k->p[r], r, in->peer);
    if (peer < 0) {
        *st = sk_fail(SK_EBUG, "P2: rank %d names rank %d of %d", r, in->peer, k->n);
        return -1;
    }
    if (in->act == SK_DO_RECV) return step_recv(k, r, peer, in, st);
    lane *q = lane_to(k, r, peer);
    /* counts are per section; both sections begin with nothing in flight */
    if (in->act == SK_DO_SENT) return q->taken >= in->sent;
    *(message *)sk_push(k->arena, q) = (message){in->tag, k->p[r]->bufs.v[in->in[0]].bytes};
    return 1;
}

/* --- the walk --- */

static int step(walk *k, int r, sk_status *st)
{
    const sk_program *p = k->p[r];
    const sk_inst *in = &p->insts.v[k->w[r].pc];
    switch (in->act) {
    case SK_DO_START:
        return step_start(k, r, in, st);
    case SK_DO_WAIT:
        return step_wait(k, r, &p->calls.v[in->call], st);
    case SK_DO_RECV:
    case SK_DO_SEND:
    case SK_DO_SENT:
        return step_message(k, r, in, st);
    default:
        return 1;
    }
}

static sk_status stuck(const walk *k, const int *end)
{
    sk_arena tmp = {0};
    sk_out o = {.arena = &tmp};
    int shown = 0, waiting = 0;
    for (int r = 0; r < k->n; r++) {
        if (k->w[r].pc >= end[r]) continue;
        waiting++;
        if (shown++ < 4)
            sk_out_add(&o, "\n  rank %d at%s", r,
                       sk_inst_print(sk_program_as(&tmp, k->p[r], r), k->w[r].pc, &tmp));
    }
    const char *report = sk_print(&tmp, "P3: %d of %d ranks wait for ever:%s", waiting, k->n, o.s);
    sk_status st = sk_fail(SK_EBUG, "%s", report);
    sk_arena_end(&tmp);
    return st;
}

static sk_status left_over(const walk *k)
{
    for (int r = 0; r < k->n; r++) {
        const walker *w = &k->w[r];
        for (int i = 0; i < w->lanes.n; i++)
            if (w->lanes.v[i].taken < w->lanes.v[i].n)
                return sk_fail(SK_EBUG,
                               "P2: rank %d sends %d messages to rank %d, which receives %d", r,
                               w->lanes.v[i].n, w->lanes.v[i].to, w->lanes.v[i].taken);
        for (int g = 0; g < k->p[r]->n_groups; g++)
            if (w->groups[g].posted != w->groups[g].done)
                return sk_fail(
                    SK_EBUG, "P1: rank %d starts a call on group %d and never waits for it", r, g);
    }
    return SK_OK;
}

static sk_status walk_section(walk *k, const int *end)
{
    sk_status st = SK_OK;
    for (int r = 0; r < k->n; r++) k->w[r].lanes.n = 0;
    for (k->moved = true; k->moved;) {
        k->moved = false;
        for (int r = 0; r < k->n; r++)
            while (k->w[r].pc < end[r]) {
                int went = step(k, r, &st);
                if (st) return st;
                if (!went) break;
                k->w[r].pc++;
                k->moved = true;
            }
    }
    for (int r = 0; r < k->n; r++)
        if (k->w[r].pc < end[r]) return stuck(k, end);
    return left_over(k);
}

/* The group of all ranks, where p stands for rank r and has entered already. */
static bool is_world(const walk *k, int r, int group)
{
    const sk_program *p = k->p[r];
    return p->rank < r && p->groups[group].n == k->n;
}

static sk_status enter(walk *k, int r)
{
    const sk_program *p = k->p[r];
    if (p->n_groups != k->p[0]->n_groups)
        return sk_fail(SK_EBUG, "P1: rank %d has %d groups, rank 0 has %d", r, p->n_groups,
                       k->p[0]->n_groups);
    k->w[r].groups = sk_many(k->arena, circle, p->n_groups);
    for (int i = 0; i < p->n_groups; i++) {
        circle *g = &k->w[r].groups[i];
        if (is_world(k, r, i)) {
            const circle *theirs = &k->w[p->rank].groups[i];
            *g = (circle){.members = theirs->members, .first = theirs->first, .n = k->n, .me = r};
            continue;
        }
        g->n = sk_program_members(p, r, i, k->member_list);
        g->me = -1;
        for (int j = 0; j < g->n; j++) {
            if (k->member_list[j] < 0 || k->member_list[j] >= k->n)
                return sk_fail(SK_EBUG, "P1: rank %d has rank %d of %d in group %d", r,
                               k->member_list[j], k->n, i);
            if (k->member_list[j] == r) g->me = j;
        }
        if (p->rank == r && p->groups[i].me != g->me) g->me = -1;
        g->first = g->n ? k->member_list[0] : -1;
        g->members = sk_hash(SK_HASH_SEED, k->member_list, sizeof *k->member_list * (size_t)g->n);
    }
    return SK_OK;
}

static sk_status together(const sk_program *const *p, int n)
{
    sk_arena tmp = {0};
    walk k = {.p = p, .n = n, .arena = &tmp};
    int *end = sk_many(&tmp, int, n);
    sk_status st = SK_OK;
    k.w = sk_many(&tmp, walker, n);
    k.member_list = sk_many(&tmp, int, n);
    for (int r = 0; !st && r < n; r++) {
        st = enter(&k, r);
        end[r] = p[r]->n_train;
    }
    if (!st) st = walk_section(&k, end);
    for (int r = 0; r < n; r++) end[r] = p[r]->insts.n;
    if (!st) st = walk_section(&k, end);
    sk_arena_end(&tmp);
    return st;
}

sk_status sk_verify(const sk_program *const *programs, int n_ranks)
{
    for (int r = 0; r < n_ranks; r++)
        if (programs[r]->rank == r) SK_TRY(sk_verify_one(programs[r]));
    SK_TRY(sk_verify_shared_all(programs, n_ranks));
    SK_TRY(together(programs, n_ranks));
    return SK_OK;
}

sk_status sk_verify_rank(const sk_program *own, const sk_program *p)
{
    if (own == p) return SK_OK;
    SK_TRY(sk_verify_one(own));
    SK_TRY(sk_program_alike(own, p));
    return SK_OK;
}
