/* lower.c - the pass that writes instructions, task by task.
 *
 * The schedule gives the order of tasks (forward or backward of a micro-batch in a chunk of
 * layers); a task is the chunk's nodes in graph order, each with its operands resharded to the
 * state it needs.  Then gradients are reduced, the optimizer runs, and weights are gathered again.
 */
#include "base/threads.h"
#include "base/strings.h"
#include "program/lowering.h"
#include "program/pipeline_schedule.h"

#include <string.h>

/* --- one node --- */

/* An output that is added up over micro-batches: the loss, the token count, ... */
static int output_target(sk_lowering *e, const sk_node *n, const sk_tensor *t)
{
    int w = 0, part = 0;
    while (e->g->sum[w] != t) w++;
    const sk_sum_plan *s = &e->p->sums[w];
    if (!s->trees) return s->buf[0];
    while (s->node[part] != n) part++;
    return s->buf[part * e->p->n_micro + e->at.micro];
}

static sk_status output(sk_lowering *e, const sk_node *n, int o, int *buf, bool *add)
{
    const sk_tensor *into = n->into[o], *t = n->out[o];
    const sk_state *made = &e->sp->node[n->id].out[o];
    *add = into != NULL; /* accumulate.c finds the first */
    if (into && (into->role == SK_PARAM || into->role == SK_EXTRA))
        *buf = sk_lower_grad_target(e, e->plan.param_of[into->id], n, made);
    else if (into) *buf = output_target(e, n, into);
    else {
        *buf = sk_lower_piece(e, t, SK_ACTS, made, e->at.micro);
        sk_lower_have(e, t, made, *buf);
    }
    return SK_OK;
}

/* The results of a node are written: they are sent to other stages that read them. */
sk_status sk_lower_made(sk_lowering *e, const sk_node *n)
{
    for (int o = 0; o < n->n_out; o++)
        if (!n->into[o]) SK_TRY(sk_lower_send(e, n->out[o]));
    return SK_OK;
}

/* The axis of the ring over which the node's operands travel, or -1. */
static int ring_axis(const sk_lowering *e, const sk_node *n)
{
    for (int a = 0; a < e->l->mesh.n; a++) {
        char letter = e->sp->node[n->id].letter[a];
        if (letter && e->l->by[a] == SK_BY_RING && sk_node_gathers(n, letter)) return a;
    }
    return -1;
}

/* Contributions to an extra of some updates are made in these alone. */
static int every_of(const sk_lowering *e, const sk_node *n)
{
    const sk_tensor *into = n->into[0];
    return into && into->role == SK_EXTRA ? e->p->params.v[e->plan.param_of[into->id]].every : 0;
}

sk_status sk_lower_node(sk_lowering *e, const sk_node *n)
{
    int in[SK_MAX_IN], out[SK_MAX_OUT];
    unsigned adds = 0;
    e->at.layer = n->layer;
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i]->role == SK_MEMORY) in[i] = e->p->memories.v[e->plan.param_of[n->in[i]->id]];
        else SK_TRY(sk_lower_need(e, n->in[i], &e->sp->node[n->id].in[i], &in[i]));
    }
    for (int o = 0; o < n->n_out; o++) {
        bool add;
        SK_TRY(output(e, n, o, &out[o], &add));
        adds |= (unsigned)add << o;
    }
    sk_inst *inst = sk_lower_inst(e, SK_DO_OP);
    inst->node = n;
    inst->ring = ring_axis(e, n);
    inst->add = adds;
    inst->every = every_of(e, n);
    memcpy(inst->in, in, sizeof(int) * (size_t)n->n_in);
    memcpy(inst->out, out, sizeof(int) * (size_t)n->n_out);
    return e->at.region ? SK_OK : sk_lower_made(e, n);
}

sk_status sk_lower_clone(sk_lowering *e, const sk_node *n)
{
    int layer = e->at.layer;
    bool region = e->plan.region_of && e->plan.region_of[n->id] && !e->at.region;
    sk_assert(sk_is_clone(e, n) && e->at.phase == SK_BACKWARD);
    SK_TRY(region ? sk_lower_region(e, n) : sk_lower_node(e, n));
    e->at.layer = layer;
    return SK_OK;
}

/* The nodes that a task may have; those of the other half of a backward pass, and clones, which are
 * written where they are read, are left out by sk_lower_in_task. */
static const sk_ints *nodes_of(const sk_lowering *e, sk_task t)
{
    return &e->plan.of_chunk[2 * t.chunk + (t.work != SK_WORK_F)];
}

bool sk_lower_in_task(const sk_lowering *e, const sk_node *n, sk_task t)
{
    if (sk_is_clone(e, n)) return false;
    return t.work < SK_WORK_I || e->plan.weight_half[n->id] == (t.work == SK_WORK_W);
}

static void list_layers(sk_lowering *e, sk_task t)
{
    const sk_ints *nodes = nodes_of(e, t);
    e->layers.n = 0;
    for (int i = 0; i < nodes->n; i++) {
        const sk_node *node = e->g->nodes.v[nodes->v[i]];
        int n = e->layers.n;
        if (sk_lower_in_task(e, node, t) && (!n || e->layers.v[n - 1] != node->layer))
            *sk_push(e->tmp, &e->layers) = node->layer;
    }
}

/* A task begins by receiving all that it reads of other stages. */
static sk_status receive_all(sk_lowering *e, sk_task t)
{
    const sk_ints *nodes = nodes_of(e, t);
    for (int i = 0; i < nodes->n; i++) {
        const sk_node *n = e->g->nodes.v[nodes->v[i]];
        for (int k = 0; k < n->n_in && sk_lower_in_task(e, n, t); k++) {
            const sk_tensor *x = n->in[k];
            if (!x->from || e->sp->stage[x->from->id] == e->p->stage) continue;
            sk_state now;
            bool here = sk_lower_find(e, x, &e->sp->node[n->id].in[k]) >= 0;
            if (!here && sk_lower_source(e, x, &now) < 0) SK_TRY(sk_lower_receive(e, x));
        }
    }
    return SK_OK;
}

/* All instructions are in memory at once, about 3 KiB each while the program is compiled. */
static sk_status is_short(const sk_lowering *e, int64_t n)
{
    if (n <= SK_MOST_INSTS) return SK_OK;
    return sk_fail(
        SK_ECONF,
        "layout: the program of rank %d would have over %d instructions or buffers; "
        "take fewer micro-batches (there are %d), slices, overlap chunks or tiles, or more stages",
        e->p->rank, SK_MOST_INSTS, e->p->n_micro);
}

sk_status sk_lower_short(const sk_lowering *e)
{
    SK_TRY(is_short(e, e->p->insts.n));
    return is_short(e, e->p->bufs.n);
}

static sk_status task(sk_lowering *e, sk_task t)
{
    const sk_ints *nodes = nodes_of(e, t);
    int layer = -1;
    e->at.work = t.work;
    e->at.phase = t.work == SK_WORK_F ? SK_FORWARD : SK_BACKWARD;
    e->at.micro = t.micro;
    e->at.layer = 0;
    e->gathered_layer = -1;
    list_layers(e, t);
    SK_TRY(receive_all(e, t));
    for (int i = 0; i < nodes->n; i++) {
        const sk_node *n = e->g->nodes.v[nodes->v[i]];
        if (!sk_lower_in_task(e, n, t) || (e->training && sk_node_validates(e->g, n))) continue;
        if (layer >= 0 && n->layer != layer) sk_lower_task_end(e);
        layer = n->layer;
        e->at.unit++;
        sk_lower_unpack_for(e, n);
        if (!e->plan.region_of || !e->plan.region_of[n->id]) SK_TRY(sk_lower_node(e, n));
        else if (e->plan.regions.v[e->plan.region_of[n->id] - 1].nodes[n->phase].v[0] == n->id)
            SK_TRY(sk_lower_region(e, n)); /* all of it, at its first node */
        if (e->training && t.work == SK_WORK_F) sk_lower_pieces(e, n);
        sk_lower_pack(e, n);
        SK_TRY(sk_lower_short(e));
    }
    sk_lower_task_end(e);
    if (e->training) sk_keep_saved(e, t);
    return SK_OK;
}

/* --- the two sections --- */

static void section_begin(sk_lowering *e, bool training)
{
    e->training = training;
    memset(e->hand, 0, sizeof *e->hand * (size_t)(e->g->tensors.n * e->plan.n_listed));
    e->tasks = e->plan.tasks[training];
}

static sk_status do_tasks(sk_lowering *e)
{
    const sk_tasks *mine = &e->tasks[e->p->stage];
    for (int i = 0; i < mine->n; i++) {
        e->at.task = i;
        if (e->training && i == mine->n / 2) sk_lower_replica_middle(e);
        if (mine->v[i].work == SK_WORK_U) sk_lower_update_task(e, mine->v[i]);
        else SK_TRY(task(e, mine->v[i]));
    }
    e->at.task = mine->n; /* what follows the tasks */
    return SK_OK;
}

static sk_status train_section(sk_lowering *e)
{
    section_begin(e, true);
    e->p->n_updates = 1;
    SK_TRY(sk_lower_async(e));
    SK_TRY(sk_noise_begin(e));
    SK_TRY(sk_lower_late(e));
    sk_lower_replica_begin(e);
    sk_lower_pull(e);
    sk_lower_lazy_begin(e);
    SK_TRY(do_tasks(e));
    sk_lower_grads_end(e);
    sk_lower_update(e);
    return SK_OK;
}

static sk_status forward_section(sk_lowering *e)
{
    section_begin(e, false);
    sk_lower_replica_mean(e);
    sk_lower_validated_weights(e);
    SK_TRY(do_tasks(e));
    if (e->g->loss) sk_lower_report(e);
    return SK_OK;
}

/* At least one instruction per node and micro-batch, and those that regions add: known before any
 * is written. */
sk_status sk_check_length(sk_lowering *e)
{
    int64_t nodes = 0;
    for (int i = 0; i < e->g->nodes.n; i++) nodes += e->sp->stage[i] == e->p->stage;
    SK_TRY(is_short(e, nodes * e->plan.n_listed));
    return is_short(e, nodes * e->plan.n_listed + sk_lower_regions_insts(e, SK_MOST_INSTS));
}

sk_status sk_lower(sk_lowering *e)
{
    sk_program *p = e->p;
    e->hand = sk_many(e->tmp, sk_at_hand *, e->g->tensors.n * e->plan.n_listed);
    if (p->optim) SK_TRY(train_section(e));
    p->n_train = p->insts.n;
    if (e->opts->validate || !p->optim) SK_TRY(forward_section(e));
    else sk_lower_replica_mean(e);
    if (!e->g->loss && e->g->logits) { /* sampling reads them */
        sk_state whole = sk_state_settled(&p->spread.made[e->g->logits->id]);
        e->at.micro = 0;
        SK_TRY(sk_lower_need(e, e->g->logits, &whole, &p->logits));
    }
    return SK_OK;
}
