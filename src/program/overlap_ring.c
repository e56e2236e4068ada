/* overlap_ring.c - products in the shards of a ring, where one sequence is cut in time (sequence
 * parallelism of a micro-batch with one row).
 *
 * An all-gather along time becomes p - 1 steps in which each rank passes on the shard that it has
 * got last, and a product works on one shard while the next one comes.  A reduce-scatter becomes p
 * steps in which a rank makes its term of one shard, adds what has come for it and passes the sum
 * on: the shard of a rank is the last that it works on (Wang et al. 2023, decomposition;
 * "collective matmul").  Bytes are those of the calls.
 *
 *     gathered:  own shard;  send shard 0, work on 0, take 1;  send 1, work on 1, take 2 ...
 *     reduced:   work, send;  work, take, add, send;  ...  work, take, add: the result
 *
 * Where a run does both, shards that are gathered come one step early.  What is summed over time
 * (the gradient of a weight) is one product behind them. */
#include "program/overlap.h"

typedef struct ring {
    sk_lowering *e;
    const sk_inst *old;
    sk_overlap_run *run;
    int p, me, next, prev;
    bool reduces;
} ring;

static const sk_call_plan *call_at(const ring *x, int pc)
{
    return &x->e->p->calls.v[x->old[pc].call];
}

static int64_t tag_of(const ring *x, int buf, int step)
{
    const sk_tensor *t = x->e->p->bufs.v[buf].tensor;
    return ((int64_t)(step + 1) << 40) + sk_message_tag(x->e, t->id, x->run->v[0].op->micro);
}

static int shard(const ring *x, int whole, int number)
{
    return sk_rows_part(x->e, &x->run->chunks, whole, (number + 2 * x->p) % x->p);
}

/* --- gathers --- */

typedef enum hop { OWN, SEND, TAKE } hop;

static void one_gather(ring *x, int pc, hop what, int step)
{
    const sk_call_seg s = call_at(x, pc)->segs[0];
    if (what == OWN) sk_lower_move(x->e, SK_DO_SLICE, s.src, shard(x, s.dst, x->me));
    if (what == SEND)
        sk_lower_post_send(x->e, x->next, tag_of(x, s.dst, step), shard(x, s.dst, x->me - step));
    if (what == TAKE)
        sk_lower_recv(x->e, x->prev, tag_of(x, s.dst, step), shard(x, s.dst, x->me - step - 1));
}

static void gathers(ring *x, hop what, int step)
{
    if (what != OWN && step + 1 >= x->p) return;
    for (int k = 0; k < x->run->n; k++)
        for (int g = 0; g < x->run->v[k].gathers.n; g++)
            one_gather(x, x->run->v[k].gathers.v[g], what, step);
}

/* --- work, and sums --- */

static void add_up(ring *x, const sk_overlap_stop *s, int number, int step)
{
    sk_lowering *e = x->e;
    const sk_call_seg seg = call_at(x, s->reduce)->segs[0];
    int mine = shard(x, seg.src, number);
    const sk_buffer b = e->p->bufs.v[mine];
    if (step) {
        int come = sk_lower_buffer(e, b.name, b.tensor, SK_ACTS, b.type, b.box);
        sk_lower_recv(e, x->prev, tag_of(x, seg.dst, step - 1), come);
        sk_lower_move(e, SK_DO_ADD, come, mine);
    }
    if (step + 1 < x->p) sk_lower_post_send(e, x->next, tag_of(x, seg.dst, step), mine);
    else sk_lower_move(e, SK_DO_SLICE, mine, seg.dst);
}

static void work(ring *x, int number, int step)
{
    sk_chunks *chunks = &x->run->chunks;
    for (int k = 0; k < x->run->n; k++) {
        const sk_overlap_stop *s = &x->run->v[k];
        if (s->whole) continue;
        sk_rows_inst(x->e, chunks, *s->op, number, step);
        if (s->copy < 0) continue;
        sk_inst copy = sk_inst_like(s->op, SK_DO_SLICE);
        copy.in[0] = x->old[s->copy].in[0];
        copy.out[0] = x->old[s->copy].out[0];
        sk_rows_inst(x->e, chunks, copy, number, step);
    }
    for (int k = 0; k < x->run->n; k++)
        if (x->run->v[k].reduce >= 0) add_up(x, &x->run->v[k], number, step);
}

void sk_overlap_ring(sk_lowering *e, const sk_inst *old, sk_overlap_run *r)
{
    int axis = r->along - SK_ALONG_RING;
    ring x = {.e = e, .old = old, .run = r, .p = e->l->mesh.size[axis], .me = e->p->coord[axis]};
    x.next = sk_ring_neighbour(e, axis, 1);
    x.prev = sk_ring_neighbour(e, axis, -1);
    for (int k = 0; k < r->n; k++) x.reduces |= r->v[k].reduce >= 0;
    sk_lower_stand_at(e, r->v[0].op);
    gathers(&x, OWN, 0);
    if (x.reduces) {
        gathers(&x, SEND, 0);
        gathers(&x, TAKE, 0);
    }
    for (int step = 0; step < x.p; step++) {
        gathers(&x, SEND, step + x.reduces);
        work(&x, (x.me - step - x.reduces + 2 * x.p) % x.p, step);
        gathers(&x, TAKE, step + x.reduces);
    }
    sk_lower_wait_sent(e, x.next);
}
