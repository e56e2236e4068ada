/* step_phases.c - how often a step runs the training section.
 *
 * Sharpness-aware minimisation (Foret et al. 2021; sk_optim.perturb) needs two gradients of one
 * batch: at the weights, and at weights moved along the first.  So the same section runs twice: in
 * the first phase its updates write moved weights where kernels read them and leave the masters
 * alone, in the last they are plain updates.  A step that is skipped in the last phase copies the
 * masters to the weights, as every skipped step does, so weights are restored to the bit. */
#include "program/lowering.h"

static sk_status cannot(const char *what, const char *why, const char *hint)
{
    return sk_fail(SK_ECONF,
                   "optim: a step of %s takes two gradients of its batch, and %s; %s is needed",
                   what, why, hint);
}

sk_status sk_plan_phases(sk_lowering *e)
{
    const sk_compile_opts *o = e->opts;
    const char *name = o->optim ? o->optim->name : "";
    e->p->phases = sk_optim_phases(o->optim, o->groups, o->n_groups);
    if (e->p->phases == 1) return SK_OK;
    for (int g = 0; g < o->n_groups; g++)
        if (o->groups[g].optim->perturb) name = o->groups[g].optim->name;
    if (e->plan.schedule->async)
        return cannot(name, "stages of an asynchronous schedule update in the middle of it",
                      "another schedule, as 1f1b,");
    if (o->late) return cannot(name, "optim.late updates beside the next step", "optim.late=0");
    if (e->l->feedback)
        return cannot(name, "error feedback would carry the error of one to the other",
                      "a codec without feedback");
    return SK_OK;
}
