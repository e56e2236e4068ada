/* ring_attention.c - the pass for ops over pieces that go round (Liu et al. 2023, ring attention).
 *
 * Some operands are needed whole and are split over an axis "by ring": `lower` writes one op on the
 * pieces of this rank, and marks it (inst.ring).  Each rank begins with its own piece and passes on
 * what it has, so that after p turns all have been everywhere; the op carries its results from turn
 * to turn.  Results that belong to the travelling pieces (the gradient of keys) travel behind them,
 * and one turn more, home.  What goes to the next rank in turn j is sent before the work of turn j,
 * so that both go on at once. */
#include "program/lowering.h"

#include <string.h>

typedef struct ring {
    sk_lowering *e;
    const sk_inst *op; /* as it was written */
    int axis, p, next, prev;
    int in[SK_MAX_IN], out[SK_MAX_OUT]; /* of the turn at work */
} ring;

static int neighbour(const sk_lowering *e, int axis, int delta)
{
    int coord[SK_MAX_AXES], p = e->l->mesh.size[axis];
    memcpy(coord, e->p->coord, sizeof coord);
    coord[axis] = (coord[axis] + delta + p) % p;
    return sk_mesh_rank(&e->l->mesh, coord);
}

/* The piece of the rank `turn` places before me. */
static int piece_of_turn(const ring *r, const sk_tensor *t, const sk_state *s, int turn)
{
    sk_lowering *e = r->e;
    int *coord = &e->p->coord[r->axis], mine = *coord;
    *coord = (mine - turn + r->p) % r->p;
    int buf = sk_lower_piece(e, t, SK_ACTS, s, r->op->micro);
    *coord = mine;
    return buf;
}

static int64_t tag_of(const ring *r, const sk_tensor *t, int turn)
{
    return ((int64_t)(turn + 1) << 40) + sk_message_tag(r->e, t->id, r->op->micro);
}

/* Operands that travel: on, and the next ones here. */
static void send_operands(ring *r, int turn)
{
    const sk_node *n = r->op->node;
    for (int i = 0; i < n->n_in; i++)
        if (n->gathered_in[i])
            sk_lower_post_send(r->e, r->next, tag_of(r, n->in[i], turn), r->in[i]);
}

static void take_operands(ring *r, int turn)
{
    const sk_node *n = r->op->node;
    for (int i = 0; i < n->n_in; i++) {
        if (!n->gathered_in[i]) continue;
        r->in[i] = piece_of_turn(r, n->in[i], &r->e->sp->node[n->id].in[i], turn + 1);
        sk_lower_recv(r->e, r->prev, tag_of(r, n->in[i], turn), r->in[i]);
    }
}

/* The last to come is my own piece, where the op was to write it. */
static void pass_results(ring *r, int turn)
{
    const sk_node *n = r->op->node;
    for (int o = 0; o < n->n_out; o++) {
        if (!n->gathered_out[o]) continue;
        const sk_state *s = &r->e->sp->node[n->id].out[o];
        sk_lower_post_send(r->e, r->next, tag_of(r, n->out[o], turn), r->out[o]);
        r->out[o] = turn + 1 < r->p ? piece_of_turn(r, n->out[o], s, turn + 1) : r->op->out[o];
        sk_lower_recv(r->e, r->prev, tag_of(r, n->out[o], turn), r->out[o]);
    }
}

static void work(const ring *r, int turn)
{
    sk_inst in = *r->op;
    in.part = turn;
    in.parts = r->p;
    in.add = turn ? (1u << in.node->n_out) - 1 : 0;
    memcpy(in.in, r->in, sizeof in.in);
    memcpy(in.out, r->out, sizeof in.out);
    *sk_push(r->e->tmp, &r->e->p->insts) = in;
}

static void write_ring(sk_lowering *e, const sk_inst *op)
{
    const sk_node *n = op->node;
    ring r = {.e = e, .op = op, .axis = op->ring, .p = e->l->mesh.size[op->ring]};
    sk_assert(!op->add && op->parts == 1);
    r.next = neighbour(e, r.axis, 1);
    r.prev = neighbour(e, r.axis, -1);
    memcpy(r.in, op->in, sizeof r.in);
    memcpy(r.out, op->out, sizeof r.out);
    for (int o = 0; o < n->n_out; o++)
        if (n->gathered_out[o])
            r.out[o] = piece_of_turn(&r, n->out[o], &e->sp->node[n->id].out[o], 0);
    sk_lower_stand_at(e, op);
    for (int turn = 0; turn < r.p; turn++) {
        bool more = turn + 1 < r.p;
        if (more) send_operands(&r, turn);
        work(&r, turn);
        if (more) take_operands(&r, turn);
        pass_results(&r, turn);
    }
    sk_lower_wait_sent(e, r.next);
}

static int write(void *ctx, const sk_inst *old, int pc)
{
    sk_lowering *e = ctx;
    if (old[pc].ring >= 0) write_ring(e, &old[pc]);
    else *sk_push(e->tmp, &e->p->insts) = old[pc];
    return pc + 1;
}

sk_status sk_ring_attention(sk_lowering *e)
{
    bool some = false;
    for (int pc = 0; pc < e->p->insts.n && !some; pc++) some = e->p->insts.v[pc].ring >= 0;
    return some ? sk_rewrite(e, write, e) : SK_OK;
}
