/* timed_sync.c - where time decides what a step is made of (sync=backup:B, sync=ssp:S).
 *
 * The programs of ranks have no collective in their training section, so none waits for another
 * one but in COMMIT, where the executor sums the gradients of the ranks that came first
 * (comm/quorum.h).  What would make them wait, or keep something that a rank which was late could
 * not take from another, is refused here; validation, which all ranks do together, is that of plain
 * data parallelism.
 *
 * With sync=ssp:S ranks update one after the other (comm/turns.h): a rank takes the newest weights
 * where a step begins (PULL) and where its update does (PUSH). */
#include "program/lowering.h"
#include "program/sync.h"

bool sk_is_timed(const sk_lowering *e, int axis) { return sk_timed_axis(e->l) == axis; }

void sk_lower_commit(sk_lowering *e)
{
    if (sk_layout_backup(e->l) >= 0) sk_lower_inst(e, SK_DO_COMMIT);
}

void sk_lower_pull(sk_lowering *e)
{
    if (sk_layout_stale(e->l) < 0) return;
    e->at.task = 0;
    e->at.micro = -1;
    e->at.layer = 0;
    sk_lower_inst(e, SK_DO_PULL);
}

void sk_lower_push(sk_lowering *e)
{
    if (sk_layout_stale(e->l) >= 0) sk_lower_inst(e, SK_DO_PUSH);
}

/* A member of m reads a share of the gradient of each other member, and the shares that these have
 * summed.  With sync=ssp everything that is kept is taken over twice a step, if others update as
 * often. */
int64_t sk_timed_wire(const sk_program *p, const sk_inst *in)
{
    int a = sk_timed_axis(&p->layout), m = p->layout.mesh.size[a] - p->layout.sync[a].backup;
    int64_t grads = 0, kept = 0;
    if (in->act != SK_DO_COMMIT && in->act != SK_DO_PULL && in->act != SK_DO_PUSH) return 0;
    for (int i = 0; i < p->params.n; i++) grads += p->bufs.v[p->params.v[i].grad_shard].bytes;
    for (int i = 0; i < p->bufs.n; i++) {
        const sk_buffer *b = &p->bufs.v[i];
        if (b->keep && b->within < 0 && (b->kind == SK_WEIGHTS || b->kind == SK_OPTIM))
            kept += b->bytes;
    }
    return in->act == SK_DO_COMMIT ? 2 * grads * (m - 1) / m : kept;
}

static const char *way(const sk_lowering *e) { return sk_sync_timed_name(e->l); }

static sk_status one_host(const sk_lowering *e)
{
    for (int r = 1; e->opts->host_of && r < e->p->n_ranks; r++)
        if (e->opts->host_of[r] != e->opts->host_of[0])
            return sk_fail(SK_ECONF,
                           "layout: sync=%s lets ranks read each other's memory, and rank %d is on "
                           "another host than rank 0; one host is needed (between hosts: ways "
                           "that synchronise every H steps, see skein list sync)",
                           way(e), r);
    return SK_OK;
}

static sk_status no_calls(const sk_lowering *e)
{
    const sk_program *p = e->p;
    for (int pc = 0; pc < p->n_train; pc++) {
        const sk_inst *in = &p->insts.v[pc];
        if (in->act != SK_DO_START) continue;
        return sk_fail(SK_ECONF,
                       "layout: '%s' is a collective in every step, in which a rank that is late "
                       "is not there; sync=%s does without any: take an optimizer that works on "
                       "each element by itself, as adamw, and no other word that communicates",
                       p->calls.v[in->call].what, way(e));
    }
    return SK_OK;
}

static bool has_factors(const sk_optim *o) { return o->factors; }
static bool perturbs(const sk_optim *o) { return o->perturb != NULL; }

/* The name of the optimizer, of all or of a group, that is such a one. */
static const char *optim_with(const sk_lowering *e, bool (*is)(const sk_optim *o))
{
    for (int g = 0; g < e->opts->n_groups; g++)
        if (is(e->opts->groups[g].optim)) return e->opts->groups[g].optim->name;
    return e->opts->optim->name;
}

static sk_status all_is_shared(const sk_lowering *e)
{
    const sk_program *p = e->p;
    if (p->memories.n)
        return sk_fail(SK_ECONF,
                       "layout: '%s' is kept from step to step for the samples of each rank, and "
                       "with sync=%s a rank may leave out steps; leave out one of them",
                       p->bufs.v[p->memories.v[0]].name, way(e));
    if (p->n_extras)
        return sk_fail(SK_ECONF,
                       "layout: the optimizer %s has sums of the backward pass beside gradients, "
                       "and sync=%s commits gradients alone; take another, as adamw",
                       optim_with(e, has_factors), way(e));
    if (p->phases > 1)
        return sk_fail(SK_ECONF,
                       "layout: the optimizer %s takes %d gradients a step, and sync=%s commits "
                       "one; take another, as adamw",
                       optim_with(e, perturbs), p->phases, way(e));
    if (p->noise.part > 0)
        return sk_fail(SK_ECONF,
                       "layout: train.noise compares the gradients of all ranks, and with sync=%s "
                       "a step has those that came; leave out one of them",
                       way(e));
    if (p->ema > 0 && sk_layout_stale(e->l) >= 0)
        return sk_fail(SK_ECONF,
                       "optim.ema averages the weights of steps, and with sync=%s each step has "
                       "as many updates as ranks; take optim.ema=0",
                       way(e));
    return SK_OK;
}

/* It would always be the first, with a gradient of nothing. */
static sk_status has_samples(const sk_lowering *e)
{
    const char batch[] = {e->g->batch, 0};
    const sk_program *p = e->p;
    int axis = sk_timed_axis(e->l), ranks = e->l->mesh.size[axis];
    sk_state s = {0};
    s.how[axis] = SK_SPLIT;
    for (int m = 0; m < p->n_micro; m++)
        if (sk_shard_of(e->g, e->l, batch, &s, p->coord, m, p->n_micro).size[0] > 0) return SK_OK;
    return sk_fail(
        SK_ECONF,
        "layout: rank %d has no samples: a batch of %lld in %d micro-batch%s leaves some "
        "of %d ranks without, and with sync=%s they do not wait for the others; take a "
        "train.batch of %d or more, fewer micro-batches or fewer ranks",
        p->rank, (long long)e->g->size[(int)e->g->batch & 127], p->n_micro,
        p->n_micro == 1 ? "" : "es", ranks, way(e), ranks * p->n_micro);
}

sk_status sk_check_timed(const sk_lowering *e)
{
    if (sk_timed_axis(e->l) < 0) return SK_OK;
    SK_TRY(one_host(e));
    SK_TRY(has_samples(e));
    SK_TRY(all_is_shared(e));
    return no_calls(e);
}
