/* param_extras.c - extras of the backward pass (graph/extra.h) beside the gradients of parameters:
 * each is a sum that nodes contribute to, with a plan of its own behind those of the parameters. */
#include "program/lowering.h"

int sk_program_extra(const sk_program *p, const sk_tensor *param, int kind)
{
    for (int i = p->params.n; i < sk_n_grads(p); i++)
        if (p->params.v[i].tensor->of == param && p->params.v[i].tensor->extra == kind) return i;
    return -1;
}

static void plan_extra(sk_lowering *e, const sk_tensor *t)
{
    sk_program *p = e->p;
    sk_param_plan *q = sk_push(p->arena, &p->params);
    e->plan.param_of[t->id] = p->params.n - 1;
    const sk_tensor *sent = sk_extra_sent(e, t);
    *q = (sk_param_plan){.tensor = sent,
                         .made = sent == t ? NULL : t,
                         .every = sk_extra_every(e, t),
                         .used = e->sp->made[t->id],
                         .update = sk_update_state(e, t),
                         .tie_group = -1,
                         .stored = -1,
                         .shard = -1,
                         .master = -1,
                         .mean = -1,
                         .anchor = -1,
                         .outer_momentum = -1,
                         .ema = -1,
                         .scalars = -1,
                         .error = -1,
                         .factor = -1,
                         .change_error = -1};
    q->owner = sk_lower_first(e, &q->update, 0);
    sk_plan_sum(e, q, sent->name);
}

/* Who wants extras: an optimizer with Kronecker factors, or the user. */
static const char *asks_extras(const sk_compile_opts *o)
{
    for (int i = 0; i < o->n_groups; i++)
        if (o->groups[i].optim->factors) return o->groups[i].optim->name;
    return o->optim->factors ? o->optim->name : "train.backward";
}

/* Each replica has gradients of its own samples at weights of its own, and a rank that sends a
 * state in their place never has the sum of gradients that the numbers of samples go with. */
static sk_status one_point(const sk_lowering *e)
{
    const sk_optim *o = e->opts->optim;
    if (!e->opts->told || !o || !sk_layout_any_local(e->l)) return SK_OK;
    if (o->sends)
        return sk_fail(SK_ECONF,
                       "train.backward: ranks of %s send each other a state in place of gradients, "
                       "so no rank has the gradient of the batch; leave out train.backward, or "
                       "choose adamw",
                       o->name);
    return sk_fail(SK_ECONF, "train.backward: with sync each replica has the gradients of its own "
                             "samples at weights of its own, so what they tell is not of one "
                             "batch; leave out one of them");
}

static sk_status extras_fit(const sk_lowering *e)
{
    SK_TRY(one_point(e));
    if (!e->opts->optim || !e->g->extras) return SK_OK;
    const char *who = asks_extras(e->opts);
    if (e->plan.schedule->async)
        return sk_fail(SK_ECONF,
                       "%s: schedule %s updates weights between micro-batches, so what they tell "
                       "is not of one point; take another schedule, as 1f1b",
                       who, e->l->schedule);
    if (e->l->home[SK_GRAD])
        return sk_fail(SK_ECONF,
                       "%s: gradients are offloaded to the %s; leave out offload=grads, or %s", who,
                       sk_placement_names[e->l->home[SK_GRAD]], who);
    return SK_OK;
}

/* Behind the parameters; contributions to one are all of one stage. */
sk_status sk_plan_extras(sk_lowering *e)
{
    sk_program *p = e->p;
    SK_TRY(extras_fit(e));
    for (int i = 0; i < e->g->nodes.n && e->opts->optim; i++) {
        const sk_node *n = e->g->nodes.v[i];
        for (int o = 0; o < n->n_out && e->sp->stage[i] == p->stage; o++) {
            const sk_tensor *t = n->into[o];
            if (!t || t->role != SK_EXTRA || e->plan.param_of[t->id] >= 0) continue;
            plan_extra(e, t);
            p->n_extras++;
        }
    }
    p->params.n -= p->n_extras;
    return SK_OK;
}
