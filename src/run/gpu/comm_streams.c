/* comm_streams.c - collectives and messages on streams beside the compute stream. */
#include "run/gpu/comm_streams.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sk_comm_streams {
    const sk_program *p;
    sk_device *d;
    sk_fabric *fabric;
    sk_stream *compute;
    char *base;
    sk_event **ready; /* by START, SEND, RECV: the compute stream has come here */
    sk_event **over;  /* by the same: the bytes have moved */
    sk_event **marks; /* [2 * instruction] of the same, for traces: it begins, it ends; or NULL */
    int *begun;       /* by call: the instruction that started it last; -1: none */
};

static bool begins(const sk_inst *in)
{
    return in->act == SK_DO_START || in->act == SK_DO_SEND || in->act == SK_DO_RECV;
}

/* NCCL refuses two ranks of one host on one GPU.  So ranks that share a GPU say that each is a host
 * of its own, and connect over the loopback interface.  In tests ranks are threads, which share the
 * environment too: hence the lock. */
static void share_gpu(const sk_run *r)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    char name[32];
    int here = 0;
    for (int k = 0; k < r->p->n_ranks; k++) here += sk_heap_base(r->heaps, k) != NULL;
    if (here <= sk_device_count("cuda")) return;
    snprintf(name, sizeof name, "skein-%d", r->p->rank);
    pthread_mutex_lock(&lock);
    setenv("NCCL_HOSTID", name, 0);
    if (here == r->p->n_ranks) setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    pthread_mutex_unlock(&lock);
}

static sk_status open_events(sk_arena *a, sk_comm_streams *s, bool trace)
{
    if (trace) s->marks = sk_many(a, sk_event *, 2 * s->p->insts.n);
    s->ready = sk_many(a, sk_event *, s->p->insts.n);
    s->over = sk_many(a, sk_event *, s->p->insts.n);
    s->begun = sk_many(a, int, s->p->calls.n + 1);
    for (int pc = 0; pc < s->p->insts.n; pc++) {
        if (!begins(&s->p->insts.v[pc])) continue;
        SK_TRY(sk_event_open(s->d, &s->ready[pc]));
        SK_TRY(sk_event_open(s->d, &s->over[pc]));
        for (int k = 0; trace && k < 2; k++) SK_TRY(sk_event_open(s->d, &s->marks[2 * pc + k]));
    }
    return SK_OK;
}

sk_status sk_comm_streams_open(sk_arena *a, sk_run *r, sk_device *d, sk_stream *compute, char *base,
                               const sk_launch *l, sk_comm_streams **out)
{
    sk_comm_streams *s = sk_new(a, sk_comm_streams);
    *out = NULL;
    if (r->p->n_ranks == 1) return SK_OK; /* all ranks open it, also those that exchange nothing */
    *s = (sk_comm_streams){.p = r->p, .d = d, .compute = compute, .base = base};
    *out = s;
    share_gpu(r);
    SK_TRY(open_events(a, s, r->times != NULL));
    SK_TRY(sk_fabric_open(a, r->p, d, r->comm, r->timeout_s, &s->fabric));
    sk_fabric_watch_heaps(s->fabric, r->heaps);
    sk_status st = sk_fabric_warm_up(s->fabric, base, l);
    if (!st) return SK_OK;
    sk_fabric_abort(s->fabric);
    return sk_trail(st, SK_HERE);
}

void sk_comm_streams_close(sk_comm_streams *s)
{
    if (s && s->fabric) sk_fabric_close(s->fabric);
}

void sk_comm_streams_abort(sk_comm_streams *s)
{
    if (s && s->fabric) sk_fabric_abort(s->fabric);
}

sk_status sk_comm_streams_watch(sk_comm_streams *s)
{
    return s ? sk_fabric_watch(s->fabric) : SK_OK;
}

/* The comm stream waits for the compute stream; then the call; then finished() records its end. */
static sk_status begin(sk_comm_streams *s, int pc, sk_stream *on)
{
    SK_TRY(sk_event_record(s->d, s->ready[pc], s->compute));
    SK_TRY(sk_event_wait(s->d, s->ready[pc], on));
    return s->marks ? sk_event_mark(s->d, s->marks[2 * pc], on) : SK_OK;
}

static sk_status finished(sk_comm_streams *s, int pc, sk_stream *on)
{
    if (s->marks) SK_TRY(sk_event_mark(s->d, s->marks[2 * pc + 1], on));
    return sk_event_record(s->d, s->over[pc], on);
}

static sk_status start(sk_comm_streams *s, int pc, const sk_inst *in)
{
    const sk_call_plan *c = &s->p->calls.v[in->call];
    sk_stream *on = sk_fabric_stream(s->fabric, in->call);
    sk_launch l = {.stream = on,
                   .workspace =
                       c->workspace < 0 ? NULL : s->base + s->p->bufs.v[c->workspace].offset,
                   .workspace_bytes = (size_t)c->workspace_bytes};
    s->begun[in->call] = pc;
    SK_TRY(begin(s, pc, on));
    SK_TRY(sk_fabric_start(s->fabric, in->call, s->base, &l));
    return finished(s, pc, on);
}

static sk_status message(sk_comm_streams *s, int pc, const sk_inst *in, bool out)
{
    int me = s->p->rank, buf = out ? in->in[0] : in->out[0];
    const sk_buffer *b = &s->p->bufs.v[buf];
    sk_stream *on = out ? sk_fabric_pair_stream(s->fabric, me, in->peer)
                        : sk_fabric_pair_stream(s->fabric, in->peer, me);
    char *data = s->base + b->offset;
    SK_TRY(begin(s, pc, on));
    if (out) SK_TRY(sk_fabric_send(s->fabric, in->peer, data, b->bytes, in->tag, on));
    else SK_TRY(sk_fabric_recv(s->fabric, in->peer, data, b->bytes, in->tag, on));
    SK_TRY(finished(s, pc, on));
    return out ? SK_OK : sk_event_wait(s->d, s->over[pc], s->compute);
}

/* Waits for the first `sent` sends to this peer in the section of pc.  Their stream executes in
 * order, so it is enough to wait for the last of them. */
static sk_status sent(sk_comm_streams *s, int pc, const sk_inst *in)
{
    int64_t n = 0;
    for (int i = pc < s->p->n_train ? 0 : s->p->n_train; i < pc; i++) {
        const sk_inst *x = &s->p->insts.v[i];
        if (x->act != SK_DO_SEND || x->peer != in->peer || ++n < in->sent) continue;
        return sk_event_wait(s->d, s->over[i], s->compute);
    }
    return n >= in->sent ? SK_OK
                         : sk_fail(SK_EBUG, "%lld sends to rank %d are waited for, %lld were made",
                                   (long long)in->sent, in->peer, (long long)n);
}

sk_status sk_comm_streams_issue(sk_comm_streams *s, int pc)
{
    const sk_inst *in = &s->p->insts.v[pc];
    switch (in->act) {
    case SK_DO_START:
        return start(s, pc, in);
    case SK_DO_WAIT:
        return sk_event_wait(s->d, s->over[s->begun[in->call]], s->compute);
    case SK_DO_SENT:
        return sent(s, pc, in);
    default:
        return message(s, pc, in, in->act == SK_DO_SEND);
    }
}

sk_status sk_comm_streams_join(sk_comm_streams *s, const sk_run *r, int from, int to)
{
    for (int pc = from; s && pc < to; pc++)
        if (begins(&s->p->insts.v[pc]) && sk_run_due(r, &s->p->insts.v[pc]))
            SK_TRY(sk_event_wait(s->d, s->over[pc], s->compute));
    return SK_OK;
}

/* The instruction that began what pc waits for. */
static int begun_by(const sk_program *p, int pc)
{
    int of = pc;
    if (p->insts.v[pc].act == SK_DO_WAIT) do
            of--;
        while (p->insts.v[of].act != SK_DO_START || p->insts.v[of].call != p->insts.v[pc].call);
    return of;
}

/* The bytes of a collective are shown at its WAIT, those of a message at its RECV. */
sk_status sk_comm_streams_times(const sk_comm_streams *s, sk_event *zero, const sk_run *r, int from,
                                int to, double begin, double *moving)
{
    for (int pc = from; s && s->marks && pc < to; pc++) {
        const sk_inst *in = &s->p->insts.v[pc];
        if (in->act != SK_DO_WAIT && in->act != SK_DO_RECV) continue;
        moving[2 * pc] = moving[2 * pc + 1] = 0;
        if (!sk_run_due(r, in)) continue;
        int of = begun_by(s->p, pc);
        for (int k = 0; k < 2; k++) {
            SK_TRY(sk_event_seconds(s->d, zero, s->marks[2 * of + k], &moving[2 * pc + k]));
            moving[2 * pc + k] += begin;
        }
    }
    return SK_OK;
}
