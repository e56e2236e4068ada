/* fabric_watch.c - messages between GPUs, the first use of every communicator, and watching over
 * what is under way. */
#include "base/clock.h"
#include "run/gpu/fabric_state.h"

#include <sched.h>
#include <stdio.h>

enum { HELLO = 64 }; /* bytes of the first message of a pair */

#define ABSENT_S 1.0 /* the host did not watch for so long: it did not wait either */

/* --- waiting --- */

bool sk_fabric_late(const sk_fabric *f, double since)
{
    return f->timeout_s > 0 && sk_now() - since > f->timeout_s;
}

bool sk_fabric_others_failed(const sk_fabric *f)
{
    if (!f->heaps || !sk_heaps_aborted(f->heaps, NULL, NULL, NULL)) return false;
    sk_error_set("");
    return true;
}

sk_status sk_fabric_error(const sk_fabric_comm *r, sk_status st, const char *what)
{
    char said[600];
    if (!st) return SK_OK;
    snprintf(said, sizeof said, "%s", sk_error_line());
    return sk_fail(st, "%s; in %s, %s", said, r->name, what);
}

sk_status sk_fabric_settle(const sk_fabric *f, const sk_fabric_comm *r, const char *what)
{
    double since = sk_now();
    for (bool yes = false;;) {
        SK_TRY(sk_fabric_error(r, f->nccl->ready(r->handle, &yes), what));
        if (yes) return SK_OK;
        if (sk_fabric_others_failed(f)) return SK_EPEER;
        if (sk_fabric_late(f, since))
            return sk_fail(SK_EPEER,
                           "nccl: rank %d waited %.3g s for the other members of %s to come to "
                           "'%s'; see where their processes are",
                           f->p->rank, f->timeout_s, r->name, what);
        sched_yield();
    }
}

/* --- messages --- */

static sk_status message(sk_fabric *f, int from, int to, void *data, int64_t bytes, int64_t tag,
                         void *stream)
{
    int at = sk_fabric_pair(f, from, to);
    int64_t word = (tag & INT32_MAX) + 1;
    sk_assert(!f->gone && at >= 0);
    const sk_fabric_comm *r = &f->comms.v[at];
    if (!bytes) return SK_OK;
    SK_TRY(f->nccl->mark(r->mark, word, stream));
    sk_status st = r->me ? f->nccl->recv(r->handle, data, bytes, 0, stream)
                         : f->nccl->send(r->handle, data, bytes, 1, stream);
    SK_TRY(sk_fabric_error(r, st, "a message"));
    SK_TRY(sk_fabric_settle(f, r, "a message"));
    return f->nccl->mark(r->mark, -word, stream);
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
    int at = f->comm_of[f->p->calls.v[call].group];
    return at < 0 ? NULL : f->comms.v[at].stream;
}

sk_stream *sk_fabric_pair_stream(const sk_fabric *f, int from, int to)
{
    int at = sk_fabric_pair(f, from, to);
    return at < 0 ? NULL : f->comms.v[at].stream;
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

/* In its own workspace, or in the common one. */
static sk_status warm_call(sk_fabric *f, int call, char *base, const sk_launch *l)
{
    const sk_call_plan *c = &f->p->calls.v[call];
    sk_launch own = *l;
    if (c->workspace >= 0) own.workspace = base + f->p->bufs.v[c->workspace].offset;
    if (c->workspace >= 0) own.workspace_bytes = (size_t)c->workspace_bytes;
    return sk_fabric_start(f, call, base, &own);
}

/* Communicator by communicator, in the order that all ranks share: a rank never waits for one that
 * waits for it. */
sk_status sk_fabric_warm_up(sk_fabric *f, char *base, const sk_launch *l)
{
    if (l->workspace_bytes < HELLO && f->comms.n)
        return sk_fail(SK_EBUG, "nccl: a workspace of %d bytes is needed for the first message",
                       HELLO);
    for (int i = 0; i < f->comms.n; i++) {
        const sk_fabric_comm *r = &f->comms.v[i];
        for (int k = 0; r->group >= 0 && k < f->p->calls.n; k++)
            if (f->p->calls.v[k].group == r->group) SK_TRY(warm_call(f, k, base, l));
        if (r->group < 0) SK_TRY(message(f, r->from, r->to, l->workspace, HELLO, 0, l->stream));
    }
    return wait_for(f, l->stream);
}

/* --- watching --- */

static int64_t read_mark(const sk_fabric_comm *r)
{
    return __atomic_load_n(r->mark, __ATOMIC_RELAXED);
}

/* The first call that is under way, as "'grads h.3' in group 'dp' (ranks 0 1)"; returns how many.
 */
static int under_way(const sk_fabric *f, char *to, size_t size)
{
    int n = 0;
    snprintf(to, size, "nothing");
    for (int i = 0; i < f->comms.n; i++) {
        const sk_fabric_comm *r = &f->comms.v[i];
        int64_t at = read_mark(r);
        if (at <= 0 || n++) continue;
        if (r->group < 0) snprintf(to, size, "%s, tag %lld", r->name, (long long)at - 1);
        else snprintf(to, size, "'%s' in %s", f->p->calls.v[at - 1].what, r->name);
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
    if (sk_fabric_others_failed(f)) return SK_EPEER;
    for (int i = 0; i < f->comms.n; i++) {
        sk_status st = f->nccl->ready(f->comms.v[i].handle, &yes);
        int64_t at = read_mark(&f->comms.v[i]);
        if (st) under_way(f, what, sizeof what);
        if (st) return sk_fabric_error(&f->comms.v[i], st, what);
        sum = sum * 31 + (uint64_t)at;
        busy |= at > 0;
    }
    double now = sk_now(), absent = now - f->looked; /* between steps nobody watches */
    if (sum != f->seen || !busy || absent > ABSENT_S) f->since = now;
    f->looked = now;
    f->seen = sum;
    return sk_fabric_late(f, f->since) ? stuck(f) : SK_OK;
}
