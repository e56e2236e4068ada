/* fabric.c - a program's calls and messages as NCCL calls.
 *
 * A segment is seen as parts, one a member, each `outer` runs that lie a step apart in the whole.
 * Packed, the parts lie one behind the other, dense: part i begins outer * at(i) * inner elements
 * into the room, which for outer 1 is also where it begins in the whole, so that one formula serves
 * both. */
#include "run/gpu/fabric.h"
#include "program/rooms.h"
#include "base/clock.h"
#include "base/strings.h"
#include "coll/segment.h"
#include "device/nccl.h"
#include "run/gpu/inst_kernels.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Not there where skein_cuda was not linked; its address is then NULL. */
#pragma weak sk_nccl_cuda

enum {
    AT_ONCE = 4,   /* circles that are being made */
    PER_NOTE = 30, /* ids that are told at once */
    HELLO = 64     /* bytes of the first message on a way */
};

#define ABSENT_S 1.0
enum { ABORT_S = 10 };

typedef struct ring { /* a circle, and what it is for */
    int group;        /* of the program; -1: of messages */
    int from, to;     /* ranks, of messages */
    int n, me;
    const char *name; /* "group 'dp' (ranks 0 2 4 6)" */
    char id[SK_NCCL_ID];
    bool known; /* the id */
    sk_nccl_comm *circle;
    sk_stream *stream;
    pthread_t ender; /* aborts it */
    bool ending;
    int64_t *mark; /* k + 1 while call k, or the message with tag k, is under way; then negative */
} ring;

struct sk_fabric {
    const sk_program *p;
    sk_device *d;
    sk_comm *comm;
    const sk_heaps *heaps; /* or NULL */
    const sk_nccl *door;
    const sk_inst_kernels *acts;
    double timeout_s;
    struct {
        ring *v;
        int n, cap;
    } rings;
    int *ring_of;   /* by group; -1: none */
    int64_t *words; /* the marks */
    uint64_t seen;  /* the sum of all marks when it last changed */
    double since;   /* when that was */
    double looked;  /* when somebody last watched */
    bool gone;      /* aborted */
};

/* --- waiting --- */

static bool late(const sk_fabric *f, double since)
{
    return f->timeout_s > 0 && sk_now() - since > f->timeout_s;
}

/* Somebody else told the story. */
static bool others_failed(const sk_fabric *f)
{
    if (!f->heaps || !sk_heaps_aborted(f->heaps, NULL, NULL, NULL)) return false;
    sk_error_set("");
    return true;
}

/* What the door said, and of which circle. */
static sk_status of_ring(const ring *r, sk_status st, const char *what)
{
    char said[600];
    if (!st) return SK_OK;
    snprintf(said, sizeof said, "%s", sk_error_line());
    return sk_fail(st, "%s; in %s, %s", said, r->name, what);
}

/* Until what was begun on a circle is on its stream.  NCCL is done at once but for the first time.
 */
static sk_status settle(const sk_fabric *f, const ring *r, const char *what)
{
    double since = sk_now();
    for (bool yes = false;;) {
        SK_TRY(of_ring(r, f->door->ready(r->circle, &yes), what));
        if (yes) return SK_OK;
        if (others_failed(f)) return SK_EPEER;
        if (late(f, since))
            return sk_fail(SK_EPEER,
                           "nccl: rank %d waited %.3g s for the other members of %s to come to "
                           "'%s'; see where their processes are",
                           f->p->rank, f->timeout_s, r->name, what);
        sched_yield();
    }
}

/* --- which circles there are --- */

static const char *name_ranks(sk_arena *a, const char *what, const int *ranks, int n)
{
    sk_out o = {.arena = a};
    sk_out_add(&o, "%s (ranks", what);
    for (int i = 0; i < n && i < 8; i++) sk_out_add(&o, " %d", ranks[i]);
    if (n > 8) sk_out_add(&o, " .. %d", ranks[n - 1]);
    sk_out_add(&o, ")");
    return o.s;
}

static const char *name_group(sk_arena *a, const sk_program *p, int g)
{
    const char *what = g < p->layout.mesh.n ? sk_print(a, "group '%s'", p->layout.mesh.name[g])
                       : g == p->world      ? "group 'world'"
                                            : sk_print(a, "group %d", g);
    return name_ranks(a, what, p->groups[g].ranks, p->groups[g].n);
}

static void add_groups(sk_fabric *f, sk_arena *a)
{
    const sk_program *p = f->p;
    f->ring_of = sk_many(a, int, p->n_groups + 1);
    for (int g = 0; g < p->n_groups; g++) {
        bool used = false;
        for (int i = 0; i < p->calls.n; i++) used |= p->calls.v[i].group == g;
        f->ring_of[g] = -1;
        if (!used || p->groups[g].n < 2 || p->groups[g].me < 0) continue;
        f->ring_of[g] = f->rings.n;
        *sk_push(a, &f->rings) = (ring){
            .group = g, .n = p->groups[g].n, .me = p->groups[g].me, .name = name_group(a, p, g)};
    }
}

static int find_way(const sk_fabric *f, int from, int to)
{
    for (int i = 0; i < f->rings.n; i++) {
        const ring *r = &f->rings.v[i];
        if (r->group < 0 && r->from == from && r->to == to) return i;
    }
    return -1;
}

static int by_ranks(const void *a, const void *b)
{
    const ring *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return (x->to > y->to) - (x->to < y->to);
}

static void add_ways(sk_fabric *f, sk_arena *a)
{
    const sk_program *p = f->p;
    int first = f->rings.n;
    for (int i = 0; i < p->insts.n; i++) {
        const sk_inst *in = &p->insts.v[i];
        bool out = in->act == SK_DO_SEND;
        if (!out && in->act != SK_DO_RECV) continue;
        int from = out ? p->rank : in->peer, to = out ? in->peer : p->rank;
        if (find_way(f, from, to) >= 0) continue;
        *sk_push(a, &f->rings) =
            (ring){.group = -1,
                   .from = from,
                   .to = to,
                   .n = 2,
                   .me = out ? 0 : 1,
                   .name = sk_print(a, "messages from rank %d to rank %d", from, to)};
    }
    if (f->rings.n > first)
        qsort(f->rings.v + first, (size_t)(f->rings.n - first), sizeof(ring), by_ranks);
}

/* --- ids: who is first in a circle makes one, and rank 0 tells all of all --- */

typedef struct told {
    int32_t leader, key; /* key: the group, or -1 - to */
    char id[SK_NCCL_ID];
} told;

typedef struct note {
    told v[PER_NOTE];
} note;
_Static_assert(sizeof(note) <= SK_SMALL_BYTES, "a note is one notice");

static int32_t leader_of(const sk_fabric *f, const ring *r)
{
    return r->group < 0 ? r->from : f->p->groups[r->group].ranks[0];
}
static int32_t key_of(const ring *r) { return r->group < 0 ? -1 - r->to : r->group; }

static sk_status make_ids(const sk_fabric *f, sk_arena *a, told **mine, int *n)
{
    *mine = sk_many(a, told, f->rings.n + 1);
    *n = 0;
    for (int i = 0; i < f->rings.n; i++) {
        const ring *r = &f->rings.v[i];
        if (r->me) continue;
        told *t = &(*mine)[(*n)++];
        *t = (told){.leader = leader_of(f, r), .key = key_of(r)};
        SK_TRY(f->door->id(t->id));
    }
    return SK_OK;
}

static void take_note(sk_fabric *f, const note *x, int n)
{
    for (int k = 0; k < n; k++)
        for (int i = 0; i < f->rings.n; i++) {
            ring *r = &f->rings.v[i];
            if (leader_of(f, r) != x->v[k].leader || key_of(r) != x->v[k].key) continue;
            memcpy(r->id, x->v[k].id, sizeof r->id);
            r->known = true;
        }
}

/* One note of every rank to rank 0, and from there to all, without gaps. */
static sk_status tell_round(sk_fabric *f, sk_arena *a, const note *mine, int n)
{
    int n_ranks = f->p->n_ranks, total = 0, at = 0;
    int *many = sk_many(a, int, n_ranks);
    note *all = sk_many(a, note, f->p->rank ? 1 : n_ranks), out = {0};
    SK_TRY(sk_comm_small_gather(f->comm, &n, sizeof n, many));
    SK_TRY(sk_comm_small_gather(f->comm, mine, sizeof *mine, all));
    for (int r = 0; !f->p->rank && r < n_ranks; r++) total += many[r];
    SK_TRY(sk_comm_small_bcast(f->comm, &total, sizeof total));
    for (int r = 0, k = 0; at < total; at += PER_NOTE) {
        int m = total - at < PER_NOTE ? total - at : PER_NOTE;
        for (int i = 0; !f->p->rank && i < m; i++, k++) {
            while (k == many[r]) r++, k = 0;
            out.v[i] = all[r].v[k];
        }
        SK_TRY(sk_comm_small_bcast(f->comm, &out, sizeof out));
        take_note(f, &out, m);
    }
    return SK_OK;
}

/* The largest of what ranks say. */
static sk_status agree_most(const sk_fabric *f, sk_arena *a, int *n)
{
    int *all = sk_many(a, int, f->p->n_ranks), most = *n;
    SK_TRY(sk_comm_small_gather(f->comm, n, sizeof *n, all));
    for (int r = 0; !f->p->rank && r < f->p->n_ranks; r++)
        if (all[r] > most) most = all[r];
    SK_TRY(sk_comm_small_bcast(f->comm, &most, sizeof most));
    *n = most;
    return SK_OK;
}

static sk_status tell_ids(sk_fabric *f, sk_arena *a)
{
    told *mine;
    int n, most;
    SK_TRY(make_ids(f, a, &mine, &n));
    most = n;
    SK_TRY(agree_most(f, a, &most));
    for (int at = 0; at < most; at += PER_NOTE) {
        int m = n - at < 0 ? 0 : n - at < PER_NOTE ? n - at : PER_NOTE;
        note x = {0};
        if (m) memcpy(x.v, mine + at, sizeof *mine * (size_t)m);
        SK_TRY(tell_round(f, a, &x, m));
    }
    for (int i = 0; i < f->rings.n; i++)
        if (!f->rings.v[i].known)
            return sk_fail(SK_EBUG, "nccl: rank %d made no id for %s: its program has no such call",
                           leader_of(f, &f->rings.v[i]), f->rings.v[i].name);
    return SK_OK;
}

/* --- making them --- */

static sk_status not_joined(const sk_fabric *f, const ring *r, int left)
{
    return sk_fail(SK_EPEER,
                   "nccl: rank %d waited %.3g s for %s to come together (%d of its %d circles are "
                   "not ready); who is missing NCCL does not tell: see whether these ranks live, "
                   "and whether NCCL_SOCKET_IFNAME names an interface by which they reach each "
                   "other",
                   f->p->rank, f->timeout_s, r->name, left, f->rings.n);
}

/* In order, a few at a time.  The first that is not ready on any rank is being made by all of its
 * members, so there is always one that can go on. */
static sk_status join_all(sk_fabric *f)
{
    int begun = 0;
    double since = sk_now();
    for (int first = 0; first < f->rings.n;) { /* all before it are ready */
        for (; begun < f->rings.n && begun < first + AT_ONCE; begun++) {
            ring *r = &f->rings.v[begun];
            sk_status st = f->door->join(f->d->index, r->n, r->me, r->id, r->name, &r->circle);
            SK_TRY(of_ring(r, st, "at the start"));
        }
        bool yes = false;
        const ring *r = &f->rings.v[first];
        SK_TRY(of_ring(r, f->door->ready(r->circle, &yes), "at the start"));
        if (yes) first++, since = sk_now();
        else if (late(f, since)) return not_joined(f, r, f->rings.n - first);
        else sched_yield();
    }
    return SK_OK;
}

static sk_status open_streams(sk_fabric *f)
{
    void *words = NULL;
    size_t bytes = (size_t)f->rings.n * 64; /* each mark has a line: they are written one by one */
    SK_TRY(sk_pinned_open(f->d, bytes, &words));
    memset(words, 0, bytes);
    f->words = words;
    for (int i = 0; i < f->rings.n; i++) {
        f->rings.v[i].mark = f->words + 8 * i;
        SK_TRY(sk_stream_open(f->d, &f->rings.v[i].stream));
    }
    return SK_OK;
}

static sk_status check_call(const sk_call_plan *c)
{
    if (c->kind == SK_ALLTOALLV)
        return sk_fail(SK_ECONF,
                       "nccl: '%s' is an %s, whose counts only the device knows; this is not for "
                       "GPUs yet",
                       c->what, sk_coll_names[c->kind]);
    if (c->reduce == SK_ADASUM)
        return sk_fail(SK_ECONF, "nccl: '%s': adasum is not for GPUs yet; use a sum", c->what);
    return SK_OK;
}

static sk_status bring_up(sk_fabric *f, sk_arena *a)
{
    sk_mark mark;
    sk_status st;
    for (int i = 0; i < f->p->calls.n; i++) SK_TRY(check_call(&f->p->calls.v[i]));
    add_groups(f, a);
    add_ways(f, a);
    if (f->p->n_ranks == 1) return SK_OK;
    SK_TRY(f->door->open(NULL));
    SK_TRY(open_streams(f));
    mark = sk_arena_mark(a);
    st = tell_ids(f, a);
    sk_arena_back(a, mark);
    SK_TRY(st);
    return join_all(f);
}

sk_status sk_fabric_open(sk_arena *a, const sk_program *p, sk_device *d, sk_comm *comm,
                         double timeout_s, sk_fabric **out)
{
    const sk_nccl *door = &sk_nccl_cuda;
    sk_fabric *f = sk_new(a, sk_fabric);
    *f = (sk_fabric){.p = p, .d = d, .comm = comm, .door = door, .timeout_s = timeout_s};
    f->acts = sk_inst_kernels_find();
    if (!door || !f->acts)
        return sk_fail(SK_ECONF, "nccl: this program was built without CUDA; build it where nvcc "
                                 "is found");
    sk_status st = bring_up(f, a);
    if (st) {
        sk_fabric_abort(f);
        return sk_trail(st, SK_HERE);
    }
    *out = f;
    return SK_OK;
}

void sk_fabric_watch_heaps(sk_fabric *f, const sk_heaps *h) { f->heaps = h; }

/* --- the end --- */

/* NCCL keeps a circle while a recorded step may still play its calls.  One that is being played is
 * let go when it ends. */
static void close_tapes(sk_device *d)
{
    for (int i = 0; i < d->graphs.n; i++) d->kind->graph_close(d, d->graphs.v[i]);
    d->graphs.n = 0;
}

static void *end_one(void *circle)
{
    sk_nccl_cuda.abort(circle);
    return NULL;
}

/* Each in a thread of its own: NCCL returns when all that holds the circle is gone, and a recorded
 * step holds all circles it has calls of.  Whoever hangs is left behind after ABORT_S. */
void sk_fabric_abort(sk_fabric *f)
{
    struct timespec until;
    if (f->gone) return;
    f->gone = true;
    close_tapes(f->d);
    for (int i = 0; i < f->rings.n; i++) {
        ring *r = &f->rings.v[i];
        r->ending = r->circle && !pthread_create(&r->ender, NULL, end_one, r->circle);
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ABORT_S;
    for (int i = 0; i < f->rings.n; i++) {
        ring *r = &f->rings.v[i];
        if (r->ending && pthread_timedjoin_np(r->ender, NULL, &until)) pthread_detach(r->ender);
    }
}

/* All are told before one is waited for: members may come to them in any order. */
void sk_fabric_close(sk_fabric *f)
{
    sk_status st = SK_OK;
    if (!f || f->gone) return;
    if (f->heaps && sk_heaps_aborted(f->heaps, NULL, NULL, NULL)) { /* perhaps by this rank */
        sk_fabric_abort(f);
        return;
    }
    close_tapes(f->d);
    for (int i = 0; !st && i < f->rings.n; i++) st = f->door->finish(f->rings.v[i].circle);
    for (int i = 0; !st && i < f->rings.n; i++) st = settle(f, &f->rings.v[i], "the end");
    if (st) {
        sk_fabric_abort(f);
        return;
    }
    f->gone = true;
    for (int i = 0; i < f->rings.n; i++) f->door->leave(f->rings.v[i].circle);
}

/* --- one call --- */

typedef struct job {
    const sk_fabric *f;
    const sk_call_plan *c;
    const ring *r;
    const sk_launch *l;
    int p, me;
    int64_t size; /* of an element */
} job;

typedef struct part { /* a segment, at its place */
    sk_seg s;
    char *src, *dst;
    char *given, *got; /* where they lie packed, if they do */
} part;

static sk_nccl_op op_of(sk_reduce r)
{
    return r == SK_MAXIMUM   ? SK_NCCL_MAX
           : r == SK_MINIMUM ? SK_NCCL_MIN
           : r == SK_MEAN    ? SK_NCCL_MEAN
                             : SK_NCCL_SUM;
}

/* `units` blocks of `unit` bytes, each a step behind the one before. */
static sk_status copy(const job *j, char *to, int64_t to_step, const char *from, int64_t from_step,
                      int64_t unit, int64_t units)
{
    bool one = units == 1 || (to_step == unit && from_step == unit);
    if (!unit || !units || (to == from && (one || to_step == from_step))) return SK_OK;
    if (one) return sk_device_copy(j->f->d, to, from, (size_t)(unit * units), j->l->stream);
    return j->f->acts->gather(to, to_step, from, from_step, unit, units, j->l->stream);
}

/* --- parts of the whole: reduce-scatter, all-gather, gather, scatter --- */

/* Bytes of part i; where it begins in what is packed. */
static int64_t part_bytes(const job *j, const sk_seg *s, int i)
{
    return s->outer * sk_seg_rows(s, i, j->p).n * s->inner * j->size;
}
static int64_t part_at(const job *j, const sk_seg *s, int i)
{
    return s->outer * sk_seg_rows(s, i, j->p).at * s->inner * j->size;
}

/* Part i from the whole to where it is dense, or back. */
static sk_status copy_part(const job *j, const sk_seg *s, int i, char *whole, char *dense,
                           bool back)
{
    sk_rows rows = sk_seg_rows(s, i, j->p);
    int64_t row = s->inner * j->size, unit = rows.n * row, step = s->n * row;
    whole += rows.at * row;
    if (back) return copy(j, whole, step, dense, unit, unit, s->outer);
    return copy(j, dense, unit, whole, step, unit, s->outer);
}

/* From the whole to the room, or back: all parts but `but`. */
static sk_status copy_parts(const job *j, const sk_seg *s, char *whole, char *room, int but,
                            bool back)
{
    for (int i = 0; i < j->p; i++)
        if (i != but) SK_TRY(copy_part(j, s, i, whole, room + part_at(j, s, i), back));
    return SK_OK;
}

static sk_status scatter_sum(const job *j, const part *x)
{
    const sk_nccl *d = j->f->door;
    char *from = x->given ? x->given : x->src;
    sk_nccl_op op = op_of(j->c->reduce);
    if (sk_seg_uniform(&x->s, j->p))
        return d->scatter_sum(j->r->circle, from, x->dst, sk_seg_count(&x->s) / j->p, j->c->type,
                              op, j->l->stream);
    for (int i = 0; i < j->p; i++) {
        char *at = from + part_at(j, &x->s, i);
        int64_t n = part_bytes(j, &x->s, i) / j->size;
        if (n)
            SK_TRY(d->sum_to(j->r->circle, at, i == j->me ? x->dst : at, n, j->c->type, op, i,
                             j->l->stream));
    }
    return SK_OK;
}

static sk_status gather_all(const job *j, const part *x)
{
    const sk_nccl *d = j->f->door;
    char *to = x->got ? x->got : x->dst;
    if (sk_seg_uniform(&x->s, j->p))
        return d->gather(j->r->circle, x->src, to, sk_seg_count(&x->s) / j->p, j->c->type,
                         j->l->stream);
    for (int i = 0; i < j->p; i++) {
        char *at = to + part_at(j, &x->s, i);
        int64_t n = part_bytes(j, &x->s, i) / j->size;
        if (n)
            SK_TRY(d->spread(j->r->circle, i == j->me ? x->src : at, at, n, j->c->type, i,
                             j->l->stream));
    }
    return SK_OK;
}

static sk_status to_root(const job *j, const part *x)
{
    const sk_nccl *d = j->f->door;
    char *to = x->got ? x->got : x->dst;
    if (j->me != j->c->root) {
        int64_t bytes = part_bytes(j, &x->s, j->me);
        return bytes ? d->send(j->r->circle, x->src, bytes, j->c->root, j->l->stream) : SK_OK;
    }
    for (int i = 0; i < j->p; i++) {
        int64_t bytes = part_bytes(j, &x->s, i);
        if (i != j->me && bytes)
            SK_TRY(d->recv(j->r->circle, to + part_at(j, &x->s, i), bytes, i, j->l->stream));
    }
    return SK_OK;
}

static sk_status from_root(const job *j, const part *x)
{
    const sk_nccl *d = j->f->door;
    char *from = x->given ? x->given : x->src;
    if (j->me != j->c->root) {
        int64_t bytes = part_bytes(j, &x->s, j->me);
        return bytes ? d->recv(j->r->circle, x->dst, bytes, j->c->root, j->l->stream) : SK_OK;
    }
    for (int i = 0; i < j->p; i++) {
        int64_t bytes = part_bytes(j, &x->s, i);
        if (i != j->me && bytes)
            SK_TRY(d->send(j->r->circle, from + part_at(j, &x->s, i), bytes, i, j->l->stream));
    }
    return SK_OK;
}

/* --- blocks: all-to-all --- */

typedef struct strip { /* bytes */
    int64_t at, unit, units, step;
} strip;

/* One side of a block: either its runs lie in a row, or all of them a step apart (coll/segment.h).
 */
static strip strip_of(const job *j, const sk_block *b, const sk_side *s)
{
    if (s->near == b->run)
        return (strip){s->at * j->size, b->runs * b->run * j->size, b->outer, s->far * j->size};
    return (strip){s->at * j->size, b->run * j->size, b->outer * b->runs, s->near * j->size};
}

/* What goes to every member, packed in their order; what stays too, if it is packed to come. */
static sk_status pack_blocks(const job *j, const part *x)
{
    char *at = x->given;
    for (int k = 0; k < j->p; k++) {
        sk_block b = sk_seg_block(&x->s, j->me, k, j->p);
        strip s = strip_of(j, &b, &b.src);
        if (k != j->me || x->got)
            SK_TRY(copy(j, at, s.unit, x->src + s.at, s.step, s.unit, s.units));
        at += sk_block_count(&b) * j->size;
    }
    return SK_OK;
}

static sk_status move_blocks(const job *j, const part *x)
{
    const sk_nccl *d = j->f->door;
    char *given = x->given, *got = x->got;
    for (int k = 0; k < j->p; k++) {
        sk_block to = sk_seg_block(&x->s, j->me, k, j->p),
                 from = sk_seg_block(&x->s, k, j->me, j->p);
        int64_t out = sk_block_count(&to) * j->size, in = sk_block_count(&from) * j->size;
        char *src = given ? given : x->src + to.src.at * j->size;
        char *dst = got ? got : x->dst + from.dst.at * j->size;
        if (k != j->me && out) SK_TRY(d->send(j->r->circle, src, out, k, j->l->stream));
        if (k != j->me && in) SK_TRY(d->recv(j->r->circle, dst, in, k, j->l->stream));
        given += given ? out : 0;
        got += got ? in : 0;
    }
    return SK_OK;
}

/* What stays.  At least one side of it is dense: if neither is, it was packed with the rest. */
static sk_status keep_block(const job *j, const part *x, const sk_block *b, const char *packed)
{
    strip from = strip_of(j, b, &b->src), to = strip_of(j, b, &b->dst);
    if (x->given && !x->got)
        return copy(j, x->dst + to.at, from.unit, x->src + from.at, from.step, from.unit,
                    from.units);
    return copy(j, x->dst + to.at, to.step, x->given ? packed : x->src + from.at, to.unit, to.unit,
                to.units);
}

static sk_status unpack_blocks(const job *j, const part *x)
{
    char *given = x->given, *got = x->got;
    for (int k = 0; k < j->p; k++) {
        sk_block from = sk_seg_block(&x->s, k, j->me, j->p),
                 to = sk_seg_block(&x->s, j->me, k, j->p);
        strip s = strip_of(j, &from, &from.dst);
        if (k == j->me) SK_TRY(keep_block(j, x, &from, given));
        else if (got) SK_TRY(copy(j, x->dst + s.at, s.step, got, s.unit, s.unit, s.units));
        given += given ? sk_block_count(&to) * j->size : 0;
        got += got ? sk_block_count(&from) * j->size : 0;
    }
    return SK_OK;
}

/* --- sums in the order of comm.h's tree: a share of them for each member --- */

static sk_status move_shares(const job *j, const part *x)
{
    const sk_nccl *d = j->f->door;
    char *from = x->given ? x->given : x->src;
    int64_t mine = sk_room_share(j->c, &x->s, j->me, j->p).n * j->size;
    for (int k = 0; k < j->p; k++) {
        sk_rows his = sk_room_share(j->c, &x->s, k, j->p);
        if (k == j->me) continue;
        if (his.n)
            SK_TRY(
                d->send(j->r->circle, from + his.at * j->size, his.n * j->size, k, j->l->stream));
        if (mine)
            SK_TRY(d->recv(j->r->circle, x->got + k * sk_room_step(j->c, &x->s, j->me, j->p), mine,
                           k, j->l->stream));
    }
    return SK_OK;
}

static sk_status add_shares(const job *j, const part *x)
{
    sk_rows mine = sk_room_share(j->c, &x->s, j->me, j->p);
    char *from = x->given ? x->given : x->src;
    sk_tree_job t = {.to = x->dst + (j->c->kind == SK_ALLREDUCE ? mine.at * j->size : 0),
                     .mine = from + mine.at * j->size,
                     .room = x->got,
                     .step = sk_room_step(j->c, &x->s, j->me, j->p),
                     .me = j->me,
                     .members = j->p,
                     .n = mine.n,
                     .type = j->c->type,
                     .mean = j->c->reduce == SK_MEAN};
    return mine.n ? j->f->acts->tree(&t, j->l->stream) : SK_OK;
}

/* Of an all-reduce: what each has added up, to all. */
static sk_status tell_shares(const job *j, const part *x)
{
    const sk_nccl *d = j->f->door;
    sk_rows mine = sk_room_share(j->c, &x->s, j->me, j->p);
    for (int k = 0; k < j->p; k++) {
        sk_rows his = sk_room_share(j->c, &x->s, k, j->p);
        if (k == j->me) continue;
        if (mine.n)
            SK_TRY(d->send(j->r->circle, x->dst + mine.at * j->size, mine.n * j->size, k,
                           j->l->stream));
        if (his.n)
            SK_TRY(
                d->recv(j->r->circle, x->dst + his.at * j->size, his.n * j->size, k, j->l->stream));
    }
    return SK_OK;
}

/* --- the three turns of a call: pack, move, unpack --- */

static sk_status pack(const job *j, const part *x)
{
    if (!x->given) return SK_OK;
    if (j->c->kind == SK_ALLTOALL) return pack_blocks(j, x);
    if (j->c->kind == SK_SCATTER && j->me != j->c->root) return SK_OK;
    return copy_parts(j, &x->s, x->src, x->given, j->c->kind == SK_SCATTER ? j->me : -1, false);
}

static sk_status move(const job *j, const part *x)
{
    const sk_nccl *d = j->f->door;
    const sk_call_plan *c = j->c;
    int64_t n = sk_seg_count(&x->s);
    bool root = j->me == c->root;
    if (!sk_seg_whole(&x->s)) return SK_OK;
    switch (c->kind) {
    case SK_ALLREDUCE:
        return d->sum(j->r->circle, x->src, x->dst, n, c->type, op_of(c->reduce), j->l->stream);
    case SK_REDUCE:
        return d->sum_to(j->r->circle, x->src, root ? x->dst : x->src, n, c->type, op_of(c->reduce),
                         c->root, j->l->stream);
    case SK_BROADCAST:
        return d->spread(j->r->circle, root ? x->src : x->dst, x->dst, n, c->type, c->root,
                         j->l->stream);
    case SK_REDUCE_SCATTER:
        return scatter_sum(j, x);
    case SK_ALLGATHER:
        return gather_all(j, x);
    case SK_GATHER:
        return to_root(j, x);
    case SK_SCATTER:
        return from_root(j, x);
    case SK_ALLTOALL:
        return move_blocks(j, x);
    default:
        return sk_fail(SK_EBUG, "nccl: '%s' is of kind %d", c->what, (int)c->kind);
    }
}

static sk_status unpack(const job *j, const part *x)
{
    sk_coll_kind kind = j->c->kind;
    bool root = j->me == j->c->root;
    if (kind == SK_ALLTOALL) return unpack_blocks(j, x);
    if (kind == SK_ALLGATHER && x->got) return copy_parts(j, &x->s, x->dst, x->got, -1, true);
    if (kind == SK_SCATTER && root) return copy_part(j, &x->s, j->me, x->src, x->dst, false);
    if (kind != SK_GATHER || !root) return SK_OK;
    SK_TRY(copy_part(j, &x->s, j->me, x->dst, x->src, true));
    return x->got ? copy_parts(j, &x->s, x->dst, x->got, j->me, true) : SK_OK;
}

/* One turn over all segments, each with its place in the room. */
static sk_status turn(const job *j, char *base, sk_status (*act)(const job *j, const part *x))
{
    const sk_buffer *b = j->f->p->bufs.v;
    char *room = j->l->workspace;
    for (int i = 0; i < j->c->n_segs; i++) {
        const sk_call_seg *g = &j->c->segs[i];
        part x = {
            .s = sk_call_shape(g), .src = base + b[g->src].offset, .dst = base + b[g->dst].offset};
        int64_t given = sk_room_given(j->c, &x.s, j->me, j->p),
                got = sk_room_got(j->c, &x.s, j->me, j->p);
        if (given) x.given = room;
        if (got) x.got = room + given;
        SK_TRY(act(j, &x));
        room += given + got;
    }
    return SK_OK;
}

/* A group of one: what is given is what is got. */
static sk_status keep(const job *j, const part *x)
{
    int64_t bytes = sk_seg_whole(&x->s) * j->size;
    return copy(j, x->dst, bytes, x->src, bytes, bytes, 1);
}

/* Also after a failure NCCL must be told that the group is over. */
static sk_status move_all(const job *j, char *base, sk_status (*act)(const job *j, const part *x))
{
    SK_TRY(j->f->door->begin());
    sk_status st = turn(j, base, act), end = j->f->door->end();
    SK_TRY(st);
    SK_TRY(of_ring(j->r, end, j->c->what));
    return settle(j->f, j->r, j->c->what);
}

static sk_status sum_in_order(const job *j, char *base)
{
    SK_TRY(move_all(j, base, move_shares));
    SK_TRY(turn(j, base, add_shares));
    return j->c->kind == SK_ALLREDUCE ? move_all(j, base, tell_shares) : SK_OK;
}

static sk_status no_room(const job *j, int64_t need)
{
    return sk_fail(SK_EBUG, "nccl: '%s' needs a room of %lld bytes, %lld are there", j->c->what,
                   (long long)need, (long long)j->l->workspace_bytes);
}

sk_status sk_fabric_start(sk_fabric *f, int call, char *base, const sk_launch *l)
{
    const sk_call_plan *c = &f->p->calls.v[call];
    const sk_group *g = &f->p->groups[c->group];
    job j = {f, c, NULL, l, g->n, g->me, (int64_t)sk_dtype_size(c->type)};
    sk_assert(!f->gone && g->me >= 0);
    if (g->n == 1) return turn(&j, base, keep);
    j.r = &f->rings.v[f->ring_of[c->group]];
    int64_t need = sk_room_of(c, g->me, g->n);
    if (need > (int64_t)l->workspace_bytes) return no_room(&j, need);
    SK_TRY(f->door->mark(j.r->mark, call + 1, l->stream));
    if (need) SK_TRY(turn(&j, base, pack));
    if (c->ordered) SK_TRY(sum_in_order(&j, base));
    else {
        SK_TRY(move_all(&j, base, move));
        SK_TRY(turn(&j, base, unpack));
    }
    return f->door->mark(j.r->mark, -(call + 1), l->stream);
}

/* --- messages --- */

static sk_status message(sk_fabric *f, int from, int to, void *data, int64_t bytes, int64_t tag,
                         void *stream)
{
    int at = find_way(f, from, to);
    int64_t word = (tag & INT32_MAX) + 1;
    sk_assert(!f->gone && at >= 0);
    const ring *r = &f->rings.v[at];
    if (!bytes) return SK_OK;
    SK_TRY(f->door->mark(r->mark, word, stream));
    sk_status st = r->me ? f->door->recv(r->circle, data, bytes, 0, stream)
                         : f->door->send(r->circle, data, bytes, 1, stream);
    SK_TRY(of_ring(r, st, "a message"));
    SK_TRY(settle(f, r, "a message"));
    return f->door->mark(r->mark, -word, stream);
}

sk_status sk_fabric_send(sk_fabric *f, int peer, const void *data, int64_t bytes, int64_t tag,
                         void *stream)
{
    return message(f, f->p->rank, peer, (void *)(uintptr_t)data, bytes, tag, stream);
}

sk_status sk_fabric_recv(sk_fabric *f, int peer, void *data, int64_t bytes, int64_t tag,
                         void *stream)
{
    return message(f, peer, f->p->rank, data, bytes, tag, stream);
}

sk_stream *sk_fabric_stream(const sk_fabric *f, int call)
{
    int at = f->ring_of[f->p->calls.v[call].group];
    return at < 0 ? NULL : f->rings.v[at].stream;
}

sk_stream *sk_fabric_pair_stream(const sk_fabric *f, int from, int to)
{
    int at = find_way(f, from, to);
    return at < 0 ? NULL : f->rings.v[at].stream;
}

/* --- before the first step --- */

static sk_status wait_for(sk_fabric *f, sk_stream *s)
{
    for (bool done = false;;) {
        SK_TRY(sk_stream_done(f->d, s, &done));
        if (done) return SK_OK;
        SK_TRY(sk_fabric_watch(f));
        sched_yield();
    }
}

/* In its own room, or in the one of all. */
static sk_status warm_call(sk_fabric *f, int call, char *base, const sk_launch *l)
{
    const sk_call_plan *c = &f->p->calls.v[call];
    sk_launch own = *l;
    if (c->room >= 0) own.workspace = base + f->p->bufs.v[c->room].offset;
    if (c->room >= 0) own.workspace_bytes = (size_t)c->room_bytes;
    return sk_fabric_start(f, call, base, &own);
}

/* Circle by circle, in the order of all: whoever waits, waits for one that comes. */
sk_status sk_fabric_warm_up(sk_fabric *f, char *base, const sk_launch *l)
{
    if (l->workspace_bytes < HELLO && f->rings.n)
        return sk_fail(SK_EBUG, "nccl: a room of %d bytes is needed to say hello", HELLO);
    for (int i = 0; i < f->rings.n; i++) {
        const ring *r = &f->rings.v[i];
        for (int k = 0; r->group >= 0 && k < f->p->calls.n; k++)
            if (f->p->calls.v[k].group == r->group) SK_TRY(warm_call(f, k, base, l));
        if (r->group < 0) SK_TRY(message(f, r->from, r->to, l->workspace, HELLO, 0, l->stream));
    }
    return wait_for(f, l->stream);
}

/* --- watching --- */

static int64_t read_mark(const ring *r) { return __atomic_load_n(r->mark, __ATOMIC_RELAXED); }

/* "'grads h.3' in group 'dp' (ranks 0 1)": what is under way; and how many more. */
static int under_way(const sk_fabric *f, char *to, size_t room)
{
    int n = 0;
    snprintf(to, room, "nothing");
    for (int i = 0; i < f->rings.n; i++) {
        const ring *r = &f->rings.v[i];
        int64_t at = read_mark(r);
        if (at <= 0 || n++) continue;
        if (r->group < 0) snprintf(to, room, "%s, tag %lld", r->name, (long long)at - 1);
        else snprintf(to, room, "'%s' in %s", f->p->calls.v[at - 1].what, r->name);
    }
    return n;
}

static sk_status stuck(const sk_fabric *f)
{
    char what[400];
    int n = under_way(f, what, sizeof what);
    return sk_fail(SK_EPEER,
                   "nccl: rank %d: nothing has moved between GPUs for %.3g s; under way is %s%s; "
                   "a member has not come to it, or died",
                   f->p->rank, f->timeout_s, what, n > 1 ? ", and more" : "");
}

sk_status sk_fabric_watch(sk_fabric *f)
{
    char what[400];
    uint64_t sum = 0;
    bool yes, busy = false;
    if (f->gone) return sk_fail(SK_EPEER, "nccl: rank %d has given up", f->p->rank);
    if (others_failed(f)) return SK_EPEER;
    for (int i = 0; i < f->rings.n; i++) {
        sk_status st = f->door->ready(f->rings.v[i].circle, &yes);
        int64_t at = read_mark(&f->rings.v[i]);
        if (st) under_way(f, what, sizeof what);
        if (st) return of_ring(&f->rings.v[i], st, what);
        sum = sum * 31 + (uint64_t)at;
        busy |= at > 0;
    }
    double now = sk_now(), absent = now - f->looked; /* between steps nobody looks */
    if (sum != f->seen || !busy || absent > ABSENT_S) f->since = now;
    f->looked = now;
    f->seen = sum;
    return late(f, f->since) ? stuck(f) : SK_OK;
}
