/* loop_nonfinite.c - numbers that are not finite: stop, skip the step, or roll back to the newest
 * checkpoint and skip the batch (train.nonfinite). */
#include "train/loop_state.h"
#include "run/run.h"
#include "train/loss_scale.h"
#include "train/rundir.h"

#include <stdio.h>
#include <string.h>

static const char *newest(sk_loop *l)
{
    return l->tried < 0 ? "none" : sk_print(&l->arena, "that of step %lld", (long long)l->tried);
}

static bool has_no_eps(const sk_optim *o, const double *knob)
{
    int i = sk_optim_knob(o, "eps");
    return i >= 0 && knob[i] == 0 && sk_knob_used(o->knobs, &o->knobs[i], knob);
}

/* What may help, with the likeliest cause in front. */
static const char *hint(sk_loop *l)
{
    const sk_job *job = l->s->job;
    bool zero = has_no_eps(l->s->optim, job->knob), clipped = job->clip > 0 && job->clip <= 1;
    for (int i = 0; i < job->n_groups; i++)
        zero |= has_no_eps(job->group[i].optim, job->group[i].knob);
    return sk_print(&l->arena, "%soptim.lr is %g: a lower one%s a longer optim.warmup%s may help",
                    zero ? "eps is 0: where all gradients so far are 0 a step is 0 / 0, so a "
                           "number over 0 is needed, such as optim.eps=1e-8. Or: "
                         : "",
                    job->lr * l->s->shown_rate, clipped ? " or" : ",",
                    clipped ? "" : " or optim.clip=1");
}

/* The checkpoint that rank 0 found, as it is broadcast to the other ranks. */
typedef struct found {
    sk_status code;
    char why[SK_WHY];
    bool first; /* it is the one that the run began from */
    bool pending;
    int64_t step, tokens, updates, good, skipped;
    double scale, progress;
    sk_noise_scale noise;
    sk_batch_state next;
} found;

static found find_checkpoint(sk_loop *l)
{
    sk_training *t = sk_new(&l->arena, sk_training);
    found f = {.code = sk_rundir_rollback(&l->arena, l->t, l->done, t)};
    if (f.code) {
        snprintf(f.why, sizeof f.why, "%s", sk_error_line());
        return f;
    }
    return (found){.first = !strcmp(t->from, l->t->from),
                   .step = t->step,
                   .tokens = t->tokens,
                   .updates = t->updates,
                   .good = t->good,
                   .skipped = t->skipped,
                   .pending = t->pending,
                   .scale = t->scale,
                   .progress = t->progress,
                   .noise = t->noise,
                   .next = t->next};
}

static sk_status share_checkpoint(sk_loop *l, sk_training *t)
{
    found f = {0};
    if (!l->rank) f = find_checkpoint(l);
    SK_TRY(sk_comm_small_bcast(sk_run_comm(l->run), &f, sizeof f));
    if (f.code) return sk_fail(f.code, "%s", f.why);
    *t = *l->t;
    t->step = f.step;
    t->tokens = f.tokens;
    t->updates = f.updates;
    t->good = f.good;
    t->skipped = f.skipped;
    t->pending = f.pending;
    t->scale = f.scale;
    t->next = f.next;
    t->val = (sk_validation){0}; /* the run did not end there */
    t->progress = f.progress;
    t->noise = f.noise;
    if (!f.first)
        snprintf(t->from, sizeof t->from, "%.*s/step-%010lld", PATH_MAX - 64, l->t->ckpt,
                 (long long)f.step);
    return SK_OK;
}

/* All ranks have synchronised since they last touched weights.  `what` is wrong with `step`, which
 * counts from 0. */
static sk_status roll_back(sk_loop *l, int64_t step, const char *what)
{
    sk_training *t = sk_new(&l->arena, sk_training);
    int64_t batch = sk_batch_of_step(&l->skipped_batches, step);
    sk_status st = share_checkpoint(l, t);
    if (st == SK_ENUM) return sk_fail(st, "%s; %s", what, sk_error_line());
    if (st) return sk_trail(st, SK_HERE);
    l->rollbacks++;
    l->rollbacks_in_row = t->step == l->rollback_step ? l->rollbacks_in_row + 1 : 1;
    l->rollback_step = t->step;
    if (l->rollbacks_in_row > SK_LOSS_SCALE_SKIPS ||
        !sk_skipped_batches_add(&l->skipped_batches, batch))
        return sk_fail(
            SK_ENUM,
            "%s; the run rolled back to the checkpoint of step %lld %d times in a row and skipped "
            "%d batches in all, which is the limit. %s",
            what, (long long)t->step, l->rollbacks_in_row - 1, l->skipped_batches.n, hint(l));
    SK_TRY(sk_loop_load_state(l, t));
    if (l->rank) return SK_OK;
    sk_loop_note(
        l, SK_REC_WARN,
        sk_print(&l->arena,
                 "%s: all ranks roll back to the checkpoint of step %lld and skip batch %lld", what,
                 (long long)l->done, (long long)batch + 1));
    return SK_OK;
}

/* Do stages update within the step?  Then weights have changed, whatever the numbers of the step
 * are.
 */
static bool is_async(const sk_loop *l) { return l->own->async; }

/* own: of replicas that run apart they are this one's, not the sums of all. */
static const char *numbers_of(sk_loop *l, int64_t step, const sk_step_out *out, bool own)
{
    const char *whose = "";
    if (own && sk_loop_alone(l, step))
        whose = sk_print(&l->arena, " of replica %d",
                         sk_layout_replica_of(&l->own->layout, l->own->coord));
    return sk_print(&l->arena, "step %lld%s: loss %g, norm of the gradient %g", (long long)step + 1,
                    whose, sk_printable(out->loss), sk_printable(out->grad_norm));
}

static sk_status bad_numbers(sk_loop *l, int64_t step, const sk_step_out *out, bool own)
{
    const char *what = numbers_of(l, step, out, own);
    if (l->scale.policy == SK_ROLLBACK) return roll_back(l, step, what);
    return sk_fail(SK_ENUM, "%s; they must be finite. %s; the newest checkpoint is %s. %s", what,
                   is_async(l)
                       ? "Stages update asynchronously within a step: weights were changed, and no "
                         "step can be skipped"
                       : "Weights were not changed",
                   newest(l), hint(l));
}

/* All ranks see the same sums, and so decide alike; of replicas that run apart rank 0 is told the
 * sums, when the step has long been skipped. */
sk_status sk_loop_check_numbers(sk_loop *l, int64_t step, const sk_step_out *out)
{
    double before = l->scale.value;
    bool alone = sk_loop_alone(l, step);
    if (!sk_loss_scale_step(&l->scale, out->loss, out->finite) || (!out->finite && is_async(l)))
        return bad_numbers(l, step, out, false);
    if (out->finite || l->rank) return SK_OK;
    const char *who = alone ? "the replica whose numbers they are" : "all ranks";
    sk_loop_note(l, SK_REC_WARN,
                 sk_print(&l->arena, "step %lld: loss %g, norm of the gradient %g: skipped by %s%s",
                          (long long)step + 1, sk_printable(out->loss),
                          sk_printable(out->grad_norm), who,
                          l->scale.value < before
                              ? sk_print(&l->arena, ", the loss scale is now %g", l->scale.value)
                              : ""));
    return SK_OK;
}

/* Whatever others have: this rank ends the run if it is to end. */
sk_status sk_loop_own_numbers(sk_loop *l, const sk_step_out *out)
{
    return out->finite || l->scale.policy == SK_SKIP ? SK_OK : bad_numbers(l, l->done, out, true);
}

sk_status sk_loop_bad_state(sk_loop *l, const char *what)
{
    if (l->scale.policy == SK_ROLLBACK && l->done) return roll_back(l, l->done - 1, what);
    return sk_fail(SK_ENUM, "%s; it is not saved, the newest checkpoint is %s. %s", what, newest(l),
                   hint(l));
}
