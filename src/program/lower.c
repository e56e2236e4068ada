/* lower.c - model + layout -> the program of one rank.
 *
 * The schedule gives the order of tasks (forward or backward of a micro-batch);
 * a task is this stage's nodes in graph order, each with its operands brought
 * into the state it needs.  Then gradients are reduced, the optimizer runs, and
 * weights are made whole again.  Straight passes over arrays, nothing clever. */
#include "base/team.h"
#include "base/text.h"
#include "program/emit.h"
#include "program/schedule.h"

#include <string.h>

enum { MOST_MICRO = 4096 }; /* the loop over micro-batches is unrolled */

const sk_schedule *sk_schedule_find(const char *name)
{
    for (const sk_schedule *const *s = sk_schedule_parts; *s; s++)
        if (!strcmp((*s)->name, name)) return *s;
    return NULL;
}

const sk_optim *sk_optim_find(const char *name)
{
    for (const sk_optim *const *o = sk_optim_parts; *o; o++)
        if (!strcmp((*o)->name, name)) return *o;
    return NULL;
}

void sk_task_add(sk_tasks *t, sk_phase phase, int micro)
{
    *sk_push(t->arena, t) = (sk_task){.phase = phase, .micro = micro};
}

/* --- tensors that cross stages --- */

static int rank_of_stage(const sk_emit *e, int stage)
{
    int coord[SK_MAX_AXES];
    memcpy(coord, e->p->coord, sizeof coord);
    coord[e->l->stage_axis] = stage;
    return sk_mesh_rank(&e->l->mesh, coord);
}

static int64_t tag_of(const sk_emit *e, const sk_tensor *t)
{
    return (int64_t)t->id * e->p->n_micro + e->micro;
}

/* Wait until all that was sent to a stage so far is there. */
static void arrived(sk_emit *e, int stage)
{
    if (!e->sends[stage]) return;
    sk_inst *in = sk_emit_inst(e, SK_DO_SENT);
    in->peer = rank_of_stage(e, stage);
    in->count = e->sends[stage];
    in->in[0] = e->last_sent[stage];
}

static sk_status send_on(sk_emit *e, const sk_tensor *t)
{
    uint64_t to = e->read_by[t->id] & ~(1ull << e->p->stage); /* the other stages that read it */
    if (!to) return SK_OK;
    sk_state settled = sk_state_settled(&e->sp->made[t->id]);
    int buf = -1;
    SK_TRY(sk_emit_need(e, t, &settled, &buf));
    for (int s = 0; s < e->sp->n_stages; s++) {
        if (!(to >> s & 1)) continue;
        int peer = rank_of_stage(e, s);
        arrived(e, s); /* one unreceived message a pair */
        sk_inst *in = sk_emit_inst(e, SK_DO_SEND);
        in->peer = peer;
        in->in[0] = buf;
        in->tag = tag_of(e, t);
        in->wire = e->p->bufs.v[buf].bytes;
        e->sends[s]++;
        e->last_sent[s] = buf;
    }
    return SK_OK;
}

static void finish_sends(sk_emit *e)
{
    for (int s = 0; s < e->sp->n_stages; s++) {
        arrived(e, s);
        e->sends[s] = 0;
    }
}

/* A task begins by receiving what other stages made for it in the same phase, in graph order:
 * that is the order in which they send. */
static void receive(sk_emit *e)
{
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *n = e->g->nodes.v[i];
        if (n->phase != e->phase || e->sp->stage[i] == e->p->stage) continue;
        for (int o = 0; o < n->n_out; o++) {
            const sk_tensor *t = n->out[o];
            if (!(e->read_by[t->id] >> e->p->stage & 1)) continue;
            sk_state settled = sk_state_settled(&e->sp->made[t->id]);
            int buf = sk_emit_piece(e, t, SK_ACTS, &settled, e->micro);
            sk_inst *in = sk_emit_inst(e, SK_DO_RECV);
            in->peer = rank_of_stage(e, e->sp->stage[i]);
            in->out[0] = buf;
            in->tag = tag_of(e, t);
            sk_emit_have(e, t, &settled, buf);
        }
    }
}

/* --- one node --- */

/* An output that is added up over micro-batches: the loss or the token count. */
static int output_target(sk_emit *e, const sk_tensor *t, bool *add)
{
    char *begun = t == e->g->loss ? &e->loss_begun : &e->weight_begun;
    *add = *begun;
    *begun = 1;
    return t == e->g->loss ? e->p->loss : e->p->weight;
}

static sk_status output(sk_emit *e, const sk_node *n, int o, int *buf, bool *add)
{
    const sk_tensor *into = n->into[o], *t = n->out[o];
    const sk_state *made = &e->sp->node[n->id].out[o];
    *add = false;
    if (into && into->role == SK_PARAM)
        *buf = sk_emit_grad_target(e, e->param_of[into->id], made, add);
    else if (into) *buf = output_target(e, into, add);
    else {
        *buf = sk_emit_piece(e, t, SK_ACTS, made, e->micro);
        sk_emit_have(e, t, made, *buf);
    }
    if (*add && !(n->op->flags & SK_OP_ADDS))
        return sk_fail(SK_EBUG, "op '%s' must add to '%s' and cannot", n->op->name, into->name);
    return SK_OK;
}

static sk_status node(sk_emit *e, const sk_node *n)
{
    int in[SK_MAX_IN], out[SK_MAX_OUT];
    unsigned adds = 0;
    e->layer = n->layer;
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i]->role == SK_MEMORY) in[i] = e->p->memories.v[e->param_of[n->in[i]->id]];
        else SK_TRY(sk_emit_need(e, n->in[i], &e->sp->node[n->id].in[i], &in[i]));
    }
    for (int o = 0; o < n->n_out; o++) {
        bool add;
        SK_TRY(output(e, n, o, &out[o], &add));
        adds |= (unsigned)add << o;
    }
    sk_inst *inst = sk_emit_inst(e, SK_DO_OP);
    inst->node = n;
    inst->add = adds;
    memcpy(inst->in, in, sizeof(int) * (size_t)n->n_in);
    memcpy(inst->out, out, sizeof(int) * (size_t)n->n_out);
    for (int o = 0; o < n->n_out; o++) {
        const sk_tensor *into = n->into[o];
        if (into && into->role == SK_PARAM) sk_emit_grad_done(e, e->param_of[into->id]);
        else if (!into) SK_TRY(send_on(e, n->out[o]));
    }
    return SK_OK;
}

static sk_status task(sk_emit *e, sk_phase phase, int micro)
{
    int layer = -1;
    e->phase = phase;
    e->micro = micro;
    e->layer = 0;
    e->gathered_layer = -1;
    receive(e);
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *n = e->g->nodes.v[i];
        if (n->phase != phase || e->sp->stage[i] != e->p->stage) continue;
        if (layer >= 0 && n->layer != layer) sk_emit_task_end(e);
        layer = n->layer;
        SK_TRY(node(e, n));
    }
    sk_emit_task_end(e);
    return SK_OK;
}

/* --- the two sections --- */

static void section_begin(sk_emit *e, bool training)
{
    e->training = training;
    e->loss_begun = e->weight_begun = 0;
    memset(e->hand, 0, sizeof *e->hand * (size_t)(e->g->tensors.n * e->p->n_micro));
}

/* Stages without a node (more stages than blocks) pass nothing on and do not count for the
 * schedule.  Returns how many of the others come before this one. */
static int busy_stages(const sk_emit *e, int *all)
{
    uint64_t busy = 1ull << e->p->stage;
    for (int i = 0; i < e->g->nodes.n; i++) busy |= 1ull << e->sp->stage[i];
    *all = __builtin_popcountll(busy);
    return __builtin_popcountll(busy & ((1ull << e->p->stage) - 1));
}

static sk_status train_section(sk_emit *e)
{
    const sk_schedule *s = sk_schedule_find(e->l->schedule);
    sk_tasks tasks = {.arena = e->p->arena};
    if (!s) {
        const char *names[64];
        int n = 0;
        while (n < 64 && sk_schedule_parts[n]) names[n] = sk_schedule_parts[n]->name, n++;
        const char *near = sk_nearest(e->l->schedule, names, n);
        return sk_fail(SK_ECONF, "layout: no schedule is called '%s'%s%s%s", e->l->schedule,
                       near ? " (did you mean '" : "; see skein list schedule", near ? near : "",
                       near ? "'?)" : "");
    }
    section_begin(e, true);
    int n_busy = 0, before = busy_stages(e, &n_busy);
    s->emit(&tasks, before, n_busy, e->p->n_micro);
    for (int i = 0; i < tasks.n; i++) SK_TRY(task(e, tasks.v[i].phase, tasks.v[i].micro));
    finish_sends(e);
    sk_emit_grads_end(e);
    sk_emit_update(e);
    return SK_OK;
}

static sk_status forward_section(sk_emit *e)
{
    section_begin(e, false);
    for (int m = 0; m < e->p->n_micro; m++) SK_TRY(task(e, SK_FORWARD, m));
    finish_sends(e);
    if (e->g->loss) sk_emit_report(e);
    return SK_OK;
}

/* --- setting up --- */

/* What the passes ask about a tensor again and again: one look at the graph answers it. */
static void index_tensors(sk_emit *e)
{
    int all = e->g->tensors.n;
    e->read_by = sk_many(e->p->arena, uint64_t, all);
    e->as_part = sk_many(e->p->arena, unsigned, all);
    e->grad_made = sk_many(e->p->arena, sk_state, all);
    e->grad_parts = sk_many(e->p->arena, int, all);
    for (int i = e->g->nodes.n - 1; i >= 0; i--) { /* the first contribution has the last word */
        const sk_node *n = e->g->nodes.v[i];
        for (int k = 0; k < n->n_in; k++) {
            int t = n->in[k]->id;
            e->read_by[t] |= 1ull << e->sp->stage[i];
            for (int a = 0; a < e->l->mesh.n; a++)
                if (e->sp->node[i].in[k].how[a] == SK_PSUM) e->as_part[t] |= 1u << a;
        }
        for (int o = n->n_out - 1; o >= 0; o--) {
            if (!n->into[o]) continue;
            e->grad_made[n->into[o]->id] = e->sp->node[i].out[o];
            e->grad_parts[n->into[o]->id] += e->sp->stage[i] == e->p->stage;
        }
    }
}

static int scalar(sk_emit *e, const sk_tensor *t)
{
    if (!t || e->sp->stage[t->from->id] != e->p->stage) return -1;
    int b = sk_emit_piece(e, t, SK_WIRE, &(sk_state){0}, -1);
    e->p->bufs.v[b].keep = true;
    return b;
}

/* The loss is counted where it is made, once along every axis that repeats it. */
static bool counts_loss(const sk_emit *e)
{
    if (e->p->loss < 0) return false;
    const sk_state *s = &e->sp->made[e->g->loss->id];
    for (int a = 0; a < e->l->mesh.n; a++)
        if (a != e->l->stage_axis && s->how[a] == SK_WHOLE && e->p->coord[a]) return false;
    return true;
}

static sk_status prepare(sk_emit *e)
{
    sk_program *p = e->p;
    if (e->sp->n_stages > 64)
        return sk_fail(SK_ECONF, "layout: %d stages; at most 64 are supported", e->sp->n_stages);
    if (p->n_micro > MOST_MICRO)
        return sk_fail(SK_ECONF, "layout: %d micro-batches; at most %d are supported", p->n_micro,
                       MOST_MICRO);
    e->hand = sk_many(p->arena, sk_at_hand *, e->g->tensors.n * p->n_micro);
    e->param_of = sk_many(p->arena, int, e->g->tensors.n + 1);
    e->sends = sk_many(p->arena, int, e->sp->n_stages);
    e->last_sent = sk_many(p->arena, int, e->sp->n_stages);
    index_tensors(e);
    SK_TRY(sk_emit_params(e));
    p->loss = scalar(e, e->g->loss);
    p->weight = scalar(e, e->g->weight);
    p->counts_loss = counts_loss(e);
    return SK_OK;
}

static void count_flops(sk_program *p)
{
    for (int i = 0; i < p->insts.n; i++) {
        sk_inst *in = &p->insts.v[i];
        if (in->act != SK_DO_OP) continue;
        sk_args args;
        sk_inst_args(p, in, NULL, &args);
        in->flops = sk_op_flops(in->node->op, &args);
    }
}

sk_status sk_compile(sk_arena *a, const sk_graph *g, const sk_layout *l, const sk_compile_opts *o,
                     int rank, sk_program **out)
{
    SK_TRY(sk_graph_status(g));
    sk_program *p = sk_new(a, sk_program);
    *p = (sk_program){.arena = a,
                      .graph = g,
                      .layout = *l,
                      .optim = o->optim,
                      .rank = rank,
                      .n_ranks = sk_mesh_ranks(&l->mesh),
                      .threads = o->threads < 1              ? 1
                                 : o->threads < SK_TEAM_MOST ? o->threads
                                                             : SK_TEAM_MOST,
                      .logits = -1};
    p->n_micro = o->n_micro ? o->n_micro : l->n_micro ? l->n_micro : 1;
    sk_mesh_coords(&l->mesh, rank, p->coord);
    p->stage = l->stage_axis < 0 ? 0 : p->coord[l->stage_axis];
    sk_emit e = {
        .p = p, .g = g, .l = &p->layout, .opts = o, .sp = &p->spread, .gathered_layer = -1};
    SK_TRY(sk_spread_graph(a, g, l, &p->spread));
    SK_TRY(prepare(&e));
    if (o->optim) SK_TRY(train_section(&e));
    p->n_train = p->insts.n;
    if (o->validate || !o->optim) SK_TRY(forward_section(&e));
    if (!g->loss && g->logits) { /* sampling reads them */
        sk_state whole = sk_state_settled(&p->spread.made[g->logits->id]);
        e.micro = 0;
        SK_TRY(sk_emit_need(&e, g->logits, &whole, &p->logits));
    }
    if (e.failed) return sk_trail(e.failed, SK_HERE);
    p->choices = sk_emit_choices(&e);
    count_flops(p);
    sk_plan_memory(p);
    *out = p;
    return SK_OK;
}
