/* fabric.c - NCCL communicators of a program: which there are, making them, their end. */
#include "base/clock.h"
#include "base/strings.h"
#include "run/gpu/fabric_state.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Not there where skein_cuda was not linked; its address is then NULL. */
#pragma weak sk_nccl_cuda

enum {
    AT_ONCE = 4,  /* communicators that are being made at a time */
    PER_NOTE = 30 /* ids in one message */
};

enum { ABORT_S = 10 };

/* --- which communicators there are --- */

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
    f->comm_of = sk_many(a, int, p->n_groups + 1);
    for (int g = 0; g < p->n_groups; g++) {
        bool used = false;
        for (int i = 0; i < p->calls.n; i++) used |= p->calls.v[i].group == g;
        f->comm_of[g] = -1;
        if (!used || p->groups[g].n < 2 || p->groups[g].me < 0) continue;
        f->comm_of[g] = f->comms.n;
        *sk_push(a, &f->comms) = (sk_fabric_comm){
            .group = g, .n = p->groups[g].n, .me = p->groups[g].me, .name = name_group(a, p, g)};
    }
}

int sk_fabric_pair(const sk_fabric *f, int from, int to)
{
    for (int i = 0; i < f->comms.n; i++) {
        const sk_fabric_comm *r = &f->comms.v[i];
        if (r->group < 0 && r->from == from && r->to == to) return i;
    }
    return -1;
}

static int by_ranks(const void *a, const void *b)
{
    const sk_fabric_comm *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return (x->to > y->to) - (x->to < y->to);
}

static void add_pairs(sk_fabric *f, sk_arena *a)
{
    const sk_program *p = f->p;
    int first = f->comms.n;
    for (int i = 0; i < p->insts.n; i++) {
        const sk_inst *in = &p->insts.v[i];
        bool out = in->act == SK_DO_SEND;
        if (!out && in->act != SK_DO_RECV) continue;
        int from = out ? p->rank : in->peer, to = out ? in->peer : p->rank;
        if (sk_fabric_pair(f, from, to) >= 0) continue;
        *sk_push(a, &f->comms) =
            (sk_fabric_comm){.group = -1,
                             .from = from,
                             .to = to,
                             .n = 2,
                             .me = out ? 0 : 1,
                             .name = sk_print(a, "messages from rank %d to rank %d", from, to)};
    }
    if (f->comms.n > first)
        qsort(f->comms.v + first, (size_t)(f->comms.n - first), sizeof(sk_fabric_comm), by_ranks);
}

/* --- ids: the first member of a communicator makes one, and rank 0 sends all ids to all ranks ---
 */

typedef struct id_record {
    int32_t leader, key; /* key: the group, or -1 - to */
    char id[SK_NCCL_ID];
} id_record;

typedef struct note {
    id_record v[PER_NOTE];
} note;
_Static_assert(sizeof(note) <= SK_SMALL_BYTES, "a note is one notice");

static int32_t leader_of(const sk_fabric *f, const sk_fabric_comm *r)
{
    return r->group < 0 ? r->from : f->p->groups[r->group].ranks[0];
}
static int32_t key_of(const sk_fabric_comm *r) { return r->group < 0 ? -1 - r->to : r->group; }

static sk_status make_ids(const sk_fabric *f, sk_arena *a, id_record **mine, int *n)
{
    *mine = sk_many(a, id_record, f->comms.n + 1);
    *n = 0;
    for (int i = 0; i < f->comms.n; i++) {
        const sk_fabric_comm *r = &f->comms.v[i];
        if (r->me) continue;
        id_record *t = &(*mine)[(*n)++];
        *t = (id_record){.leader = leader_of(f, r), .key = key_of(r)};
        SK_TRY(f->nccl->id(t->id));
    }
    return SK_OK;
}

static void take_note(sk_fabric *f, const note *x, int n)
{
    for (int k = 0; k < n; k++)
        for (int i = 0; i < f->comms.n; i++) {
            sk_fabric_comm *r = &f->comms.v[i];
            if (leader_of(f, r) != x->v[k].leader || key_of(r) != x->v[k].key) continue;
            memcpy(r->id, x->v[k].id, sizeof r->id);
            r->known = true;
        }
}

/* One note of every rank to rank 0, and from there to all ranks, without gaps. */
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

/* *n becomes the largest over all ranks. */
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
    id_record *mine;
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
    for (int i = 0; i < f->comms.n; i++)
        if (!f->comms.v[i].known)
            return sk_fail(SK_EBUG, "nccl: rank %d made no id for %s: its program has no such call",
                           leader_of(f, &f->comms.v[i]), f->comms.v[i].name);
    return SK_OK;
}

/* --- making them --- */

static sk_status not_joined(const sk_fabric *f, const sk_fabric_comm *r, int left)
{
    return sk_fail(
        SK_EPEER,
        "nccl: rank %d waited %.3g s for %s to come together (%d of its %d communicators are "
        "not ready); NCCL does not say who is missing: see whether these ranks live, "
        "and whether NCCL_SOCKET_IFNAME names an interface by which they reach each "
        "other",
        f->p->rank, f->timeout_s, r->name, left, f->comms.n);
}

/* In order, a few at a time.  The first communicator that is not ready on any rank is being made by
 * all of its members, so there is always one that makes progress. */
static sk_status join_all(sk_fabric *f)
{
    int begun = 0;
    double since = sk_now();
    for (int first = 0; first < f->comms.n;) { /* all before it are ready */
        for (; begun < f->comms.n && begun < first + AT_ONCE; begun++) {
            sk_fabric_comm *r = &f->comms.v[begun];
            sk_status st = f->nccl->join(f->d->index, r->n, r->me, r->id, r->name, &r->handle);
            SK_TRY(sk_fabric_error(r, st, "at the start"));
        }
        bool yes = false;
        const sk_fabric_comm *r = &f->comms.v[first];
        SK_TRY(sk_fabric_error(r, f->nccl->ready(r->handle, &yes), "at the start"));
        if (yes) first++, since = sk_now();
        else if (sk_fabric_late(f, since)) return not_joined(f, r, f->comms.n - first);
        else sched_yield();
    }
    return SK_OK;
}

static sk_status open_streams(sk_fabric *f)
{
    void *words = NULL;
    size_t bytes = (size_t)f->comms.n * 64; /* each mark has a line: they are written one by one */
    SK_TRY(sk_pinned_open(f->d, bytes, &words));
    memset(words, 0, bytes);
    f->words = words;
    for (int i = 0; i < f->comms.n; i++) {
        f->comms.v[i].mark = f->words + 8 * i;
        SK_TRY(sk_stream_open(f->d, &f->comms.v[i].stream));
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
    add_pairs(f, a);
    if (f->p->n_ranks == 1) return SK_OK;
    SK_TRY(f->nccl->open(NULL));
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
    const sk_nccl *nccl = &sk_nccl_cuda;
    sk_fabric *f = sk_new(a, sk_fabric);
    *f = (sk_fabric){.p = p, .d = d, .comm = comm, .nccl = nccl, .timeout_s = timeout_s};
    f->inst = sk_inst_kernels_find();
    if (!nccl || !f->inst)
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

/* NCCL keeps a communicator while a CUDA graph may still launch its calls.  A graph that is running
 * is released when it ends. */
static void close_graphs(sk_device *d)
{
    for (int i = 0; i < d->graphs.n; i++) d->kind->graph_close(d, d->graphs.v[i]);
    d->graphs.n = 0;
}

static void *end_one(void *comm)
{
    sk_nccl_cuda.abort(comm);
    return NULL;
}

/* Each in a thread of its own: NCCL returns when all that holds the communicator is gone, and a
 * CUDA graph holds all communicators that it has calls of.  Threads that hang are detached after
 * ABORT_S. */
void sk_fabric_abort(sk_fabric *f)
{
    struct timespec until;
    if (f->gone) return;
    f->gone = true;
    close_graphs(f->d);
    for (int i = 0; i < f->comms.n; i++) {
        sk_fabric_comm *r = &f->comms.v[i];
        r->ending = r->handle && !pthread_create(&r->ender, NULL, end_one, r->handle);
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ABORT_S;
    for (int i = 0; i < f->comms.n; i++) {
        sk_fabric_comm *r = &f->comms.v[i];
        if (r->ending && pthread_timedjoin_np(r->ender, NULL, &until)) pthread_detach(r->ender);
    }
}

/* All are finished before one is waited for: members may come to them in any order. */
void sk_fabric_close(sk_fabric *f)
{
    sk_status st = SK_OK;
    if (!f || f->gone) return;
    if (f->heaps && sk_heaps_aborted(f->heaps, NULL, NULL, NULL)) { /* perhaps by this rank */
        sk_fabric_abort(f);
        return;
    }
    close_graphs(f->d);
    for (int i = 0; !st && i < f->comms.n; i++) st = f->nccl->finish(f->comms.v[i].handle);
    for (int i = 0; !st && i < f->comms.n; i++) st = sk_fabric_settle(f, &f->comms.v[i], "the end");
    if (st) {
        sk_fabric_abort(f);
        return;
    }
    f->gone = true;
    for (int i = 0; i < f->comms.n; i++) f->nccl->leave(f->comms.v[i].handle);
}
