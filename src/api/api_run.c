/* api_run.c - a run of the library: opening it, requests to ranks, steps.
 *
 * A step is that of train/loop.c, without checkpoints, metrics and console: the same
 * rate, scale of gradients, count of updates and random numbers, so that losses have
 * the same bits. */
#include "api/running.h"
#include "device/blas_setup.h"
#include "train/fits.h"
#include "train/layout_cause.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TICK_MS = 100 }; /* between two looks for a process that died */
static const double grace_s = 2;

/* --- requests --- */

static bool all_answered(const skein_run *r, long long number)
{
    for (int k = 0; k < r->ranks.n; k++)
        if (atomic_load(&r->slots[k].answered) != number && !sk_rank_over(&r->ranks, k))
            return false;
    return true;
}

static void nap(skein_run *r)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += TICK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    sem_timedwait(&r->control->done, &until);
    if (r->ranks.processes) sk_ranks_poll(&r->ranks);
}

static sk_status hear(skein_run *r)
{
    while (!all_answered(r, r->control->number)) nap(r);
    sk_status st = sk_heaps_failure(r->heaps);
    r->broken |= st != SK_OK;
    return st;
}

sk_status sk_run_request(skein_run *r, sk_request_kind kind)
{
    if (r->broken) return sk_heaps_failure(r->heaps);
    sk_assert(r->started && r->ranks.n > 0);
    r->control->kind = kind;
    r->control->number++;
    for (int k = 0; k < r->ranks.n; k++) sem_post(&r->slots[k].go);
    return hear(r);
}

/* --- opening --- */

/* What only `skein train` can do. */
static sk_status suits(const skein_program *p, int flags)
{
    const sk_job *job = &p->job;
    if (!p->all)
        return sk_fail(SK_EUSAGE, "skein_run_open: the program is a plan of skein_plan(); a run "
                                  "needs that of skein_compile()");
    if (flags & ~(SKEIN_PROCESSES | SKEIN_DATA))
        return sk_fail(SK_EUSAGE,
                       "skein_run_open: flags are %d; SKEIN_PROCESSES and SKEIN_DATA "
                       "are known",
                       flags);
    const sk_layout *l = &p->setup.layout;
    const char *key = *job->relayout                       ? "train.relayout"
                      : *job->batch_schedule               ? "train.batch_schedule"
                      : p->setup.fallback && job->dropless ? "train.dropless"
                      : p->setup.fallback ? sk_layout_cause(p->setup.arena, l, sk_layout_may_fill)
                      : !strcmp(job->nonfinite, "rollback") ? "train.nonfinite=rollback"
                      : job->time_limit > 0                 ? "train.time"
                      : job->adascale                       ? "optim.adascale"
                      : *job->resume                        ? "resume"
                                                            : NULL;
    if (key) return sk_fail(SK_ECONF, "skein_run_open: %s is for skein train; leave it out", key);
    return SK_OK;
}

static int64_t lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/* Beside the heaps: control block, slots of ranks, batch. */
static sk_status open_heaps(skein_run *r)
{
    const sk_setup *s = &r->program->setup;
    int64_t control = lines(sizeof *r->control), slots = s->n_ranks * lines(sizeof *r->slots);
    int64_t *bytes = sk_many(&r->arena, int64_t, s->n_ranks);
    sk_heap_aliases aliases =
        sk_program_shared(&r->arena, (const sk_program *const *)s->programs, s->n_ranks, bytes);
    bool shared = (r->flags & SKEIN_PROCESSES) != 0;
    sk_inputs_list(r);
    SK_TRY(sk_heaps_open_aliased(s->n_ranks, bytes, aliases, shared,
                                 (size_t)(control + slots + sk_inputs_bytes(r)), &r->heaps));
    char *extra = sk_heaps_extra(r->heaps);
    r->control = (sk_run_control *)(void *)extra;
    r->slots = (sk_run_slot *)(void *)(extra + control);
    sk_inputs_place(r, extra + control + slots);
    sem_init(&r->control->done, shared, 0);
    for (int k = 0; k < s->n_ranks; k++) sem_init(&r->slots[k].go, shared, 0);
    return SK_OK;
}

static sk_status open_data(skein_run *r)
{
    skein_program *p = r->program;
    if (!(r->flags & SKEIN_DATA)) return SK_OK;
    sk_inputs_list(r);
    SK_TRY(sk_inputs_suit(r));
    r->n_inputs = 0;
    if (!p->data) SK_TRY(sk_setup_data(&p->setup));
    p->data = true;
    return SK_OK;
}

static sk_status open_run(skein_run *r)
{
    const sk_setup *s = &r->program->setup;
    const sk_job *job = s->job;
    bool processes = (r->flags & SKEIN_PROCESSES) != 0;
    SK_TRY(open_data(r));
    SK_TRY(sk_fits_host(s, !processes));
    if (!processes) SK_TRY(sk_blas_reserve(s->n_ranks * s->threads));
    SK_TRY(open_heaps(r));
    SK_TRY(sk_setup_rates(job, job->steps, &r->rate));
    r->scale = sk_loss_scale_begin(job->dtype, sk_nonfinite_find(job->nonfinite),
                                   (double)(job->batch * job->seq));
    sk_outputs_list(r);
    r->caller = getpid();
    r->control->number = 1;
    r->started = true;
    r->ranks.n = s->n_ranks; /* ranks see it before the start is over */
    r->ranks.processes = processes;
    SK_TRY(sk_ranks_start(&r->arena, r->heaps, s->n_ranks, processes, sk_rank_life, r, &r->ranks));
    SK_TRY(hear(r));
    sk_tensors_list(r);
    return SK_OK;
}

int skein_run_open(skein_program *p, int flags, skein_run **out)
{
    SK_ENTER;
    SK_NEED(p);
    SK_NEED(out);
    SK_TELL(suits(p, flags));
    sk_arena a = {0};
    skein_run *r = sk_new(&a, skein_run);
    r->arena = a;
    r->program = p;
    r->flags = flags;
    r->own_lr = -1;
    sk_program_hold(p);
    sk_status st = open_run(r);
    if (st) skein_run_close(r);
    else *out = r;
    return (int)(st ? sk_trail(st, SK_HERE) : SK_OK);
}

void skein_run_close(skein_run *r)
{
    if (!r) return;
    if (r->started) {
        r->control->kind = SK_REQUEST_END;
        for (int k = 0; k < r->ranks.n; k++) sem_post(&r->slots[k].go);
        sk_ranks_end(&r->ranks, grace_s);
    }
    if (r->heaps) sk_heaps_close(r->heaps);
    skein_program_close(r->program);
    sk_arena a = r->arena; /* r itself lies in it */
    sk_arena_end(&a);
}

/* --- steps --- */

/* All ranks saw the same sums. */
static sk_status numbers(skein_run *r, const sk_step_out *out)
{
    bool apart = r->program->setup.programs[0]->async;
    if (sk_loss_scale_step(&r->scale, out->loss, out->finite) && (out->finite || !apart))
        return SK_OK;
    return sk_fail(SK_ENUM, "step %lld: loss %g, norm of the gradient %g; they must be finite. %s",
                   (long long)r->done + 1, sk_printable(out->loss), sk_printable(out->grad_norm),
                   apart ? "Stages update on their own within a step: weights were changed"
                         : "Weights were not changed");
}

static sk_status step(skein_run *r, skein_step *out)
{
    SK_ENTER; /* not around on_step, which is the caller's */
    int64_t each = r->program->setup.programs[0]->n_updates;
    bool own = r->own_lr >= 0;
    double lr = own ? r->own_lr : sk_lr_at(&r->rate, r->done);
    SK_TRY(sk_inputs_check(r));
    r->control->in = (sk_step_in){.step = r->done,
                                  .lr = lr,
                                  .momentum = own ? 0 : sk_lr_momentum(&r->rate, r->done),
                                  .shift = r->updates - r->done * each,
                                  .loss_scale = r->scale.value};
    r->step_finite = false;
    SK_TRY(sk_run_request(r, SK_REQUEST_STEP));
    sk_inputs_used(r);
    const sk_step_out *got = &r->control->out;
    SK_TRY(numbers(r, got));
    r->done++;
    r->step_finite = got->finite;
    r->step_tokens = got->tokens;
    r->step_scale = r->control->in.loss_scale;
    if (got->finite) r->updates += each;
    *out = (skein_step){.step = r->done,
                        .loss = got->loss,
                        .norm = got->grad_norm,
                        .lr = lr,
                        .tokens = got->tokens,
                        .seconds = got->seconds,
                        .waited = got->waited,
                        .skipped = !got->finite};
    return SK_OK;
}

int skein_run_step(skein_run *r, skein_step *out)
{
    skein_step s = {0};
    SK_NEED(r);
    if (out)
        SK_TELL(sk_struct_to_caller(__func__, out, &s,
                                    sizeof s)); /* its size, before anything happens */
    SK_TELL(step(r, &s));
    return out ? (int)sk_struct_to_caller(__func__, out, &s, sizeof s) : SK_OK;
}

int skein_run_steps(skein_run *r, int64_t n, skein_on_step *on_step, void *ctx)
{
    SK_NEED(r);
    if (n < 0) return (int)sk_fail(SK_EUSAGE, "skein_run_steps: %lld steps", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        skein_step s = {0};
        SK_TELL(step(r, &s));
        s.size = sizeof s;
        if (on_step && on_step(r, &s, ctx))
            return (int)sk_fail(SK_ESTOP, "stopped by the caller after step %lld",
                                (long long)r->done);
    }
    return SK_OK;
}

int skein_run_validate(skein_run *r, double *loss)
{
    SK_ENTER;
    SK_NEED(r);
    SK_NEED(loss);
    const sk_setup *s = &r->program->setup;
    if (!s->job->val_every)
        return (int)sk_fail(SK_EUSAGE,
                            "skein_run_validate: the job says val.every=0, so its programs "
                            "have no validation; leave it out");
    if (r->flags & SKEIN_DATA && !s->has_val)
        return (int)sk_fail(SK_EUSAGE,
                            "skein_run_validate: there are no validation data; data.val or "
                            "data.val_fraction brings them");
    SK_TELL(sk_inputs_check(r));
    r->control->batch = r->validated;
    SK_TELL(sk_run_request(r, SK_REQUEST_VALIDATE));
    sk_inputs_used(r);
    r->validated++;
    *loss = r->control->out.loss;
    return SK_OK;
}

int skein_run_rate(skein_run *r, double lr)
{
    SK_ENTER;
    SK_NEED(r);
    if (!isfinite(lr))
        return (int)sk_fail(SK_EUSAGE, "skein_run_rate: the learning rate is %g", lr);
    r->own_lr = lr < 0 ? -1 : lr;
    return SK_OK;
}
