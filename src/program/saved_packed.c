/* saved_packed.c - saved results in fewer bits, without loss (Jain et al. 2018, "Gist").
 *
 * A forward result that only the backward pass still needs is stored for most of a step.  Two kinds
 * of results need less memory meanwhile:
 *
 *     signs    all its backward readers ask only whether an element is above 0 (sk_op.signs): one
 *              bit an element; what is read instead of it is 1 or 0
 *     zeros    many elements are 0 (SK_OP_ZEROS): a bit an element says which are not, and these
 *              are stored compactly, with space for the fraction that the layout gives
 *
 * It is packed where it is made.  The forward task saves only the packed one (saved.h), and a
 * backward task that reads it unpacks it, for itself alone.  The results of the run keep their
 * bits.  A step in which more elements are not 0 than there is space for makes no update: its norm
 * is infinite on all ranks (STATS), and it runs again with another program (train/fallback.h). */
#include "program/lowering.h"

/* Who reads a tensor, from one pass over all nodes. */
typedef struct readers {
    int by_sign, in_full; /* backward nodes */
    bool far;             /* some are of another chunk */
} readers;

static readers *look_at_readers(sk_lowering *e)
{
    readers *all = sk_many(e->tmp, readers, e->g->tensors.n + 1);
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *n = e->g->nodes.v[i];
        for (int k = 0; k < n->n_in; k++) {
            readers *r = &all[n->in[k]->id];
            if (n->in[k]->from) r->far |= e->sp->chunk[i] != e->sp->chunk[n->in[k]->from->id];
            if (n->phase == SK_BACKWARD) *(n->op->signs >> k & 1 ? &r->by_sign : &r->in_full) += 1;
        }
    }
    return all;
}

/* A tensor that is sent, or reduced over ranks before it is read, is saved as made. */
static sk_form form_of(const sk_lowering *e, const sk_tensor *t, const readers *r)
{
    sk_state settled = sk_state_settled(&e->sp->made[t->id]);
    if (t->role != SK_VALUE || t->type == SK_I32 || e->plan.recomputed[t->id] || r->far)
        return SK_AS_MADE;
    if (!r->by_sign && !r->in_full) return SK_AS_MADE;
    if (!sk_state_equal(&settled, &e->sp->made[t->id])) return SK_AS_MADE;
    if (!r->in_full) return SK_SIGNS;
    return e->l->gist < 100 && t->from->op->flags & SK_OP_ZEROS ? SK_ZEROS : SK_AS_MADE;
}

sk_status sk_plan_packed(sk_lowering *e)
{
    e->plan.packs = sk_many(e->tmp, sk_form, e->g->tensors.n + 1);
    e->packed = sk_many(e->tmp, int, e->g->tensors.n * e->plan.n_listed + 1);
    if (!e->l->gist || !e->opts->optim) return SK_OK;
    const readers *all = look_at_readers(e);
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *n = e->g->nodes.v[i];
        bool here = n->phase == SK_FORWARD && e->sp->stage[i] == e->p->stage;
        for (int o = 0; here && o < n->n_out; o++)
            if (!n->into[o])
                e->plan.packs[n->out[o]->id] = form_of(e, n->out[o], &all[n->out[o]->id]);
    }
    return SK_OK;
}

static int *packed_of(sk_lowering *e, const sk_tensor *t)
{
    return &e->packed[t->id * e->plan.n_listed + e->at.micro];
}

/* First the bits, in whole lines, then the elements that are not 0. */
static int packed_buffer(sk_lowering *e, const sk_tensor *t, int buf, int64_t *values)
{
    const sk_buffer *b = &e->p->bufs.v[buf];
    int64_t size = (int64_t)sk_dtype_size(b->type), n = b->bytes / size;
    *values = e->plan.packs[t->id] == SK_ZEROS ? (n * e->l->gist + 99) / 100 : 0;
    sk_extent box = {.n = 1, .size = {sk_pack_bits(n) + *values * size}};
    box.full[0] = box.size[0];
    return sk_lower_buffer(e, sk_print(e->p->arena, "%s packed", t->name), NULL, SK_ACTS, SK_U8,
                           box);
}

void sk_lower_pack(sk_lowering *e, const sk_node *n)
{
    for (int o = 0; e->training && n->phase == SK_FORWARD && o < n->n_out; o++) {
        const sk_tensor *t = n->out[o];
        int64_t values = 0;
        bool packs = e->plan.packs[t->id] && sk_is_saved_as(e, t, e->plan.packs[t->id]);
        int buf = packs ? sk_lower_find(e, t, &e->sp->made[t->id]) : -1;
        if (buf < 0 || !e->p->bufs.v[buf].bytes) continue;
        int to = packed_buffer(e, t, buf, &values);
        sk_inst *in = sk_lower_inst(e, SK_DO_PACK);
        in->in[0] = buf;
        in->out[0] = to;
        in->values = values;
        *packed_of(e, t) = 1 + to;
    }
}

bool sk_lower_unpack(sk_lowering *e, const sk_tensor *t)
{
    if (e->at.phase != SK_BACKWARD || !e->training || !e->plan.packs[t->id] || !*packed_of(e, t))
        return false;
    int from = *packed_of(e, t) - 1;
    int to = sk_lower_piece(e, t, SK_ACTS, &e->sp->made[t->id], e->at.micro);
    sk_inst *in = sk_lower_inst(e, SK_DO_UNPACK);
    in->in[0] = from;
    in->out[0] = to;
    const sk_buffer *b = &e->p->bufs.v[from], *x = &e->p->bufs.v[to];
    int64_t size = (int64_t)sk_dtype_size(x->type);
    in->values = (b->bytes - sk_pack_bits(x->bytes / size)) / size;
    sk_lower_have(e, t, &e->sp->made[t->id], to);
    return true;
}

/* Operands must be unpacked before a node is written, whether it runs in chunks or not. */
void sk_lower_unpack_for(sk_lowering *e, const sk_node *n)
{
    for (int k = 0; k < n->n_in; k++)
        if (e->plan.packs[n->in[k]->id] &&
            sk_lower_find(e, n->in[k], &e->sp->made[n->in[k]->id]) < 0)
            sk_lower_unpack(e, n->in[k]);
}
