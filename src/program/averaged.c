/* averaged.c - averages of the weights, which a validation step reads in place of the weights.
 *
 * Either the optimizer keeps an average among its state (sk_optim.average), or the engine keeps an
 * exponential moving average beside any optimizer (sk_compile_opts.ema): f32, sharded as optimizer
 * state is, and updated by AVERAGE behind the last pass of a step.
 *
 * The weights stay where they are.  A validation task takes the average of each weight that it
 * reads, a layer at a time, as if it were the shard of a sharded weight: it is gathered where the
 * optimizer sees a shard (as with `shard params`, param_gathers.c), and rounded before that where
 * weights are narrow.  An average in f32 that is not cut is read where it lies.  So nothing is
 * swapped and nothing has to be put back. */
#include "program/lowering.h"

static const sk_optim *optim_of(const sk_compile_opts *o, int group)
{
    return group ? o->groups[group - 1].optim : o->optim;
}

/* The first optimizer of the job that averages weights itself, or NULL. */
static const sk_optim *averaging(const sk_compile_opts *o)
{
    for (int g = 0; o->optim && g <= o->n_groups; g++)
        if (optim_of(o, g)->average) return optim_of(o, g);
    return NULL;
}

sk_status sk_averages_fit(const sk_lowering *e)
{
    const sk_optim *o = averaging(e->opts);
    sk_assert(e->p->ema >= 0 && e->p->ema < 1);
    if (o && e->p->ema > 0)
        return sk_fail(SK_ECONF,
                       "optim.ema is %g, and %s averages the weights itself; leave one of them out",
                       e->p->ema, o->name);
    if (o && e->opts->state_type != SK_F32 && e->opts->state_type != SK_STATE_AUTO)
        return sk_fail(SK_ECONF,
                       "optim.state is %s, and the state of %s is weights, which need f32; leave "
                       "it out",
                       sk_state_type_name(e->opts->state_type), o->name);
    return SK_OK;
}

sk_status sk_averages_not_async(const sk_lowering *e)
{
    const sk_optim *o = averaging(e->opts);
    if (!o && !(e->p->ema > 0)) return SK_OK;
    return sk_fail(SK_ECONF,
                   "%s averages weights once a step, and stages of schedule %s update within a "
                   "step; take 1f1b",
                   o ? o->name : "optim.ema", e->plan.schedule->name);
}

void sk_lower_averages(sk_lowering *e)
{
    const sk_program *p = e->p;
    for (int i = 0; i < p->params.n && p->ema > 0; i++) {
        const sk_param_plan *q = &p->params.v[i];
        const sk_extent *box = &p->bufs.v[q->ema].box;
        sk_inst *in = sk_lower_inst(e, SK_DO_AVERAGE);
        in->in[0] = q->master >= 0 ? q->master : q->shard;
        in->out[0] = q->ema;
        in->param = i;
        in->layer = q->tensor->layer;
        in->background = sk_lower_is_late(e, i);
        in->flops = 3.0 * (double)sk_box_count(box, 0, box->n);
    }
}

bool sk_lower_averaged(const sk_lowering *e, const sk_param_plan *q)
{
    return !e->training && sk_param_average(q) >= 0;
}

int sk_lower_average(sk_lowering *e, int param)
{
    const sk_param_plan q = e->p->params.v[param];
    int from = sk_param_average(&q);
    if (q.tensor->type == e->p->bufs.v[from].type) return from;
    int to = sk_lower_piece(e, q.tensor, SK_WIRE, &q.update, -1);
    sk_inst *in = sk_lower_inst(e, SK_DO_NARROW);
    in->in[0] = from;
    in->out[0] = to;
    in->param = param;
    return to;
}
