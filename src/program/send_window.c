/* send_window.c - how many messages a stage may be ahead of the one that receives them.
 *
 * The buffer of a message is kept until it has arrived, so a sender should not be far ahead: two
 * tasks are enough where every stage sends to the next (stage_messages.c).  Where a message passes
 * over stages without layers, or a schedule's file lets stages differ by more, a sender that waits
 * that soon could deadlock: it does not receive meanwhile, and its receiver may wait for a message
 * from it.
 *
 * So the section is simulated, task by task, with a window: a task runs when all that it reads has
 * been sent and the window has space for all that it sends.  If every task runs, there is an order
 * without deadlock; and since each rank's order is fixed and waiting changes no message, no other
 * order can deadlock.  The window is doubled until that holds, up to SK_LANE messages. */
#include "program/lowering.h"

#include <string.h>

typedef struct edge { /* what the tasks of one chunk and phase send to one stage */
    int from, to, n;  /* stages; messages of a task */
    int *start;       /* by micro-batch: messages to that stage before its own; -1: not sent yet */
} edge;

typedef struct need { /* a message that a task receives */
    int edge, at;     /* its place among those of the task that sends it */
} need;

typedef struct kind { /* of tasks: a chunk's forward pass, or half of its backward pass */
    sk_ints sends;    /* edges */
    struct {
        need *v;
        int n, cap;
    } needs;
} kind;

typedef struct dry_run {
    const sk_lowering *e;
    sk_arena arena;
    kind *kinds; /* [3 * chunk + F, I, W] */
    struct {
        edge *v;
        int n, cap;
    } edges;
    int *sent, *got; /* [from * n_stages + to] */
    int *at;         /* by stage: its next task */
} dry_run;

static int lane(const dry_run *p, int from, int to) { return from * p->e->sp->n_stages + to; }

static kind *kind_of(const dry_run *p, int node)
{
    bool backward = p->e->g->nodes.v[node]->phase == SK_BACKWARD;
    return &p->kinds[3 * p->e->sp->chunk[node] + (backward ? 1 + p->e->plan.weight_half[node] : 0)];
}

/* The message that brings a tensor to a stage: of the edge of its chunk, phase and reader. */
static need message_to(dry_run *p, const sk_tensor *t, int to)
{
    kind *k = kind_of(p, t->from->id);
    int from = p->e->sp->stage[t->from->id];
    for (int i = 0; i < k->sends.n; i++)
        if (p->edges.v[k->sends.v[i]].to == to)
            return (need){k->sends.v[i], p->edges.v[k->sends.v[i]].n++};
    *sk_push(&p->arena, &k->sends) = p->edges.n;
    edge *x = sk_push(&p->arena, &p->edges);
    *x = (edge){.from = from, .to = to, .n = 1};
    x->start = sk_many(&p->arena, int, p->e->plan.n_listed);
    return (need){p->edges.n - 1, 0};
}

/* In the order of the graph, in which tasks send. */
static need *list_messages(dry_run *p)
{
    const sk_lowering *e = p->e;
    need *of = sk_many(&p->arena, need, e->g->tensors.n * e->sp->n_stages);
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *n = e->g->nodes.v[i];
        for (int o = 0; o < n->n_out; o++)
            for (int s = 0; s < e->sp->n_stages; s++)
                if (!n->into[o] && s != e->sp->stage[i] &&
                    sk_stages_has(sk_lower_readers(e, n->out[o]), s))
                    of[n->out[o]->id * e->sp->n_stages + s] = message_to(p, n->out[o], s);
    }
    return of;
}

static void list_needs(dry_run *p, const need *of)
{
    const sk_lowering *e = p->e;
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *n = e->g->nodes.v[i];
        int stage = e->sp->stage[i];
        for (int k = 0; k < n->n_in && (e->training || n->phase == SK_FORWARD); k++) {
            const sk_tensor *t = n->in[k];
            if (t->from && e->sp->stage[t->from->id] != stage)
                *sk_push(&p->arena, &kind_of(p, i)->needs) = of[t->id * e->sp->n_stages + stage];
        }
    }
}

static bool can_run(const dry_run *p, const kind *k, int micro, int window)
{
    for (int i = 0; i < k->needs.n; i++)
        if (p->edges.v[k->needs.v[i].edge].start[micro] < 0) return false;
    for (int i = 0; i < k->sends.n; i++) {
        const edge *x = &p->edges.v[k->sends.v[i]];
        int l = lane(p, x->from, x->to);
        if (p->sent[l] + x->n - p->got[l] > window) return false;
    }
    return true;
}

/* A rank that receives a message has received all that were sent before it. */
static void run(dry_run *p, const kind *k, int micro)
{
    for (int i = 0; i < k->needs.n; i++) {
        const edge *x = &p->edges.v[k->needs.v[i].edge];
        int l = lane(p, x->from, x->to), upto = x->start[micro] + k->needs.v[i].at + 1;
        if (upto > p->got[l]) p->got[l] = upto;
    }
    for (int i = 0; i < k->sends.n; i++) {
        edge *x = &p->edges.v[k->sends.v[i]];
        x->start[micro] = p->sent[lane(p, x->from, x->to)];
        p->sent[lane(p, x->from, x->to)] += x->n;
    }
}

/* A B task is both halves; its weight half receives no messages. */
static bool advance(dry_run *p, int stage, int window)
{
    const sk_tasks *list = &p->e->tasks[stage];
    int from = p->at[stage];
    for (; p->at[stage] < list->n; p->at[stage]++) {
        sk_task t = list->v[p->at[stage]];
        const kind *k = &p->kinds[3 * t.chunk];
        bool first = t.work == SK_WORK_B || t.work == SK_WORK_I;
        bool last = t.work == SK_WORK_B || t.work == SK_WORK_W;
        if ((t.work == SK_WORK_F && !can_run(p, k, t.micro, window)) ||
            (first && !can_run(p, k + 1, t.micro, window)) ||
            (last && !can_run(p, k + 2, t.micro, window)))
            break;
        if (t.work == SK_WORK_F) run(p, k, t.micro);
        if (first) run(p, k + 1, t.micro);
        if (last) run(p, k + 2, t.micro);
    }
    return p->at[stage] > from;
}

static bool comes_to_its_end(dry_run *p, int window)
{
    int stages = p->e->sp->n_stages;
    memset(p->sent, 0, sizeof *p->sent * (size_t)(stages * stages));
    memset(p->got, 0, sizeof *p->got * (size_t)(stages * stages));
    memset(p->at, 0, sizeof *p->at * (size_t)stages);
    for (int i = 0; i < p->edges.n; i++)
        for (int m = 0; m < p->e->plan.n_listed; m++) p->edges.v[i].start[m] = -1;
    for (bool moves = true; moves;) {
        moves = false;
        for (int s = 0; s < stages; s++) moves |= advance(p, s, window);
    }
    for (int s = 0; s < stages; s++)
        if (p->at[s] < p->e->tasks[s].n) return false;
    return true;
}

static sk_status too_far(const dry_run *p)
{
    int s = 0;
    while (p->at[s] == p->e->tasks[s].n) s++;
    return sk_fail(SK_ECONF,
                   "layout: schedule %s with %d micro-batches: stage %d would have to send more "
                   "than %d messages before another stage receives the first of them; take fewer "
                   "micro-batches or chunks, or another schedule",
                   p->e->plan.schedule->name, p->e->p->n_micro, s, SK_LANE);
}

sk_status sk_lower_window(sk_lowering *e, int *window)
{
    int stages = e->sp->n_stages;
    if (stages == 1) return SK_OK;
    dry_run p = {.e = e};
    p.kinds = sk_many(&p.arena, kind, 3 * e->sp->n_chunks);
    p.sent = sk_many(&p.arena, int, stages *stages);
    p.got = sk_many(&p.arena, int, stages *stages);
    p.at = sk_many(&p.arena, int, stages);
    list_needs(&p, list_messages(&p));
    bool ends = false;
    while (!(ends = comes_to_its_end(&p, *window)) && *window < SK_LANE)
        *window = 2 * *window < SK_LANE ? 2 * *window : SK_LANE;
    sk_status st = ends ? SK_OK : too_far(&p);
    sk_arena_end(&p.arena);
    return st;
}
