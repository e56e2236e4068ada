/* repeats.c - lists of few micro-batches, and which instructions of theirs are repeated. */
#include "program/acts.h"
#include "program/class_program.h"
#include "program/lowering.h"

#include <string.h>

enum { AHEAD = 4 }; /* F tasks of a list: two before the one that is repeated, one behind */

/* --- lists of tasks --- */

static bool is_task(const sk_tasks *t, int at, sk_task_kind work, int micro)
{
    return at < t->n && t->v[at].work == work && t->v[at].micro == micro && !t->v[at].version;
}

bool sk_runs_read(const sk_tasks *t, int n_micro, sk_runs *out)
{
    int f = 0, b = 0, at = 0;
    while (is_task(t, at, SK_WORK_F, f)) f++, at++;
    *out = (sk_runs){.ahead = f, .forward = true};
    if (at == t->n) return f == n_micro;
    *out = (sk_runs){.ahead = f - 1};
    for (bool more = f > 0; more; out->pairs++) {
        if (!is_task(t, at++, SK_WORK_B, b++)) return false;
        more = is_task(t, at, SK_WORK_F, f);
        f += more;
        at += more;
    }
    while (is_task(t, at, SK_WORK_B, b)) b++, at++;
    return at == t->n && f == n_micro && b == n_micro;
}

sk_runs sk_runs_listed(const sk_runs *of)
{
    int ahead = of->ahead < AHEAD ? of->ahead : AHEAD;
    if (of->forward) return (sk_runs){.ahead = SK_LISTED, .forward = true};
    if (of->pairs < SK_LISTED - ahead) ahead = SK_LISTED - of->pairs;
    return (sk_runs){.ahead = ahead, .pairs = SK_LISTED - ahead};
}

static void write_tasks(sk_tasks *t, const sk_runs *r, int chunk)
{
    int f = 0, b = 0;
    t->n = 0;
    while (f < r->ahead) sk_task_add(t, SK_WORK_F, f++, chunk);
    if (r->forward) return;
    for (int i = 0; i < r->pairs; i++) {
        sk_task_add(t, SK_WORK_F, f++, chunk);
        sk_task_add(t, SK_WORK_B, b++, chunk);
    }
    while (b < f) sk_task_add(t, SK_WORK_B, b++, chunk);
}

void sk_repeats_list(sk_lowering *e, sk_tasks *tasks, sk_runs *of)
{
    int stages = e->sp->n_stages;
    for (int s = 0; s < stages; s++) {
        bool read = sk_runs_read(&tasks[s], e->p->n_micro, &of[s]);
        sk_assert(read); /* sk_repeats_can has asked */
        sk_runs few = sk_runs_listed(&of[s]);
        write_tasks(&tasks[s], &few, tasks[s].v[0].chunk);
    }
}

/* --- can it be done? --- */

static bool lists_repeat(const sk_schedule *s, const sk_pipe *pipe)
{
    sk_arena tmp = {0};
    sk_tasks *tasks = sk_many(&tmp, sk_tasks, pipe->n_stages);
    for (int i = 0; i < pipe->n_stages; i++) tasks[i].arena = &tmp;
    bool can = !s->list_tasks(pipe, tasks);
    for (int i = 0; can && i < pipe->n_stages; i++) {
        sk_runs r;
        can = sk_runs_read(&tasks[i], pipe->n_micro, &r);
    }
    sk_arena_end(&tmp);
    return can;
}

/* Are all micro-batches as large, on all ranks? */
static bool is_even(const sk_graph *g, const sk_layout *l, int n_micro)
{
    int64_t parts = n_micro, size = g->size[(int)g->batch & 127];
    for (int a = 0; a < l->mesh.n; a++)
        if (sk_layout_splits(l, a, g->batch)) parts *= l->mesh.size[a];
    return size > 0 && size % parts == 0;
}

/* Not for a GPU: what it joins in a launch depends on where buffers lie, lap by lap. */
bool sk_repeats_can(const sk_graph *g, const sk_layout *l, const sk_compile_opts *o)
{
    int n_micro = o->n_micro ? o->n_micro : l->n_micro ? l->n_micro : 1;
    const sk_schedule *s = sk_schedule_find(l->schedule);
    if (n_micro <= SK_LISTED || !o->optim || o->gpu || !s || s->async) return false;
    if (l->canonical || sk_layout_offloads(l) || sk_layout_timed(l) || o->late || o->noise)
        return false;
    int each = s->chunks ? s->chunks : l->chunks ? l->chunks : 1;
    int stages = l->stage_axis < 0 ? 1 : l->mesh.size[l->stage_axis];
    sk_pipe pipe = {stages, each, n_micro, l->schedule};
    return each == 1 && is_even(g, l, n_micro) && lists_repeat(s, &pipe);
}

/* --- laps --- */

/* The first instruction of a task, or of one behind it. */
static int begin_of(const sk_program *p, int from, int to, int task)
{
    while (from < to && (p->insts.v[from].task < 0 || p->insts.v[from].task < task)) from++;
    return from;
}

static bool same_call(const sk_program *p, const sk_inst *a, const sk_inst *b)
{
    if (a->call < 0 || b->call < 0) return a->call == b->call;
    const sk_call_plan *x = &p->calls.v[a->call], *y = &p->calls.v[b->call];
    return x->group == y->group && x->n_then == y->n_then && sk_call_alike(x, y, false);
}

static bool same_operands(const sk_program *p, const sk_inst *a, const sk_inst *b)
{
    for (int i = 0; i < SK_MAX_OPERANDS + SK_MAX_OUT; i++) {
        int x = i < SK_MAX_OPERANDS ? a->in[i] : a->out[i - SK_MAX_OPERANDS];
        int y = i < SK_MAX_OPERANDS ? b->in[i] : b->out[i - SK_MAX_OPERANDS];
        if (x < 0 || y < 0) {
            if (x != y) return false;
            continue;
        }
        const sk_buffer *u = &p->bufs.v[x], *v = &p->bufs.v[y];
        if (u->bytes != v->bytes || u->kind != v->kind || u->type != v->type ||
            u->placement != v->placement || u->keep != v->keep || (u->keep && x != y))
            return false;
    }
    return true;
}

static bool same_inst(const sk_program *p, int pc, int other)
{
    const sk_inst *a = &p->insts.v[pc], *b = &p->insts.v[other];
    bool moves = a->copy >= 0 || b->copy >= 0 || a->background || b->background;
    return !moves && a->act == b->act && a->node == b->node && a->add == b->add &&
           a->layer == b->layer && a->work == b->work && a->part == b->part &&
           a->parts == b->parts && a->peer == b->peer && a->param == b->param &&
           a->pass == b->pass && a->every == b->every && a->wire == b->wire &&
           a->values == b->values && a->pieces == b->pieces && a->codec == b->codec &&
           a->flops == b->flops && (a->workspace < 0) == (b->workspace < 0) &&
           sk_insts_due_alike(a, b) && same_call(p, a, b) && same_operands(p, a, b);
}

/* Messages to a rank up to an instruction, less those whose arrival is waited for there: equal in
 * all laps. */
static bool same_counts(const sk_program *p, int at, int n)
{
    for (int pc = at; pc < at + n; pc++) {
        int64_t sends = 0, peer = p->insts.v[pc].peer;
        if (p->insts.v[pc].act != SK_DO_SENT) continue;
        for (int k = pc - n; k < pc; k++)
            sends += p->insts.v[k].act == SK_DO_SEND && p->insts.v[k].peer == peer;
        if (p->insts.v[pc].sent - p->insts.v[pc - n].sent != sends) return false;
    }
    return true;
}

/* A lap of tasks, and the lap before it. */
static bool add_repeat(const sk_program *p, bool train, int task, int n_tasks, int more,
                       sk_repeats *out)
{
    int from = train ? 0 : p->n_mean, to = train ? p->n_train : p->insts.n;
    int before = begin_of(p, from, to, task - n_tasks), at = begin_of(p, from, to, task);
    int n = begin_of(p, from, to, task + n_tasks) - at;
    if (!more) return true;
    if (task < n_tasks || at - before != n) return false;
    for (int i = 0; i < n; i++)
        if (!same_inst(p, at + i, before + i)) return false;
    if (!same_counts(p, at, n)) return false;
    out->v[out->n++] = (sk_repeat){task, n_tasks, at, n, more};
    return true;
}

static bool find_validation(const sk_program *p, sk_repeats *out)
{
    sk_runs few = {.ahead = SK_LISTED, .forward = true};
    if (p->insts.n == p->n_mean) return true;
    out->validate = (sk_runs){.ahead = p->n_micro, .forward = true};
    return add_repeat(p, false, few.ahead - 2, 1, p->n_micro - few.ahead, out);
}

bool sk_program_listed(const sk_program *p) { return p->plan && p->plan->opts.listed; }

bool sk_repeats_find(const sk_program *p, sk_repeats *out)
{
    const sk_plan *plan = &p->plan->plan;
    *out = (sk_repeats){.n_micro = p->n_micro};
    if (plan->n_listed == p->n_micro) return true;
    sk_runs of = out->train = plan->runs[p->stage], few = sk_runs_listed(&of);
    int more = of.ahead - few.ahead, tail = few.ahead + 2 * few.pairs;
    return add_repeat(p, true, few.ahead - 1, 1, more, out) &&
           add_repeat(p, true, tail - 4, 2, of.pairs - few.pairs, out) &&
           add_repeat(p, true, tail + few.ahead - 2, 1, more, out) && find_validation(p, out);
}
