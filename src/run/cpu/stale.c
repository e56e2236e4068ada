/* stale.c - each rank updates the weights by itself, at most S steps ahead of the slowest
 * (sync=ssp:S; Ho et al. 2013).
 *
 * The rate is that of the step over the number of ranks, as each of them makes an update; the
 * optimizer counts updates of all ranks.  What a step reports is told by rank 0: of all updates
 * since it told last. */
#include "run/timed.h"
#include "base/clock.h"
#include "run/cpu/optimize.h"

/* Turns before this training: two of each rank in each step. */
static int64_t first_turn(const sk_run *r)
{
    return SK_N_TURNS * (int64_t)r->p->n_ranks * r->stale_from;
}

void sk_stale_begin(sk_run *r, const sk_step_in *in)
{
    const sk_commit_opts *o = &r->opts.commit;
    if (r->stale_from < 0) r->stale_from = in->step;
    sk_turn_begin(r->comm, in->step);
    for (int k = 0; k < SK_N_TURNS; k++) r->turn[k] = -1;
    if (o->imposed_turns && !o->imposed_turns(o->ctx, in->step, r->turn))
        for (int k = 0; k < SK_N_TURNS; k++) r->turn[k] = -1;
    r->lr = in->lr / r->p->n_ranks;
}

/* My turn: the newest weights. */
static sk_status take(sk_run *r, int which)
{
    SK_TRY(sk_turn_take(r->comm, first_turn(r), r->turn[which], &r->turn[which]));
    sk_turn_state *s = sk_turn_state_of(r->comm);
    if (!s->begun) *s = (sk_turn_state){.begun = true, .updates = r->step + r->shift};
    if (s->newest && s->newest != r->p->rank + 1) sk_take_weights(r, s->newest - 1);
    return SK_OK;
}

sk_status sk_do_pull(sk_run *r)
{
    double before = sk_now();
    const sk_layout *l = &r->p->layout;
    int stale = l->sync[sk_layout_stale(l)].stale;
    SK_TRY(sk_turn_bound(r->comm, r->step, stale == SK_ANY_STALENESS ? -1 : stale - 1));
    SK_TRY(take(r, SK_TURN_READ));
    sk_turn_end(r->comm);
    r->waited += sk_now() - before;
    return SK_OK;
}

sk_status sk_do_push(sk_run *r)
{
    double before = sk_now();
    SK_TRY(take(r, SK_TURN_UPDATE));
    r->shift = sk_turn_state_of(r->comm)->updates - r->step; /* what the optimizer counts */
    r->waited += sk_now() - before;
    return SK_OK;
}

static void add_step(sk_turn_state *s, const sk_step_out *x)
{
    s->loss += x->loss * x->tokens;
    s->aux += x->aux * x->tokens;
    s->tokens += x->tokens;
    s->drops += x->drops;
    s->right += x->right;
}

static void tell(sk_turn_state *s, sk_step_out *to)
{
    double tokens = s->tokens > 0 ? s->tokens : 1;
    to->loss = s->loss / tokens;
    to->aux = s->aux / tokens;
    to->tokens = s->tokens;
    to->drops = s->drops;
    to->right = s->right;
    s->loss = s->aux = s->tokens = s->drops = s->right = 0;
}

/* Numbers that are not finite end the run: nobody takes a turn after them. */
sk_status sk_stale_end(sk_run *r, sk_step_out *out)
{
    const sk_commit_opts *o = &r->opts.commit;
    if (!out->finite) return SK_OK;
    sk_turn_state *s = sk_turn_state_of(r->comm);
    add_step(s, out);
    if (!r->p->rank) tell(s, out);
    s->newest = r->p->rank + 1;
    s->updates++;
    if (o->updated) SK_TRY(o->updated(o->ctx, r->step, r->turn, sk_turn_ahead(r->comm)));
    sk_turn_done(r->comm, r->step + 1);
    sk_turn_end(r->comm);
    return SK_OK;
}

sk_status sk_run_settle(sk_run *r, int64_t *updates, double *tokens)
{
    if (sk_layout_stale(&r->p->layout) < 0) return SK_OK;
    SK_TRY(sk_turn_settle(r->comm)); /* slower ranks have any number of steps to go */
    SK_TRY(sk_run_barrier(r));
    sk_turn_state *s = sk_turn_state_of(r->comm);
    if (s->newest && s->newest != r->p->rank + 1) sk_take_weights(r, s->newest - 1);
    if (s->begun) *updates = s->updates;
    *tokens = r->p->rank ? 0 : s->tokens;
    SK_TRY(sk_run_barrier(r));
    if (!r->p->rank) tell(s, &(sk_step_out){0});
    return sk_run_barrier(r);
}
