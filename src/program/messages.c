/* messages.c - the pass that orders messages and waits for their arrival.
 *
 * Between two ranks messages keep their order.  Before the message that it needs, a receiver must
 * receive all that were sent earlier, in the order in which the other stage's tasks send them.  The
 * schedule gives that order for every stage.  So the RECV of an earlier message moves up to here
 * from the task that needs it.
 *
 * A sender keeps the buffer of a message until it has arrived (SENT), and may be two tasks ahead of
 * each receiver, or more where two would end in a deadlock (send_window.c).  With several chunks
 * per stage, whose messages share a pair of ranks, it may be ahead by the whole window: otherwise
 * two stages could each wait for the other to receive.  Where the tasks of a section end, all
 * messages have arrived. */
#include "program/lowering.h"

#include <string.h>

typedef struct inbox { /* what another stage sends here, in order */
    int64_t *v;        /* tags */
    int n, cap, taken;
} inbox;

typedef struct lane { /* messages to one rank: how many were sent, how many have arrived */
    int peer, sends, arrived;
    int recent[SK_LANE]; /* buffers of the newest messages */
} lane;

typedef struct mail {
    sk_lowering *e;
    sk_program *p;
    inbox *inbox;  /* by stage */
    int *stage_of; /* by rank: the stage whose messages it sends here, or -1 */
    int *recv_of;  /* by tag: its RECV in the old list */
    struct {
        lane *v;
        int n, cap;
    } lanes;
    int window;
    sk_inst *old; /* the old list */
    char *moved;  /* by instruction of it: written already */
} mail;

/* --- sending --- */

static lane *lane_to(mail *x, int peer)
{
    for (int i = 0; i < x->lanes.n; i++)
        if (x->lanes.v[i].peer == peer) return &x->lanes.v[i];
    lane *l = sk_push(x->e->tmp, &x->lanes);
    *l = (lane){.peer = peer};
    return l;
}

/* Waits until the first `count` messages have arrived, the oldest first: the buffer of each lives
 * until then. */
static void arrived(mail *x, lane *l, int count, const sk_inst *place)
{
    while (l->arrived < count) {
        sk_inst in = sk_inst_like(place, SK_DO_SENT);
        in.peer = l->peer;
        in.in[0] = l->recent[l->arrived % SK_LANE];
        in.sent = ++l->arrived;
        *sk_push(x->e->tmp, &x->p->insts) = in;
    }
}

static void send(mail *x, const sk_inst *in)
{
    lane *l = lane_to(x, in->peer);
    arrived(x, l, l->sends - x->window + 1, in);
    l->recent[l->sends++ % SK_LANE] = in->in[0];
    *sk_push(x->e->tmp, &x->p->insts) = *in;
}

static void all_arrived(mail *x)
{
    for (int i = 0; i < x->lanes.n; i++) {
        sk_inst place = x->p->insts.v[x->p->insts.n - 1];
        arrived(x, &x->lanes.v[i], x->lanes.v[i].sends, &place);
    }
}

/* --- receiving --- */

/* A RECV that stands in a later task moves up to here. */
static void take_early(mail *x, const sk_inst *place, int64_t tag)
{
    int from = x->recv_of[tag];
    sk_assert(x->old[from].act == SK_DO_RECV && x->old[from].tag == tag && !x->moved[from]);
    sk_inst in = sk_inst_like(place, SK_DO_RECV);
    in.micro = x->old[from].micro;
    in.peer = place->peer;
    in.tag = tag;
    in.out[0] = x->old[from].out[0];
    x->moved[from] = 1;
    *sk_push(x->e->tmp, &x->p->insts) = in;
}

static void receive(mail *x, const sk_inst *in)
{
    int stage = x->stage_of[in->peer];
    inbox *box = stage < 0 ? NULL : &x->inbox[stage];
    while (box && box->v[box->taken] != in->tag) take_early(x, in, box->v[box->taken++]);
    if (box) box->taken++;
    *sk_push(x->e->tmp, &x->p->insts) = *in;
}

/* --- what other stages send to this one, in which order --- */

static sk_phase phase_of(sk_task_kind w) { return w == SK_WORK_F ? SK_FORWARD : SK_BACKWARD; }

/* What a chunk sends to this stage in one phase, in graph order. */
static void index_crossing(const sk_lowering *e, sk_ints *by_chunk)
{
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *n = e->g->nodes.v[i];
        if (e->sp->stage[i] == e->p->stage) continue;
        for (int o = 0; o < n->n_out; o++)
            if (!n->into[o] && sk_stages_has(sk_lower_readers(e, n->out[o]), e->p->stage))
                *sk_push(e->tmp, &by_chunk[2 * e->sp->chunk[i] + (int)n->phase]) = n->out[o]->id;
    }
}

static void fill_inboxes(mail *x)
{
    sk_lowering *e = x->e;
    sk_ints *by_chunk = sk_many(e->tmp, sk_ints, 2 * e->sp->n_chunks);
    index_crossing(e, by_chunk);
    x->inbox = sk_many(e->tmp, inbox, e->sp->n_stages);
    for (int s = 0; s < e->sp->n_stages; s++) {
        if (s == e->p->stage) continue;
        x->stage_of[sk_lower_rank_of_stage(e, s)] = s;
        for (int k = 0; k < e->tasks[s].n; k++) {
            sk_task t = e->tasks[s].v[k];
            if (t.work >= SK_WORK_W) continue; /* weight gradients are not sent */
            const sk_ints *made = &by_chunk[2 * t.chunk + (int)phase_of(t.work)];
            for (int i = 0; i < made->n; i++)
                *sk_push(e->tmp, &x->inbox[s]) = sk_message_tag(e, made->v[i], t.micro);
        }
    }
}

/* The most messages that one task sends to one stage. */
static int most_messages(const sk_lowering *e)
{
    int most = 1, stages = e->sp->n_stages;
    int *sent = sk_many(e->tmp, int, 2 * e->sp->n_chunks * stages);
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *n = e->g->nodes.v[i];
        int *task = sent + (2 * e->sp->chunk[i] + (int)n->phase) * stages;
        for (int o = 0; o < n->n_out; o++)
            for (int s = 0; s < stages; s++)
                if (!n->into[o] && s != e->sp->stage[i] &&
                    sk_stages_has(&e->plan.read_by[n->out[o]->id], s) && ++task[s] > most)
                    most = task[s];
    }
    return most;
}

static int first_window(const sk_lowering *e)
{
    int window = e->sp->n_chunks > e->sp->n_stages ? SK_LANE : 2 * most_messages(e);
    return window < SK_LANE ? window : SK_LANE;
}

/* --- the new list --- */

static void index_recvs(mail *x, int from, int to)
{
    const sk_lowering *e = x->e;
    x->recv_of = sk_many(e->tmp, int, e->g->tensors.n * e->plan.n_listed);
    for (int pc = from; pc < to; pc++)
        if (x->old[pc].act == SK_DO_RECV && x->stage_of[x->old[pc].peer] >= 0)
            x->recv_of[x->old[pc].tag] = pc;
}

static void one_inst(mail *x, const sk_inst *in)
{
    if (in->act == SK_DO_SEND) send(x, in);
    else if (in->act == SK_DO_RECV) receive(x, in);
    else if (in->act == SK_DO_SENT) {
        lane *l = lane_to(x, in->peer);
        arrived(x, l, l->sends, in);
    } else *sk_push(x->e->tmp, &x->p->insts) = *in;
}

static sk_status section(mail *x, bool training, int from, int to)
{
    sk_lowering *e = x->e;
    int n_tasks = 0;
    e->training = training;
    e->tasks = e->plan.tasks[training];
    if (e->tasks) n_tasks = e->tasks[e->p->stage].n;
    if (e->tasks) SK_TRY(sk_lower_window(e, &x->window));
    memset(x->stage_of, -1, sizeof *x->stage_of * (size_t)e->p->n_ranks);
    if (e->tasks) fill_inboxes(x);
    index_recvs(x, from, to);
    bool inside = false;
    for (int pc = from; pc < to; pc++) {
        bool of_task = x->old[pc].task >= 0 && x->old[pc].task < n_tasks;
        if (inside && !of_task) all_arrived(x);
        inside = of_task;
        if (!x->moved[pc]) one_inst(x, &x->old[pc]);
    }
    if (inside) all_arrived(x);
    x->lanes.n = 0; /* counts are by section */
    return SK_OK;
}

sk_status sk_order_messages(sk_lowering *e)
{
    sk_program *p = e->p;
    int n = p->insts.n, n_train = p->n_train;
    mail x = {.e = e, .p = p, .window = first_window(e)};
    x.stage_of = sk_many(e->tmp, int, p->n_ranks);
    x.moved = sk_many(e->tmp, char, n + 1);
    x.old = sk_grow(e->tmp, NULL, 0, sizeof *x.old * (size_t)(n + 1));
    memcpy(x.old, p->insts.v, sizeof *x.old * (size_t)n);
    p->insts.n = 0;
    SK_TRY(section(&x, true, 0, n_train));
    p->n_train = p->insts.n;
    return section(&x, false, n_train, n);
}
