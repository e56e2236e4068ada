/* ring.c - one node over pieces that go round (Liu et al. 2023, ring attention).
 *
 * Some operands are needed whole and are split over an axis "by ring".  Each rank begins with its
 * own piece and passes on what it has, so that after p turns all have been everywhere; the op
 * carries its results from turn to turn.  Results that belong to the travelling pieces (the
 * gradient of keys) travel behind them, and one turn more, home.  What goes to the next rank in
 * turn j is sent before the work of turn j, so that both go on at once. */
#include "program/emit.h"

#include <string.h>

typedef struct ring {
    const sk_node *n;
    int axis, p, next, prev;
    int in[SK_MAX_IN], out[SK_MAX_OUT];
} ring;

static int neighbour(const sk_emit *e, int axis, int delta)
{
    int coord[SK_MAX_AXES], p = e->l->mesh.size[axis];
    memcpy(coord, e->p->coord, sizeof coord);
    coord[axis] = (coord[axis] + delta + p) % p;
    return sk_mesh_rank(&e->l->mesh, coord);
}

/* The piece of the rank `turn` places before me. */
static int piece_of_turn(sk_emit *e, const ring *r, const sk_tensor *t, const sk_state *s, int turn)
{
    int *coord = &e->p->coord[r->axis], mine = *coord;
    *coord = (mine - turn + r->p) % r->p;
    int buf = sk_emit_piece(e, t, SK_ACTS, s, e->at.micro);
    *coord = mine;
    return buf;
}

static int64_t tag_of(const sk_emit *e, const sk_tensor *t, int turn)
{
    return ((int64_t)(turn + 1) << 40) + (int64_t)t->id * e->p->n_micro + e->at.micro;
}

static const sk_state *in_state(const sk_emit *e, const ring *r, int i)
{
    return &e->sp->node[r->n->id].in[i];
}

static const sk_state *out_state(const sk_emit *e, const ring *r, int o)
{
    return &e->sp->node[r->n->id].out[o];
}

/* Operands that travel: on, and the next ones here. */
static void pass_operands(sk_emit *e, ring *r, int turn, bool send)
{
    for (int i = 0; i < r->n->n_in; i++) {
        const sk_tensor *t = r->n->in[i];
        if (!r->n->far_in[i]) continue;
        if (send) sk_emit_post(e, r->next, tag_of(e, t, turn), r->in[i]);
        else {
            r->in[i] = piece_of_turn(e, r, t, in_state(e, r, i), turn + 1);
            sk_emit_take(e, r->prev, tag_of(e, t, turn), r->in[i]);
        }
    }
}

static void pass_results(sk_emit *e, ring *r, int turn)
{
    for (int o = 0; o < r->n->n_out; o++) {
        const sk_tensor *t = r->n->out[o];
        if (!r->n->far_out[o]) continue;
        sk_emit_post(e, r->next, tag_of(e, t, turn), r->out[o]);
        r->out[o] = piece_of_turn(e, r, t, out_state(e, r, o), turn + 1);
        sk_emit_take(e, r->prev, tag_of(e, t, turn), r->out[o]);
    }
}

static void work(sk_emit *e, const ring *r, int turn)
{
    sk_inst *in = sk_emit_inst(e, SK_DO_OP);
    in->node = r->n;
    in->turn = turn;
    in->turns = r->p;
    in->add = turn ? (1u << r->n->n_out) - 1 : 0;
    memcpy(in->in, r->in, sizeof(int) * (size_t)r->n->n_in);
    memcpy(in->out, r->out, sizeof(int) * (size_t)r->n->n_out);
}

int sk_emit_ring_axis(const sk_emit *e, const sk_node *n)
{
    for (int a = 0; a < e->l->mesh.n; a++) {
        char letter = e->sp->node[n->id].letter[a];
        if (letter && e->l->by[a] == SK_BY_RING && sk_node_far(n, letter)) return a;
    }
    return -1;
}

sk_status sk_emit_ring(sk_emit *e, const sk_node *n, int axis)
{
    ring r = {.n = n, .axis = axis, .p = e->l->mesh.size[axis]};
    r.next = neighbour(e, axis, 1);
    r.prev = neighbour(e, axis, -1);
    for (int i = 0; i < n->n_in; i++)
        SK_TRY(sk_emit_need(e, n->in[i], in_state(e, &r, i), &r.in[i]));
    for (int o = 0; o < n->n_out; o++)
        r.out[o] = sk_emit_piece(e, n->out[o], SK_ACTS, out_state(e, &r, o), e->at.micro);
    for (int turn = 0; turn < r.p; turn++) {
        bool more = turn + 1 < r.p;
        if (more) pass_operands(e, &r, turn, true);
        work(e, &r, turn);
        if (more) pass_operands(e, &r, turn, false);
        pass_results(e, &r, turn);
    }
    sk_emit_arrived(e, r.next);
    for (int o = 0; o < n->n_out; o++) sk_emit_have(e, n->out[o], out_state(e, &r, o), r.out[o]);
    return SK_OK;
}
