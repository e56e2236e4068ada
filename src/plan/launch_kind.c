/* launch_kind.c - names, bytes and shapes of launches. */
#include "plan/launch_kind.h"
#include "program/acts.h"
#include "program/fuse.h"

static const char *name_of(const sk_program *p, const sk_inst *in)
{
    if (in->act == SK_DO_OP) return in->node->op->name;
    if (in->act == SK_DO_UPDATE) return p->params.v[in->param].optim->name;
    return sk_act_row_of(in)->name;
}

static sk_dtype type_of(const sk_program *p, const sk_inst *in)
{
    int buf = in->in[0] >= 0 ? in->in[0] : in->out[0];
    return buf >= 0 ? p->bufs.v[buf].type : SK_F32;
}

static void add(const sk_program *p, const sk_inst *in, sk_launch_kind *out)
{
    out->flops += sk_inst_work(p, in);
    if (in->shape.kind < SK_KERNEL_PRODUCT) return;
    out->shape = in->shape;
    out->n_shaped++;
}

bool sk_launch_kind_of(const sk_program *p, int pc, sk_launch_kind *out)
{
    const sk_launch_plan *l = sk_launch_of(p, pc);
    const sk_inst *in = &p->insts.v[l && l->by ? l->pcs[0] : pc];
    if (l && l->at != pc) return false;
    *out = (sk_launch_kind){.name = l && l->by ? l->by->name : name_of(p, in)};
    out->type = type_of(p, in);
    out->bytes = l ? sk_launch_bytes(p, l) : sk_inst_bytes(p, in);
    for (int i = 0; l && i < l->n; i++) add(p, &p->insts.v[l->by ? l->pcs[i] : l->at + i], out);
    if (!l) add(p, in, out);
    return true;
}
