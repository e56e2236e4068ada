/* sent_state.c - optimizers whose ranks send each other a state in place of gradients
 * (sk_optim.sends; 1-bit Adam, Tang et al. 2021; 1-bit LAMB, Li et al. 2021; 0/1 Adam, Lu et al.
 * 2022).
 *
 *     up to step W   gradients are summed over all ranks; the first passes of the optimizer
 *     from then on   gradients are summed over all axes but one, which splits the batch: each rank
 *                    along it has the mean loss of its own samples, clipped by its own norm, as
 *                    replicas have (replica_sync.c).  A pass leaves the rank's term of a sum in the
 *                    state; terms are encoded with error feedback and summed (coded_sums.c); passes
 *                    that follow see the sum, the same on all ranks.  So weights and state are
 * alike on all ranks after every step, and only the error feedback is a rank's own
 *
 * With sk_optim.step_kind steps of the two kinds come in an order of its own, and there may be a
 * third kind, in which ranks go on with their own gradients and send nothing: then weights and
 * state are a rank's own, too, until the next sending, and are kept as those of replicas are.
 *
 * Tensors of one dim, and those that would not become smaller, are summed in f32.  A step that is
 * skipped leaves state and error feedback as they are: the passes do nothing, and what was summed
 * is in buffers of gradients.  With one rank along the axis nothing is encoded. */
#include "program/lowering.h"
#include "tensor/tensor_shard.h"

/* Those of the parameters in no group; other groups need the same. */
static int64_t first_steps(const sk_optim *o, const double *knob)
{
    int k = o->first_steps - 1;
    return (int64_t)(knob ? knob[k] : o->knobs[k].usual);
}

const sk_step_kinds *sk_plan_kinds(sk_arena *a, const sk_compile_opts *o)
{
    if (!o->optim || !o->optim->step_kind) return NULL;
    sk_step_kinds *k = sk_new(a, sk_step_kinds);
    k->optim = o->optim;
    for (int i = 0; o->optim->knobs[i].name; i++)
        k->knob[i] = o->knob ? o->knob[i] : o->optim->knobs[i].usual;
    o->optim->kind_shares(k->knob, k->share);
    return k;
}

static bool splits_batch_alone(const sk_layout *l, int axis, char batch)
{
    return l->mesh.size[axis] > 1 && l->split[axis][0] == batch && batch && !l->split[axis][1];
}

void sk_own_grads(const sk_compile_opts *o, const sk_step_kinds *kinds, char batch, sk_layout *l)
{
    l->own_grads = 0;
    l->own_grads_from = 0;
    l->own_weights = false;
    if (!o->optim || !o->optim->sends) return;
    l->own_grads_from = o->optim->step_kind ? 1 : first_steps(o->optim, o->knob);
    for (int a = 0; a < l->mesh.n && !l->own_grads; a++)
        if (splits_batch_alone(l, a, batch) && !sk_layout_shards(l, a) && !*l->sync[a].name &&
            !l->adasum[a])
            l->own_grads = 1 + a;
    l->own_weights = l->own_grads && kinds && kinds->share[SK_STEP_LOCAL] > 0;
}

/* --- refusals --- */

/* The first number of a group by which steps have kinds, and which is another one; -1: none. */
static int other_steps(const sk_compile_opts *o, const sk_param_group *g)
{
    const sk_optim *x = g->optim;
    for (int k = 0; x->knobs[k].name; k++) {
        double all = o->knob ? o->knob[k] : x->knobs[k].usual;
        if (x->knobs[k].whole && all != g->knob[k]) return k;
    }
    return -1;
}

static sk_status other_number(const sk_compile_opts *o, const sk_param_group *g, int k)
{
    const char *key = g->optim->knobs[k].name;
    double all = o->knob ? o->knob[k] : g->optim->knobs[k].usual;
    return sk_fail(SK_ECONF,
                   "optim.groups: ranks of %s send momentum in place of gradients in the same "
                   "steps, of all parameters: the group '%s' has %s=%g, and optim.%s is %g; say "
                   "optim.%s=%g, and no other in any group",
                   o->optim->name, g->match, key, g->knob[k], key, all, key, g->knob[k]);
}

static sk_status groups_fit(const sk_lowering *e)
{
    const sk_compile_opts *o = e->opts;
    for (int g = 0; g < o->n_groups; g++) {
        const sk_optim *x = o->groups[g].optim;
        if (!x->sends && !o->optim->sends) continue;
        int other = x == o->optim ? other_steps(o, &o->groups[g]) : -1;
        if (x == o->optim && other < 0) continue;
        if (!o->optim->sends)
            return sk_fail(
                SK_ECONF,
                "optim.groups: ranks of %s, which the group '%s' has, send momentum in "
                "place of gradients, of all parameters in the same steps, and optim.name "
                "is %s; take optim.name=%s, and no group with another",
                x->name, o->groups[g].match, o->optim->name, x->name);
        if (other >= 0) return other_number(o, &o->groups[g], other);
        return sk_fail(SK_ECONF,
                       "optim.groups: ranks of %s send momentum in place of gradients in the same "
                       "steps, of all parameters, and the group '%s' has another optimizer; all "
                       "groups need %s with the same steps",
                       o->optim->name, o->groups[g].match, o->optim->name);
    }
    return SK_OK;
}

static sk_status cannot(const sk_lowering *e, const char *why, const char *instead)
{
    return sk_fail(SK_ECONF,
                   "optim.name is %s, whose ranks send momentum in place of gradients: %s; %s",
                   e->opts->optim->name, why, instead);
}

static sk_status one_reduction(const sk_lowering *e)
{
    const sk_layout *l = e->l;
    if (sk_timed_axis(l) >= 0)
        return cannot(e, "ranks that do not wait for each other (sync=) send nothing else",
                      "leave out sync, or choose adamw");
    for (int a = 0; a < l->mesh.n; a++) {
        if (l->mesh.size[a] > 1 && *l->sync[a].name)
            return cannot(e, "replicas that synchronise their weights (sync=) send nothing else",
                          "leave out sync, or choose adamw");
        bool shards = sk_layout_shards(l, a) && !l->replica; /* of replica step_fits() knows */
        if (splits_batch_alone(l, a, e->g->batch) && shards && !l->own_grads)
            return cannot(e,
                          "every rank needs the momentum of all weights, and zero shards it "
                          "over the only axis that splits the batch",
                          "leave out zero, take two axes, as in \"mesh hosts=2 dp=2; split b over "
                          "hosts; split b over dp; shard state over dp\", or choose adamw");
    }
    if (sk_layout_adasum(l) >= 0)
        return cannot(e, "there are no gradients that reduce=adasum could join",
                      "leave it out, or choose adamw");
    if (*l->grads_as)
        return cannot(e, "there are no gradients that grads= could encode",
                      "leave out grads=, or choose adamw");
    return SK_OK;
}

static sk_status step_fits(const sk_lowering *e)
{
    const sk_schedule *s = sk_schedule_find(e->l->schedule);
    if (e->opts->state_type != SK_F32 && e->opts->state_type != SK_STATE_AUTO)
        return cannot(e, "state is sent and divided by as it is, in f32", "take optim.state=f32");
    if (e->opts->late)
        return cannot(e, "optim.late updates during the next step", "take optim.late=0");
    if (s && s->async)
        return cannot(e, "the schedule updates within a step", "take another, as 1f1b");
    if (sk_layout_offloads(e->l) || e->l->replica)
        return cannot(e,
                      "what is sent lies in the memory of each device, and the layout places "
                      "weights or state elsewhere",
                      "leave out offload= and replica, or choose adamw");
    if (!e->l->own_grads) return SK_OK;
    if (e->l->canonical)
        return cannot(e, "they are encoded, and order=canonical loses nothing",
                      "take order=fast, or choose adamw");
    if (e->opts->noise)
        return cannot(e, "train.noise compares sums of gradients", "leave out train.noise");
    for (int i = 0; i < e->g->tensors.n; i++)
        if (e->g->tensors.v[i]->role == SK_PARAM && e->g->tensors.v[i]->bias_update != 0)
            return cannot(e, "biases of routers are updated by a sum over all samples",
                          "choose adamw for this model");
    return SK_OK;
}

sk_status sk_check_sent(const sk_lowering *e)
{
    if (!e->opts->optim) return SK_OK;
    SK_TRY(groups_fit(e));
    if (!e->opts->optim->sends) return SK_OK;
    SK_TRY(one_reduction(e));
    return step_fits(e);
}

/* --- what is kept --- */

/* The codec for a parameter's rows; NULL: it would not become smaller. */
static const sk_codec *coded_as(const sk_lowering *e, const sk_param_plan *q)
{
    const sk_codec *c = e->plan.sent_as;
    const sk_extent box = e->p->bufs.v[q->state[q->optim->sends - 1]].box;
    int64_t row = sk_box_count(&box, 1, box.n);
    return c && box.n > 1 && sk_codec_bytes(c, row) < row * (int64_t)sizeof(real) ? c : NULL;
}

/* One term for each rank along the axis, of the shard that the optimizer sees. */
void sk_plan_sent(sk_lowering *e, sk_param_plan *q)
{
    int axis = e->l->own_grads - 1;
    if (axis < 0 || !coded_as(e, q)) return;
    const sk_extent of = e->p->bufs.v[q->state[q->optim->sends - 1]].box;
    q->term = e->p->coord[axis];
    sk_extent box = {.n = of.n + 1, .size = {1}, .at = {q->term}, .full = {e->l->mesh.size[axis]}};
    sk_assert(box.n <= SK_MAX_DIM);
    for (int d = 0; d < of.n; d++) {
        box.size[d + 1] = of.size[d];
        box.at[d + 1] = of.at[d];
        box.full[d + 1] = of.full[d];
    }
    const char *name = sk_print(e->p->arena, "%s" SK_ERROR_SUFFIX, q->tensor->name);
    q->error = sk_lower_buffer(e, name, NULL, SK_OPTIM, SK_F32, box);
    q->tells = q->owner; /* each rank along the axis has owners of its own */
    e->p->bufs.v[q->error].keep = e->p->bufs.v[q->error].zero = true;
}

/* --- a step --- */

sk_step_due sk_sent_due(const sk_lowering *e, int pass)
{
    const sk_optim *o = e->opts->optim;
    if (!o->sends) return (sk_step_due){0};
    if (e->p->kinds) return (sk_step_due){.by = e->p->kinds, .kinds = 1u << sk_optim_kind(o, pass)};
    if (pass < o->n_first) return (sk_step_due){.until = e->l->own_grads_from};
    return (sk_step_due){.from = e->l->own_grads_from};
}

sk_step_due sk_together_due(const sk_lowering *e, int axis)
{
    if (e->p->kinds && e->l->own_grads == 1 + axis)
        return (sk_step_due){.by = e->p->kinds, .kinds = 1u << SK_STEP_DENSE};
    return (sk_step_due){.until = sk_layout_local_from(e->l, axis)};
}

/* The buffer of the gradient, which is not needed any more, if it is f32. */
static int sum_buffer(sk_lowering *e, const sk_param_plan *q)
{
    const sk_buffer b = e->p->bufs.v[q->state[q->optim->sends - 1]];
    if (e->p->bufs.v[q->grad_shard].type == SK_F32) return q->grad_shard;
    return sk_lower_buffer(e, sk_print(e->p->arena, "%s.sum", q->tensor->name), q->tensor, SK_WIRE,
                           SK_F32, b.box);
}

static void sum_plain(sk_lowering *e, int axis, int *call, const sk_param_plan *q, int from, int to)
{
    const sk_extent box = e->p->bufs.v[from].box;
    if (*call < 0)
        *call = sk_lower_call(e, SK_ALLREDUCE, SK_SUM, SK_F32, axis,
                              sk_print(e->p->arena, "momentum from %s", q->tensor->name));
    sk_lower_seg(e, *call, from, to, 1, sk_box_count(&box, 0, box.n), 1);
}

void sk_lower_sent(sk_lowering *e)
{
    sk_program *p = e->p;
    int axis = e->l->own_grads - 1, n = 0, plain = -1;
    sk_coded *v = sk_many(e->tmp, sk_coded, p->params.n + 1);
    e->sums_sent = sk_many(e->tmp, int, p->params.n + 1);
    e->at.held = true;
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan q = p->params.v[i];
        int from = q.state[q.optim->sends - 1];
        e->sums_sent[i] = axis < 0 ? from : sum_buffer(e, &q);
        if (axis >= 0 && coded_as(e, &q))
            v[n++] = sk_coded_whole(e, (sk_coded){.q = &p->params.v[i],
                                                  .codec = e->plan.sent_as,
                                                  .axis = axis,
                                                  .from = from,
                                                  .whole = e->sums_sent[i],
                                                  .what = "momentum"});
        else if (axis >= 0) sum_plain(e, axis, &plain, &q, from, e->sums_sent[i]);
    }
    sk_sum_coded(e, v, n);
    if (plain >= 0) sk_lower_start(e, plain, SK_FLIES_NOT);
    e->at.held = false;
}
