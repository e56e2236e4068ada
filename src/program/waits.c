/* waits.c - the pass that places the wait of every call.
 *
 * Passes before this one write only the start of a call.  A call that may not stay in flight
 * (call.flies) is waited for at once, the others
 *   - before the first instruction that touches one of its buffers or what is made of them;
 *   - if it may be in flight within its task only: at the end of the task;
 *   - before another call starts, if SK_COMM_FLIGHT / 2 calls are in flight;
 *   - where the tasks of its section end.
 * Waits on one communicator keep the order of starts, on all ranks alike: calls on the same group
 * that started before are waited for first.  Instructions that belong to the end of a call
 * (call.then: decoding, the part of a gathered weight that is kept) follow its wait. */
#include "program/acts.h"
#include "program/lowering.h"

#include <string.h>

enum { MOST_IN_FLIGHT = SK_COMM_FLIGHT / 2 };

typedef struct waits {
    sk_program *p;
    sk_arena *tmp;
    int in_flight[MOST_IN_FLIGHT], n; /* calls in flight, in the order of starts */
    int *held;                        /* by root buffer: how often calls in flight name it */
    sk_inst *start;                   /* by call: it runs when that runs, and so does its wait */
    const sk_inst *at;                /* the instruction that is about to be written */
    uint32_t before;                  /* calls of `in_flight` that must be waited for before it */
} waits;

static bool meet(const sk_program *p, int a, int b)
{
    if (sk_buffer_root(p, a) != sk_buffer_root(p, b)) return false;
    int64_t x = sk_buffer_begin(p, a), y = sk_buffer_begin(p, b);
    return x < y + p->bufs.v[b].bytes && y < x + p->bufs.v[a].bytes;
}

static bool names(const sk_program *p, const sk_call_plan *c, int buf)
{
    for (int s = 0; s < c->n_segs; s++)
        if (meet(p, c->segs[s].src, buf) || meet(p, c->segs[s].dst, buf)) return true;
    for (int i = 0; i < c->n_then; i++)
        if (meet(p, c->then[i].to, buf)) return true;
    return false;
}

static void hold(waits *x, const sk_call_plan *c, int how)
{
    for (int s = 0; s < c->n_segs; s++) {
        x->held[sk_buffer_root(x->p, c->segs[s].src)] += how;
        x->held[sk_buffer_root(x->p, c->segs[s].dst)] += how;
    }
    for (int i = 0; i < c->n_then; i++) x->held[sk_buffer_root(x->p, c->then[i].to)] += how;
}

/* --- writing --- */

/* An instruction that follows a wait takes the task and layer of the instruction that needs it;
 * after the last task, of the one before. */
static sk_inst *put(waits *x, sk_act act)
{
    const sk_inst *last = x->p->insts.n ? &x->p->insts.v[x->p->insts.n - 1] : x->at;
    sk_inst in = sk_inst_like(x->at->micro >= 0 ? x->at : last, act);
    sk_inst *to = sk_push(x->tmp, &x->p->insts);
    *to = in;
    return to;
}

static void runs_with(sk_inst *in, const sk_inst *start)
{
    in->every = start->every;
    in->sync = start->sync;
}

static void wait(waits *x, int call)
{
    const sk_call_plan *c = &x->p->calls.v[call];
    sk_inst *end = put(x, SK_DO_WAIT);
    end->call = call;
    runs_with(end, &x->start[call]);
    for (int i = 0; i < c->n_then; i++) {
        sk_inst *in = put(x, c->then[i].act);
        in->in[0] = c->then[i].from;
        in->out[0] = c->then[i].to;
        in->pieces = c->then[i].pieces;
        in->codec = c->then[i].codec;
        in->stream = c->then[i].stream;
        runs_with(in, &x->start[call]);
    }
}

/* Waits for the call at this index of those in flight, after earlier ones of its group. */
static void wait_for(waits *x, int at)
{
    int kept = 0, group = x->p->calls.v[x->in_flight[at]].group;
    for (int i = 0; i < x->n; i++) {
        int call = x->in_flight[i];
        if (i > at || x->p->calls.v[call].group != group) {
            x->in_flight[kept++] = call;
            continue;
        }
        hold(x, &x->p->calls.v[call], -1);
        wait(x, call);
    }
    x->n = kept;
}

static void wait_for_all(waits *x)
{
    while (x->n) wait_for(x, 0);
}

static void wait_for_group(waits *x, int group)
{
    for (int i = x->n - 1; i >= 0; i--)
        if (x->p->calls.v[x->in_flight[i]].group == group) {
            wait_for(x, i);
            return;
        }
}

/* --- what an instruction waits for --- */

static void touch(void *ctx, int *buf, unsigned how)
{
    waits *x = ctx;
    (void)how;
    if (!x->held[sk_buffer_root(x->p, *buf)]) return;
    for (int i = 0; i < x->n; i++)
        if (names(x->p, &x->p->calls.v[x->in_flight[i]], *buf)) x->before |= 1u << i;
}

/* The oldest first; a wait removes earlier calls of its group too, so indices are searched again.
 */
static void wait_for_touched(waits *x)
{
    do {
        x->before = 0;
        sk_operands(x->p, x->at, touch, x);
        int i = 0;
        while (i < x->n && !(x->before >> i & 1)) i++;
        if (i < x->n) wait_for(x, i);
    } while (x->before);
}

static void end_task(waits *x)
{
    for (int i = x->n - 1; i >= 0; i--)
        if (i < x->n && x->p->calls.v[x->in_flight[i]].flies == SK_FLIES_IN_TASK) wait_for(x, i);
}

static void start(waits *x, const sk_inst *in)
{
    const sk_call_plan *c = &x->p->calls.v[in->call];
    x->start[in->call] = *in;
    if (c->flies && x->n == MOST_IN_FLIGHT) wait_for(x, 0);
    *sk_push(x->tmp, &x->p->insts) = *in;
    if (c->flies) {
        hold(x, c, 1);
        x->in_flight[x->n++] = in->call;
    } else {
        wait_for_group(x, c->group);
        wait(x, in->call);
    }
}

static void section(waits *x, const sk_inst *insts, int from, int to)
{
    int task = -1;
    for (int pc = from; pc < to; pc++) {
        x->at = &insts[pc];
        if (insts[pc].task < 0) wait_for_all(x);
        else if (insts[pc].task != task) end_task(x);
        task = insts[pc].task;
        wait_for_touched(x);
        if (insts[pc].act == SK_DO_START) start(x, &insts[pc]);
        else *sk_push(x->tmp, &x->p->insts) = insts[pc];
    }
    wait_for_all(x);
}

void sk_place_waits(sk_program *p, sk_arena *tmp)
{
    waits x = {.p = p,
               .tmp = tmp,
               .held = sk_many(tmp, int, p->bufs.n + 1),
               .start = sk_many(tmp, sk_inst, p->calls.n + 1)};
    int n = p->insts.n, n_train = p->n_train;
    sk_inst *insts = sk_grow(tmp, NULL, 0, sizeof *insts * (size_t)(n + 1));
    memcpy(insts, p->insts.v, sizeof *insts * (size_t)n);
    p->insts.n = 0;
    section(&x, insts, 0, n_train);
    p->n_train = p->insts.n;
    section(&x, insts, n_train, n);
}
