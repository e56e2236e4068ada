/* stage_messages.c - tensors that go from stage to stage: a message is sent when its tensor is
 * computed, and received at the beginning of a task that reads it.  messages.c decides in which
 * order messages are received, and where their arrival is waited for. */
#include "program/lowering.h"

#include <string.h>

int sk_lower_rank_of_stage(const sk_lowering *e, int stage)
{
    int coord[SK_MAX_AXES];
    memcpy(coord, e->p->coord, sizeof coord);
    coord[e->l->stage_axis] = stage;
    return sk_mesh_rank(&e->l->mesh, coord);
}

int64_t sk_message_tag(const sk_lowering *e, int tensor, int micro)
{
    return (int64_t)tensor * e->plan.n_listed + micro;
}

const sk_stages *sk_lower_readers(const sk_lowering *e, const sk_tensor *t)
{
    return e->training ? &e->plan.read_by[t->id] : &e->plan.read_forward[t->id];
}

void sk_lower_post_send(sk_lowering *e, int peer, int64_t tag, int buf)
{
    sk_inst *in = sk_lower_inst(e, SK_DO_SEND);
    in->peer = peer;
    in->in[0] = buf;
    in->tag = tag;
    in->wire = e->p->bufs.v[buf].bytes;
}

void sk_lower_recv(sk_lowering *e, int peer, int64_t tag, int buf)
{
    sk_inst *in = sk_lower_inst(e, SK_DO_RECV);
    in->peer = peer;
    in->out[0] = buf;
    in->tag = tag;
}

void sk_lower_wait_sent(sk_lowering *e, int peer)
{
    sk_inst *in = sk_lower_inst(e, SK_DO_SENT);
    in->peer = peer;
    in->sent = SK_SENT_ALL;
}

sk_status sk_lower_send(sk_lowering *e, const sk_tensor *t)
{
    const sk_stages *to = sk_lower_readers(e, t);
    if (!sk_stages_others(to, e->p->stage)) return SK_OK;
    sk_state settled = sk_state_settled(&e->sp->made[t->id]);
    int buf = -1;
    SK_TRY(sk_lower_need(e, t, &settled, &buf));
    for (int s = 0; s < e->sp->n_stages; s++)
        if (s != e->p->stage && sk_stages_has(to, s))
            sk_lower_post_send(e, sk_lower_rank_of_stage(e, s),
                               sk_message_tag(e, t->id, e->at.micro), buf);
    return SK_OK;
}

sk_status sk_lower_receive(sk_lowering *e, const sk_tensor *t)
{
    int stage = e->sp->stage[t->from->id];
    sk_state settled = sk_state_settled(&e->sp->made[t->id]);
    if (stage == e->p->stage)
        return sk_fail(SK_EBUG, "'%s' of micro-batch %d is needed on stage %d before it is made",
                       t->name, e->at.micro, stage);
    int buf = sk_lower_piece(e, t, SK_ACTS, &settled, e->at.micro);
    sk_lower_recv(e, sk_lower_rank_of_stage(e, stage), sk_message_tag(e, t->id, e->at.micro), buf);
    sk_lower_have(e, t, &settled, buf);
    return SK_OK;
}
