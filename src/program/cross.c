/* cross.c - tensors that go from stage to stage.
 *
 * A message is sent when its tensor is made and received when it is first needed.  Between
 * two ranks messages keep their order, so a receiver takes those before it first, in the order in
 * which the other stage's tasks send them: the schedule says that for every stage.  A sender
 * may be two tasks ahead of each receiver, or more where that would end in a knot (window.c), and
 * keeps the buffers of its messages that long; with several chunks a stage, whose messages share a
 * lane, as far as a lane goes: two stages that each wait for the other to receive would wait for
 * ever. */
#include "program/emit.h"

#include <string.h>

static int rank_of_stage(const sk_emit *e, int stage)
{
    int coord[SK_MAX_AXES];
    memcpy(coord, e->p->coord, sizeof coord);
    coord[e->l->stage_axis] = stage;
    return sk_mesh_rank(&e->l->mesh, coord);
}

static int64_t tag_of(const sk_emit *e, int tensor, int micro)
{
    return (int64_t)tensor * e->p->n_micro + micro;
}

uint64_t sk_emit_readers(const sk_emit *e, const sk_tensor *t)
{
    return e->training ? e->read_by[t->id] : e->read_forward[t->id];
}

/* --- sending --- */

static sk_lane *lane_to(sk_emit *e, int peer)
{
    for (int i = 0; i < e->lanes.n; i++)
        if (e->lanes.v[i].peer == peer) return &e->lanes.v[i];
    sk_lane *l = sk_push(e->tmp, &e->lanes);
    *l = (sk_lane){.peer = peer};
    return l;
}

/* Wait until the first `count` messages of a lane are there.  The oldest first: the buffer of each
 * must live until it has arrived. */
static void arrived(sk_emit *e, sk_lane *l, int count)
{
    while (l->arrived < count) {
        sk_inst *in = sk_emit_inst(e, SK_DO_SENT);
        in->peer = l->peer;
        in->in[0] = l->recent[l->arrived % SK_LANE];
        in->sent = ++l->arrived;
    }
}

void sk_emit_post(sk_emit *e, int peer, int64_t tag, int buf)
{
    sk_lane *l = lane_to(e, peer);
    arrived(e, l, l->sends - e->window + 1);
    sk_inst *in = sk_emit_inst(e, SK_DO_SEND);
    in->peer = peer;
    in->in[0] = buf;
    in->tag = tag;
    in->wire = e->p->bufs.v[buf].bytes;
    l->recent[l->sends++ % SK_LANE] = buf;
}

void sk_emit_take(sk_emit *e, int peer, int64_t tag, int buf)
{
    sk_inst *in = sk_emit_inst(e, SK_DO_RECV);
    in->peer = peer;
    in->out[0] = buf;
    in->tag = tag;
}

void sk_emit_arrived(sk_emit *e, int peer)
{
    sk_lane *l = lane_to(e, peer);
    arrived(e, l, l->sends);
}

sk_status sk_emit_send(sk_emit *e, const sk_tensor *t)
{
    uint64_t to = sk_emit_readers(e, t) & ~(1ull << e->p->stage);
    if (!to) return SK_OK;
    sk_state settled = sk_state_settled(&e->sp->made[t->id]);
    int buf = -1;
    SK_TRY(sk_emit_need(e, t, &settled, &buf));
    for (int s = 0; s < e->sp->n_stages; s++)
        if (to >> s & 1) sk_emit_post(e, rank_of_stage(e, s), tag_of(e, t->id, e->micro), buf);
    return SK_OK;
}

/* --- receiving --- */

static void receive_one(sk_emit *e, int stage)
{
    sk_inbox *box = &e->inbox[stage];
    int micro = e->micro;
    const sk_tensor *t = e->g->tensors.v[box->v[box->taken].tensor];
    sk_state settled = sk_state_settled(&e->sp->made[t->id]);
    e->micro = box->v[box->taken++].micro;
    int buf = sk_emit_piece(e, t, SK_ACTS, &settled, e->micro);
    sk_emit_take(e, rank_of_stage(e, stage), tag_of(e, t->id, e->micro), buf);
    sk_emit_have(e, t, &settled, buf);
    e->micro = micro;
}

sk_status sk_emit_receive(sk_emit *e, const sk_tensor *t)
{
    int stage = e->sp->stage[t->from->id];
    sk_inbox *box = &e->inbox[stage];
    while (stage != e->p->stage && box->taken < box->n) {
        bool this = box->v[box->taken].tensor == t->id && box->v[box->taken].micro == e->micro;
        receive_one(e, stage);
        if (this) return SK_OK;
    }
    return sk_fail(SK_EBUG, "'%s' of micro-batch %d is needed on stage %d before it is made",
                   t->name, e->micro, e->p->stage);
}

/* --- what other stages send me, in which order --- */

static sk_phase phase_of(sk_duty w) { return w == SK_WORK_F ? SK_FORWARD : SK_BACKWARD; }

/* What a chunk makes for me in one phase, in graph order. */
static void index_crossing(const sk_emit *e, sk_ints *by_chunk)
{
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *n = e->g->nodes.v[i];
        if (e->sp->stage[i] == e->p->stage) continue;
        for (int o = 0; o < n->n_out; o++)
            if (!n->into[o] && sk_emit_readers(e, n->out[o]) >> e->p->stage & 1)
                *sk_push(e->tmp, &by_chunk[2 * e->sp->chunk[i] + (int)n->phase]) = n->out[o]->id;
    }
}

sk_status sk_emit_cross_begin(sk_emit *e)
{
    SK_TRY(sk_emit_window(e));
    sk_arena *a = e->tmp;
    sk_ints *by_chunk = sk_many(a, sk_ints, 2 * e->sp->n_chunks);
    memset(e->inbox, 0, sizeof *e->inbox * (size_t)e->sp->n_stages);
    index_crossing(e, by_chunk);
    for (int s = 0; s < e->sp->n_stages; s++) {
        if (s == e->p->stage) continue;
        for (int k = 0; k < e->tasks[s].n; k++) {
            sk_task t = e->tasks[s].v[k];
            if (t.work >= SK_WORK_W) continue; /* weights' gradients go nowhere */
            const sk_ints *made = &by_chunk[2 * t.chunk + (int)phase_of(t.work)];
            for (int i = 0; i < made->n; i++)
                *sk_push(a, &e->inbox[s]) = (sk_message){made->v[i], t.micro};
        }
    }
    return SK_OK;
}

void sk_emit_cross_end(sk_emit *e)
{
    for (int i = 0; i < e->lanes.n; i++) arrived(e, &e->lanes.v[i], e->lanes.v[i].sends);
    e->lanes.n = 0; /* counts are by section */
}

/* The most messages that one task sends to one stage. */
static int messages(const sk_emit *e)
{
    int most = 1, stages = e->sp->n_stages;
    int *sent = sk_many(e->tmp, int, 2 * e->sp->n_chunks * stages);
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *n = e->g->nodes.v[i];
        int *task = sent + (2 * e->sp->chunk[i] + (int)n->phase) * stages;
        for (int o = 0; o < n->n_out; o++)
            for (int s = 0; s < stages; s++)
                if (!n->into[o] && s != e->sp->stage[i] && e->read_by[n->out[o]->id] >> s & 1 &&
                    ++task[s] > most)
                    most = task[s];
    }
    return most;
}

void sk_emit_cross_open(sk_emit *e)
{
    e->inbox = sk_many(e->tmp, sk_inbox, e->sp->n_stages);
    e->window = e->sp->n_chunks > e->sp->n_stages ? SK_LANE : 2 * messages(e);
    if (e->window > SK_LANE) e->window = SK_LANE;
}
