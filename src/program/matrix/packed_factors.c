/* packed_factors.c - how Kronecker factors travel (Osawa et al. 2019; Pauloski et al. 2020).
 *
 * A factor is symmetric: behind the last contribution, half of it is packed (kernel/symmetric.h),
 * and what is reduced, scattered by ZeRO, distributed to owners and gathered is that, n rows of n /
 * 2 + 1 numbers.  Where the optimizer works on the matrix it is unpacked.  Where nothing is sent,
 * nothing is packed.
 *
 * Nodes make factors, and products of the backward pass for them, only in every so many updates, if
 * the optimizer has a knob that says so (sk_optim.factor_interval); their calls, too. */
#include "base/strings.h"
#include "kernel/symmetric.h"
#include "program/matrix/matrix_update.h"

#include <string.h>

/* Is it reduced over an axis, or does an axis cut it, so that it is gathered? */
static bool travels(const sk_lowering *e, const sk_tensor *t)
{
    sk_state made = e->plan.grad_made[t->id], update = sk_update_state(e, t);
    for (int a = 0; a < e->l->mesh.n; a++)
        if (e->l->mesh.size[a] > 1 && (made.how[a] == SK_PARTIAL || update.how[a] == SK_SPLIT))
            return true;
    return false;
}

const sk_tensor *sk_extra_sent(const sk_lowering *e, const sk_tensor *t)
{
    return t->packed && travels(e, t) ? t->packed : t;
}

double sk_matrix_knob(const sk_lowering *e, const sk_param_plan *q, int knob)
{
    if (q->group) return e->opts->groups[q->group - 1].knob[knob];
    return e->opts->knob ? e->opts->knob[knob] : q->optim->knobs[knob].usual;
}

/* What the user asked for (train.backward) is made in every step. */
int sk_extra_every(const sk_lowering *e, const sk_tensor *t)
{
    int param = t->packed ? e->plan.param_of[t->of->id] : -1;
    const sk_param_plan *q = param < 0 ? NULL : &e->p->params.v[param];
    if (!q || !q->optim || !q->optim->factor_interval) return 0;
    int every = (int)sk_matrix_knob(e, q, q->optim->factor_interval - 1);
    return every > 1 ? every : 0;
}

/* --- instructions --- */

static void write_op(sk_lowering *e, const char *op, const char *dims, int from, int to)
{
    sk_node *n = sk_new(e->p->arena, sk_node);
    *n = (sk_node){.op = sk_op_find(op),
                   .dims = dims,
                   .n_in = 1,
                   .n_out = 1,
                   .in = {(sk_tensor *)e->p->bufs.v[from].tensor},
                   .out = {(sk_tensor *)e->p->bufs.v[to].tensor},
                   .where = "a Kronecker factor",
                   .id = SK_NO_NODE,
                   .layer = e->at.layer,
                   .phase = SK_BACKWARD};
    sk_assert(n->op);
    memcpy(n->letters_in[0], n->in[0]->letters, sizeof n->letters_in[0]);
    memcpy(n->letters_out[0], n->out[0]->letters, sizeof n->letters_out[0]);
    sk_inst *in = sk_lower_inst(e, SK_DO_OP);
    in->node = n;
    in->in[0] = from;
    in->out[0] = to;
}

/* "hdHD" becomes "hdH!D!->hdk!". */
void sk_lower_sym_pack(sk_lowering *e, const sk_param_plan *q, int whole, int to)
{
    const char *in = q->made->letters, *out = q->tensor->letters;
    sk_out dims = {.arena = e->p->arena};
    for (; *in; in++) sk_out_add(&dims, "%c%s", *in, strchr(out, *in) ? "" : "!");
    sk_out_add(&dims, "->%s!", out);
    write_op(e, "sym_pack", dims.s, whole, to);
}

int sk_lower_sym_unpack(sk_lowering *e, int packed, const sk_tensor *t, const sk_extent *box)
{
    sk_extent rows = *box;
    int64_t n = box->size[box->n - 1];
    rows.size[box->n - 1] = rows.full[box->n - 1] = sk_symmetric_half(n);
    const sk_buffer from = e->p->bufs.v[packed];
    sk_assert(sk_box_count(&rows, 0, rows.n) == sk_box_count(&from.box, 0, from.box.n));
    int in = sk_lower_buffer(e, from.name, t, from.kind, from.type, rows);
    e->p->bufs.v[in].within = packed;
    int out = sk_lower_buffer(e, t->name, t, SK_WIRE, SK_F32, *box);
    write_op(e, "sym_unpack", box->n == 3 ? "0r!k!->0rR!" : "r!k!->rR!", in, out);
    return out;
}
