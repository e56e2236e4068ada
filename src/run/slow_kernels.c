/* slow_kernels.c - launches that did not get the fast kernel, and what that costs a step. */
#include "run/slow_kernels.h"
#include "base/strings.h"
#include "program/fuse.h"
#include "run/backend.h"

#include <string.h>

static const double A_TENTH = 0.1; /* of a step is worth a warning */

/* Flops of the launch at pc: of all ops that are fused in it. */
static double flops_at(const sk_run *r, int pc)
{
    const sk_launch_plan *l = sk_launch_of(r->p, pc);
    return l && l->by ? sk_launch_flops(r->p, l) : r->p->insts.v[pc].flops;
}

static const sk_inst *first_of(const sk_run *r, int pc)
{
    const sk_launch_plan *l = sk_launch_of(r->p, pc);
    return &r->p->insts.v[l && l->by ? l->pcs[0] : pc];
}

static const sk_variant *slow_at(const sk_run *r, int pc)
{
    const sk_variant *v = r->backend->variant(r, pc);
    return v->name && v->wanted && v->slower > 1 ? v : NULL;
}

/* The same op, of the same operands, for the same reason? */
static bool alike(const sk_run *r, int a, int b)
{
    const sk_variant *x = slow_at(r, a), *y = slow_at(r, b);
    const sk_inst *p = first_of(r, a), *q = first_of(r, b);
    if (!x || !y || p->node->op != q->node->op || strcmp(x->why, y->why)) return false;
    for (int i = 0; i < p->node->n_in; i++)
        if (memcmp(r->p->bufs.v[p->in[i]].box.size, r->p->bufs.v[q->in[i]].box.size,
                   sizeof r->p->bufs.v->box.size))
            return false;
    return true;
}

static void add_line(sk_out *o, const sk_run *r, int pc, double share)
{
    const sk_variant *v = slow_at(r, pc);
    const sk_inst *in = first_of(r, pc);
    const sk_buffer *x = &r->p->bufs.v[in->in[0]];
    sk_out_add(o, "%s%s of ", o->s ? "\n" : "", in->node->op->name);
    for (int i = 0; i < x->box.n; i++)
        sk_out_add(o, "%s%lld", i ? "x" : "", (long long)x->box.size[i]);
    sk_out_add(
        o,
        " (%s) runs on kernel %s, %.3g times as long as %s: %s; the step is about %.0f %% longer",
        sk_dtype_name(x->type), v->name, v->slower, v->wanted, v->why, 100 * share);
}

const char *sk_run_slow_kernels(sk_arena *a, const sk_run *r)
{
    sk_out o = {.arena = a};
    double all = 0;
    if (!r->backend->variant) return NULL;
    for (int pc = 0; pc < r->p->n_train; pc++) all += r->p->insts.v[pc].flops;
    for (int pc = 0; pc < r->p->n_train; pc++) {
        double more = 0;
        bool seen = !slow_at(r, pc);
        for (int i = 0; i < pc && !seen; i++) seen = alike(r, i, pc);
        for (int i = pc; i < r->p->n_train && !seen; i++)
            if (alike(r, pc, i)) more += flops_at(r, i) * (slow_at(r, i)->slower - 1);
        if (more > A_TENTH * all) add_line(&o, r, pc, more / all);
    }
    return o.s;
}
