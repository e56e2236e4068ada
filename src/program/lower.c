/* lower.c - model + layout -> the program of one rank.
 *
 * The schedule gives the order of tasks (forward or backward of a micro-batch in a chunk of
 * layers); a task is the chunk's nodes in graph order, each with its operands brought
 * into the state it needs.  Then gradients are reduced, the optimizer runs, and
 * weights are made whole again.  Straight passes over arrays, nothing clever. */
#include "base/team.h"
#include "base/text.h"
#include "program/emit.h"
#include "program/schedule.h"

#include <string.h>

/* Sets of stages are bits; the loops over chunks and micro-batches are unrolled. */
enum { MOST_STAGES = 64, MOST_CHUNKS = 64, MOST_MICRO = 4096 };
enum { MOST_TASKS = 1 << 20, MOST_INSTS = 1 << 20 }; /* of a phase of all stages; of a rank */

const sk_optim *sk_optim_find(const char *name)
{
    for (const sk_optim *const *o = sk_optim_parts; *o; o++)
        if (!strcmp((*o)->name, name)) return *o;
    return NULL;
}

/* --- one node --- */

/* An output that is added up over micro-batches: the loss, the token count, ... */
static int output_target(sk_emit *e, const sk_tensor *t, bool *add)
{
    int w = 0;
    while (e->g->sum[w] != t) w++;
    const sk_sum_plan *s = &e->p->sums[w];
    int i = s->n > 1 ? e->micro : 0;
    *add = e->sum_begun[w][i];
    e->sum_begun[w][i] = 1;
    return s->buf[i];
}

sk_status sk_emit_output(sk_emit *e, const sk_node *n, int o, int *buf, bool *add)
{
    const sk_tensor *into = n->into[o], *t = n->out[o];
    const sk_state *made = &e->sp->node[n->id].out[o];
    *add = false;
    if (into && into->role == SK_PARAM)
        *buf = sk_emit_grad_target(e, e->param_of[into->id], n, made, add);
    else if (into) *buf = output_target(e, into, add);
    else {
        int whole = e->slice.n ? e->slice.whole[t->id] - 1 : -1;
        *buf =
            whole >= 0 ? sk_emit_slice_at(e, whole) : sk_emit_piece(e, t, SK_ACTS, made, e->micro);
        sk_emit_have(e, t, made, *buf);
    }
    if (*add && !(n->op->flags & SK_OP_ADDS))
        return sk_fail(SK_EBUG, "op '%s' must add to '%s' and cannot", n->op->name, into->name);
    return SK_OK;
}

/* Its results are written: gradients may be reduced, and other stages may have theirs. */
sk_status sk_emit_made(sk_emit *e, const sk_node *n)
{
    for (int o = 0; o < n->n_out; o++) {
        const sk_tensor *into = n->into[o];
        if (into && into->role == SK_PARAM) sk_emit_grad_done(e, e->param_of[into->id]);
        else if (!into) SK_TRY(sk_emit_send(e, n->out[o]));
    }
    return SK_OK;
}

sk_status sk_emit_node(sk_emit *e, const sk_node *n)
{
    int in[SK_MAX_IN], out[SK_MAX_OUT];
    unsigned adds = 0;
    e->layer = n->layer;
    int axis = sk_emit_ring_axis(e, n);
    if (axis >= 0) return sk_emit_ring(e, n, axis);
    bool done = false;
    if (!e->again && !e->slice.n) SK_TRY(sk_emit_turns(e, n, &done));
    if (!e->slice.n && !done) SK_TRY(sk_emit_tiles(e, n, &done));
    if (done) return SK_OK;
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i]->role == SK_MEMORY) in[i] = e->p->memories.v[e->param_of[n->in[i]->id]];
        else SK_TRY(sk_emit_need(e, n->in[i], &e->sp->node[n->id].in[i], &in[i]));
    }
    for (int o = 0; o < n->n_out; o++) {
        bool add;
        SK_TRY(sk_emit_output(e, n, o, &out[o], &add));
        adds |= (unsigned)add << o;
    }
    sk_inst *inst = sk_emit_inst(e, SK_DO_OP);
    inst->node = n;
    inst->add = adds;
    inst->turn = e->slice.i;
    inst->turns = e->slice.n ? e->slice.n : 1;
    memcpy(inst->in, in, sizeof(int) * (size_t)n->n_in);
    memcpy(inst->out, out, sizeof(int) * (size_t)n->n_out);
    return e->again || e->slice.n ? SK_OK : sk_emit_made(e, n);
}

sk_status sk_emit_again(sk_emit *e, const sk_node *n)
{
    bool outer = e->again;
    int layer = e->layer;
    e->again = true;
    bool region = e->region_of && e->region_of[n->id] && !e->slice.n;
    SK_TRY(region ? sk_emit_region(e, n) : sk_emit_node(e, n));
    e->again = outer;
    e->layer = layer;
    return SK_OK;
}

/* The nodes of a task: these, less those of the other half of a backward pass. */
static const sk_ints *nodes_of(const sk_emit *e, sk_task t)
{
    return &e->of_chunk[2 * t.chunk + (t.work != SK_WORK_F)];
}

static bool in_task(const sk_emit *e, const sk_node *n, sk_task t)
{
    return t.work < SK_WORK_I || e->late[n->id] == (t.work == SK_WORK_W);
}

static void list_layers(sk_emit *e, sk_task t)
{
    const sk_ints *nodes = nodes_of(e, t);
    e->layers.n = 0;
    for (int i = 0; i < nodes->n; i++) {
        const sk_node *node = e->g->nodes.v[nodes->v[i]];
        int n = e->layers.n;
        if (in_task(e, node, t) && (!n || e->layers.v[n - 1] != node->layer))
            *sk_push(e->tmp, &e->layers) = node->layer;
    }
}

/* A task begins when all that it reads of other stages is there. */
static sk_status receive_all(sk_emit *e, sk_task t)
{
    const sk_ints *nodes = nodes_of(e, t);
    for (int i = 0; i < nodes->n; i++) {
        const sk_node *n = e->g->nodes.v[nodes->v[i]];
        for (int k = 0; k < n->n_in && in_task(e, n, t); k++) {
            const sk_tensor *x = n->in[k];
            if (!x->from || e->sp->stage[x->from->id] == e->p->stage) continue;
            sk_state now;
            if (sk_emit_source(e, x, &now) < 0) SK_TRY(sk_emit_receive(e, x));
        }
    }
    return SK_OK;
}

/* A program lies in memory as a whole, about 3 KiB an instruction while it is made. */
static sk_status is_short(const sk_emit *e, int64_t n)
{
    if (n <= MOST_INSTS) return SK_OK;
    return sk_fail(
        SK_ECONF,
        "layout: the program of rank %d would have over %d instructions or buffers; "
        "take fewer micro-batches (there are %d), slices, turns or tiles, or more stages",
        e->p->rank, MOST_INSTS, e->p->n_micro);
}

static sk_status task(sk_emit *e, sk_task t)
{
    const sk_ints *nodes = nodes_of(e, t);
    int layer = -1;
    e->work = t.work;
    e->phase = t.work == SK_WORK_F ? SK_FORWARD : SK_BACKWARD;
    e->micro = t.micro;
    e->layer = 0;
    e->gathered_layer = -1;
    list_layers(e, t);
    SK_TRY(receive_all(e, t));
    for (int i = 0; i < nodes->n; i++) {
        const sk_node *n = e->g->nodes.v[nodes->v[i]];
        if (!in_task(e, n, t)) continue;
        if (layer >= 0 && n->layer != layer) sk_emit_task_end(e);
        layer = n->layer;
        sk_emit_unpack_for(e, n);
        if (!e->region_of || !e->region_of[n->id]) SK_TRY(sk_emit_node(e, n));
        else if (e->regions.v[e->region_of[n->id] - 1].nodes[n->phase].v[0] == n->id)
            SK_TRY(sk_emit_region(e, n)); /* all of it, at its first node */
        if (e->training && t.work == SK_WORK_F) sk_emit_pieces(e, n);
        sk_emit_pack(e, n);
        SK_TRY(is_short(e, e->p->insts.n));
        SK_TRY(is_short(e, e->p->bufs.n));
    }
    sk_emit_task_end(e);
    if (e->training && t.work == SK_WORK_F) sk_emit_drop(e, nodes);
    sk_emit_pack_end(e, nodes);
    return SK_OK;
}

/* --- the two sections --- */

static void section_begin(sk_emit *e, bool training)
{
    e->training = training;
    for (int w = 0; w < SK_N_SUMS; w++) e->sum_begun[w] = sk_many(e->tmp, char, e->p->n_micro + 1);
    memset(e->hand, 0, sizeof *e->hand * (size_t)(e->g->tensors.n * e->p->n_micro));
    e->tasks = sk_many(e->tmp, sk_tasks, e->sp->n_stages);
    for (int s = 0; s < e->sp->n_stages; s++) e->tasks[s].arena = e->tmp;
}

static sk_status do_tasks(sk_emit *e)
{
    const sk_tasks *mine = &e->tasks[e->p->stage];
    SK_TRY(sk_emit_cross_begin(e));
    for (int i = 0; i < mine->n; i++) {
        e->task = i;
        if (e->training) sk_emit_versions_at(e, i);
        if (mine->v[i].work == SK_WORK_U) sk_emit_apart(e);
        else SK_TRY(task(e, mine->v[i]));
    }
    sk_emit_cross_end(e);
    return SK_OK;
}

static sk_status train_section(sk_emit *e)
{
    sk_pipe pipe = {.n_stages = e->sp->n_stages,
                    .n_chunks = e->sp->n_chunks / e->sp->n_stages,
                    .n_micro = e->p->n_micro,
                    .file = e->l->schedule};
    section_begin(e, true);
    SK_TRY(e->schedule->emit(&pipe, e->tasks));
    SK_TRY(sk_schedule_check(e->schedule, &pipe, e->tasks));
    e->p->n_updates = 1;
    SK_TRY(sk_emit_versions(e));
    SK_TRY(sk_emit_late(e));
    SK_TRY(do_tasks(e));
    sk_emit_grads_end(e);
    sk_emit_update(e);
    return SK_OK;
}

/* All chunks of a micro-batch, then the next. */
static sk_status forward_section(sk_emit *e)
{
    section_begin(e, false);
    for (int m = 0; m < e->p->n_micro; m++)
        for (int c = 0; c < e->sp->n_chunks; c++)
            sk_task_add(&e->tasks[e->place[c]], SK_WORK_F, m, c);
    SK_TRY(do_tasks(e));
    if (e->g->loss) sk_emit_report(e);
    return SK_OK;
}

/* --- setting up --- */

static sk_status no_schedule(const char *name)
{
    const char *names[64];
    int n = 0;
    while (n < 64 && sk_schedule_parts[n]) names[n] = sk_schedule_parts[n]->name, n++;
    const char *near = sk_nearest(name, names, n);
    return sk_fail(SK_ECONF, "layout: no schedule is called '%s'%s%s%s", name,
                   near ? " (did you mean '" : "; see skein list schedule", near ? near : "",
                   near ? "'?)" : "");
}

/* What the passes ask about a tensor again and again: one look at the graph answers it. */
static void index_tensors(sk_emit *e)
{
    int all = e->g->tensors.n;
    e->read_by = sk_many(e->tmp, uint64_t, all);
    e->read_forward = sk_many(e->tmp, uint64_t, all);
    e->as_part = sk_many(e->tmp, unsigned, all);
    e->reader = sk_many(e->tmp, int, all);
    e->grad_made = sk_many(e->tmp, sk_state, all);
    e->grad_parts = sk_many(e->tmp, int, all);
    for (int i = e->g->nodes.n - 1; i >= 0; i--) { /* the first contribution has the last word */
        const sk_node *n = e->g->nodes.v[i];
        for (int k = 0; k < n->n_in; k++) {
            int t = n->in[k]->id;
            e->read_by[t] |= 1ull << e->sp->stage[i];
            if (n->phase == SK_FORWARD) e->read_forward[t] |= 1ull << e->sp->stage[i];
            if (n->in[k]->from && n->in[k]->from->phase == n->phase &&
                e->sp->stage[i] == e->p->stage &&
                !sk_state_equal(&e->sp->node[i].in[k], &e->sp->made[t]))
                e->reader[t] = i + 1;
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

/* Backward nodes that only weights' gradients of their own layer wait for: the weight half of a
 * backward pass. */
static void find_late(sk_emit *e)
{
    char *early = sk_many(e->tmp, char, e->g->tensors.n + 1);
    e->late = sk_many(e->tmp, char, e->g->nodes.n + 1);
    for (int i = e->g->nodes.n - 1; i >= 0; i--) {
        const sk_node *n = e->g->nodes.v[i];
        e->late[i] = n->phase == SK_BACKWARD;
        for (int o = 0; o < n->n_out; o++)
            if (!n->into[o] && early[n->out[o]->id]) e->late[i] = 0;
        for (int k = 0; k < n->n_in && n->phase == SK_BACKWARD; k++) {
            const sk_node *from = n->in[k]->from;
            if (!e->late[i] || (from && from->layer != n->layer)) early[n->in[k]->id] = 1;
        }
    }
}

static void index_chunks(sk_emit *e)
{
    e->of_chunk = sk_many(e->tmp, sk_ints, 2 * e->sp->n_chunks);
    for (int i = 0; i < e->g->nodes.n; i++) {
        bool backward = e->g->nodes.v[i]->phase == SK_BACKWARD;
        *sk_push(e->tmp, &e->of_chunk[2 * e->sp->chunk[i] + backward]) = i;
    }
}

static bool makes(const sk_emit *e, const sk_tensor *sum)
{
    for (int i = 0; i < e->g->nodes.n; i++)
        for (int o = 0; o < e->g->nodes.v[i]->n_out; o++)
            if (e->g->nodes.v[i]->into[o] == sum && e->sp->stage[i] == e->p->stage) return true;
    return false;
}

/* A sum is counted where it is made, once along every axis that repeats it. */
static bool counts(const sk_emit *e, const sk_tensor *sum)
{
    const sk_state *s = &e->sp->made[sum->id];
    for (int a = 0; a < e->l->mesh.n; a++)
        if (a != e->l->stage_axis && s->how[a] == SK_WHOLE && e->p->coord[a]) return false;
    return true;
}

/* The cell of the batch at which this rank's piece of a micro-batch begins; -1: it has none. */
static int first_cell(const sk_emit *e, const sk_tensor *sum, int micro)
{
    const sk_state *made = &e->sp->made[sum->id];
    const char batch[] = {e->g->batch, 0};
    sk_state s = {0};
    for (int a = 0; a < e->l->mesh.n; a++)
        if (made->how[a] == SK_PSUM) s.how[a] = SK_SPLIT;
    sk_extent box = sk_piece_of(e->g, e->l, batch, &s, e->p->coord, micro, e->p->n_micro);
    return box.size[0] ? box.cells[0][0] : -1;
}

static void plan_sum(sk_emit *e, int which)
{
    const sk_tensor *t = e->g->sum[which];
    sk_sum_plan *s = &e->p->sums[which];
    sk_arena *a = e->p->arena;
    if (!t || !makes(e, t)) return;
    bool apart = e->l->canonical && which == SK_SUM_LOSS;
    s->counts = counts(e, t);
    s->n = apart ? e->p->n_micro : 1;
    s->buf = sk_many(a, int, s->n);
    s->cell = apart ? sk_many(a, int, s->n) : NULL;
    for (int i = 0; i < s->n; i++) {
        s->buf[i] = sk_emit_piece(e, t, SK_WIRE, &(sk_state){0}, -1);
        e->p->bufs.v[s->buf[i]].keep = true;
        if (apart) s->cell[i] = first_cell(e, t, i);
    }
}

/* Words of a layout that are good alone, and not for this device, schedule or dtype. */
static sk_status goes_together(const sk_emit *e)
{
    if (e->l->replica && e->p->gpu)
        return sk_fail(SK_ECONF, "layout: replica keeps one copy of weights for the ranks of a "
                                 "host, and GPUs have no memory in common; leave it out, or use "
                                 "device=cpu");
    if (e->schedule->apart && e->l->tiles > 1)
        return sk_fail(
            SK_ECONF,
            "layout: schedule %s updates weights within a step, while their tiles are on "
            "the way; leave out tiles, or take another schedule",
            e->schedule->name);
    if (e->l->canonical && e->l->tiles > 1)
        return sk_fail(SK_ECONF, "layout: tiles sum in another order than order=canonical does; "
                                 "leave one of the two out");
    if (e->l->canonical && e->l->slices > 1)
        return sk_fail(SK_ECONF,
                       "layout: in canonical order the sum over a batch is a tree, and slices=%d "
                       "would add it up slice by slice; leave out slices, or take order=fast",
                       e->l->slices);
    for (int i = 0; e->l->canonical && i < e->p->params.n; i++)
        if (sk_narrow(e->p->params.v[i].tensor))
            return sk_fail(SK_ECONF,
                           "order=canonical gives the same bits on any layout in f32, and "
                           "train.dtype is %s, whose sums are rounded where ranks meet",
                           sk_dtype_name(e->p->params.v[i].tensor->type));
    return SK_OK;
}

static sk_status prepare(sk_emit *e)
{
    sk_program *p = e->p;
    int64_t nodes = 0;
    for (int i = 0; i < e->g->nodes.n; i++) nodes += e->sp->stage[i] == p->stage;
    SK_TRY(is_short(e, nodes * p->n_micro));
    e->hand = sk_many(e->tmp, sk_at_hand *, e->g->tensors.n * p->n_micro);
    e->param_of = sk_many(e->tmp, int, e->g->tensors.n + 1);
    index_tensors(e);
    index_chunks(e);
    find_late(e);
    sk_emit_again_open(e);
    sk_emit_regions_open(e);
    SK_TRY(is_short(e, nodes * p->n_micro + sk_emit_regions_insts(e, MOST_INSTS)));
    sk_emit_pieces_open(e);
    sk_emit_pack_open(e);
    sk_emit_cross_open(e);
    SK_TRY(sk_emit_codecs(e));
    SK_TRY(sk_emit_params(e));
    SK_TRY(goes_together(e));
    for (int w = 0; w < SK_N_SUMS; w++) {
        if (e->g->sum[w]) p->n_sums = w + 1;
        plan_sum(e, w);
    }
    return SK_OK;
}

/* The schedule says how many chunks of layers a stage has, and where each sits. */
static sk_status place_chunks(sk_emit *e)
{
    const sk_layout *l = e->l;
    int stages = l->stage_axis < 0 ? 1 : l->mesh.size[l->stage_axis];
    const sk_schedule *s = sk_schedule_find(l->schedule);
    if (!s) return no_schedule(l->schedule);
    int each = s->chunks ? s->chunks : l->chunks ? l->chunks : 1;
    if (l->chunks && l->chunks != each)
        return sk_fail(SK_ECONF, "layout: schedule %s has %d chunks a stage, not %d", s->name, each,
                       l->chunks);
    if (stages > MOST_STAGES || each > MOST_CHUNKS)
        return sk_fail(SK_ECONF, "layout: %d stages of %d chunks; at most %d of %d are supported",
                       stages, each, MOST_STAGES, MOST_CHUNKS);
    if (e->p->n_micro > MOST_MICRO)
        return sk_fail(SK_ECONF, "layout: %d micro-batches; at most %d are supported",
                       e->p->n_micro, MOST_MICRO);
    if (each * stages > MOST_TASKS / e->p->n_micro)
        return sk_fail(SK_ECONF,
                       "layout: %d stages of %d chunks with %d micro-batches are over %d tasks; "
                       "take fewer of one of them",
                       stages, each, e->p->n_micro, MOST_TASKS);
    e->schedule = s;
    int n = each * stages;
    e->place = sk_many(e->tmp, int, n);
    for (int c = 0; c < n; c++) e->place[c] = sk_schedule_place(s, stages, c);
    return sk_spread_graph(e->p->arena, e->g, l, e->place, n, &e->p->spread);
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

static sk_status write_all(sk_emit *e)
{
    sk_program *p = e->p;
    SK_TRY(place_chunks(e));
    SK_TRY(prepare(e));
    if (p->optim) SK_TRY(train_section(e));
    p->n_train = p->insts.n;
    if (e->opts->validate || !p->optim) SK_TRY(forward_section(e));
    if (!e->g->loss && e->g->logits) { /* sampling reads them */
        sk_state whole = sk_state_settled(&p->spread.made[e->g->logits->id]);
        e->micro = 0;
        SK_TRY(sk_emit_need(e, e->g->logits, &whole, &p->logits));
    }
    sk_place_waits(p, e->tmp);
    SK_TRY(sk_choose_algorithms(e));
    sk_emit_tiers(e);
    return SK_OK;
}

/* Lists that grew beside what is given up, at the lengths they have now. */
#define FIX(arena, list)                                                            \
    ((list)->v = sk_grow((arena), (list)->v, sizeof *(list)->v * (size_t)(list)->n, \
                         sizeof *(list)->v * (size_t)((list)->cap = (list)->n)))

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
                      .gpu = o->gpu,
                      .logits = -1};
    p->n_micro = o->n_micro ? o->n_micro : l->n_micro ? l->n_micro : 1;
    sk_mesh_coords(&l->mesh, rank, p->coord);
    p->stage = l->stage_axis < 0 ? 0 : p->coord[l->stage_axis];
    sk_arena tmp = {0};
    sk_emit e = {.p = p,
                 .tmp = &tmp,
                 .g = g,
                 .l = &p->layout,
                 .opts = o,
                 .sp = &p->spread,
                 .joined = -1,
                 .task = -1,
                 .gathered_layer = -1};
    sk_status st = write_all(&e);
    if (!st && p->gpu) sk_emit_rooms(&e);
    if (!st) sk_number(p);
    FIX(a, &p->insts);
    FIX(a, &p->bufs);
    FIX(a, &p->calls);
    sk_arena_end(&tmp);
    if (st) return sk_trail(st, SK_HERE);
    count_flops(p);
    sk_plan_memory(p);
    *out = p;
    return SK_OK;
}
