/* ring_attention.c - the pass for ops whose operands travel around a ring (Liu et al. 2023, ring
 * attention).
 *
 * Some operands are needed complete and are split over an axis "by ring": `lower` writes one op on
 * the shards of this rank, and marks it (inst.ring).  Each rank begins with its own shard and
 * passes on what it has, so that after p steps every rank has seen all shards; the op accumulates
 * its results from step to step.  Results that belong to the travelling shards (the gradient of
 * keys) travel behind them, and one step more, back to their owner.  What goes to the next rank in
 * step j is sent before the work of step j, so that both overlap. */
#include "program/lowering.h"

#include <string.h>

typedef struct ring {
    sk_lowering *e;
    const sk_inst *op; /* as it was written */
    int axis, p, next, prev;
    int in[SK_MAX_OPERANDS], out[SK_MAX_OUT]; /* of the current step */
} ring;

int sk_ring_neighbour(const sk_lowering *e, int axis, int delta)
{
    int coord[SK_MAX_AXES], p = e->l->mesh.size[axis];
    memcpy(coord, e->p->coord, sizeof coord);
    coord[axis] = (coord[axis] + delta + p) % p;
    return sk_mesh_rank(&e->l->mesh, coord);
}

/* The shard of the rank that is `step` places before this one. */
static int shard_of_step(const ring *r, const sk_tensor *t, const sk_state *s, int step)
{
    sk_lowering *e = r->e;
    int *coord = &e->p->coord[r->axis], mine = *coord;
    *coord = (mine - step + r->p) % r->p;
    int buf = sk_lower_piece(e, t, SK_ACTS, s, r->op->micro);
    *coord = mine;
    return buf;
}

static int64_t tag_of(const ring *r, const sk_tensor *t, int step)
{
    return ((int64_t)(step + 1) << 40) + sk_message_tag(r->e, t->id, r->op->micro);
}

/* Sends the travelling operands on, and receives the next ones. */
static void send_operands(ring *r, int step)
{
    const sk_node *n = r->op->node;
    for (int i = 0; i < n->n_in; i++)
        if (n->gathered_in[i])
            sk_lower_post_send(r->e, r->next, tag_of(r, n->in[i], step), r->in[i]);
}

static void take_operands(ring *r, int step)
{
    const sk_node *n = r->op->node;
    for (int i = 0; i < n->n_in; i++) {
        if (!n->gathered_in[i]) continue;
        r->in[i] = shard_of_step(r, n->in[i], &r->e->sp->node[n->id].in[i], step + 1);
        sk_lower_recv(r->e, r->prev, tag_of(r, n->in[i], step), r->in[i]);
    }
}

/* The last to arrive is this rank's own shard, in the op's original result. */
static void pass_results(ring *r, int step)
{
    const sk_node *n = r->op->node;
    for (int o = 0; o < n->n_out; o++) {
        if (!n->gathered_out[o]) continue;
        const sk_state *s = &r->e->sp->node[n->id].out[o];
        sk_lower_post_send(r->e, r->next, tag_of(r, n->out[o], step), r->out[o]);
        r->out[o] = step + 1 < r->p ? shard_of_step(r, n->out[o], s, step + 1) : r->op->out[o];
        sk_lower_recv(r->e, r->prev, tag_of(r, n->out[o], step), r->out[o]);
    }
}

static void work(const ring *r, int step)
{
    sk_inst in = *r->op;
    in.part = step;
    in.parts = r->p;
    in.add = step ? (1u << in.node->n_out) - 1 : 0;
    memcpy(in.in, r->in, sizeof in.in);
    memcpy(in.out, r->out, sizeof in.out);
    *sk_push(r->e->tmp, &r->e->p->insts) = in;
}

static void write_ring(sk_lowering *e, const sk_inst *op)
{
    const sk_node *n = op->node;
    ring r = {.e = e, .op = op, .axis = op->ring, .p = e->l->mesh.size[op->ring]};
    sk_assert(!op->add && op->parts == 1);
    r.next = sk_ring_neighbour(e, r.axis, 1);
    r.prev = sk_ring_neighbour(e, r.axis, -1);
    memcpy(r.in, op->in, sizeof r.in);
    memcpy(r.out, op->out, sizeof r.out);
    for (int o = 0; o < n->n_out; o++)
        if (n->gathered_out[o])
            r.out[o] = shard_of_step(&r, n->out[o], &e->sp->node[n->id].out[o], 0);
    sk_lower_stand_at(e, op);
    for (int step = 0; step < r.p; step++) {
        bool more = step + 1 < r.p;
        if (more) send_operands(&r, step);
        work(&r, step);
        if (more) take_operands(&r, step);
        pass_results(&r, step);
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
