/* setup_programs.c - the programs of a job: compiled for all ranks or for one rank of each class,
 * and verified. */
#include "train/setup.h"
#include "program/class_program.h"
#include "train/backward_outputs.h"
#include "train/fallback.h"
#include "train/loss_scale.h"
#include "train/relayout.h"

#include <string.h>

bool sk_setup_on_gpu(const sk_job *job) { return !strncmp(job->device, "cuda", 4); }

/* Between GPUs pins are not for NCCL, so they must not change the program either. */
sk_compile_opts sk_setup_opts(const sk_setup *s)
{
    bool gpu = sk_setup_on_gpu(s->job);
    return (sk_compile_opts){.optim = s->optim,
                             .knob = s->job->knob,
                             .groups = s->job->n_groups ? s->job->group : NULL,
                             .n_groups = s->job->n_groups,
                             .n_micro = s->n_micro,
                             .threads = s->threads,
                             .validate = s->job->val_every != 0,
                             .host_of = s->job->host_of,
                             .costs = s->job->costs,
                             .pins = gpu ? (sk_pins){0} : s->pins,
                             .links = s->links,
                             .any_order = !strcmp(s->job->order, "any"),
                             .bucket_bytes = s->job->bucket,
                             .state_type = s->job->state_dtype,
                             .late = s->job->late,
                             .noise = s->job->noise,
                             .all_told = s->job->all_told ||
                                         sk_nonfinite_find(s->job->nonfinite) == SK_ROLLBACK,
                             .told = *s->job->backward != 0,
                             .matrix_work = sk_matrix_work_find(s->job->matrix_work),
                             .ema = s->job->ema,
                             .gpu = gpu};
}

static sk_status compile_one(const sk_setup *s, sk_arena *a, int rank, sk_program **out)
{
    sk_compile_opts o = sk_setup_opts(s);
    o.plan = s->plan;
    return sk_compile(a, &s->graph, &s->layout, &o, rank, out);
}

sk_status sk_setup_compile(sk_setup *s, int rank, sk_program **out)
{
    return compile_one(s, s->arena, rank, out);
}

static sk_status compile_all(sk_setup *s)
{
    s->n_classes = s->n_ranks;
    for (int r = 0; r < s->n_ranks; r++) {
        s->class_of[r] = s->first_of[r] = r;
        SK_TRY(sk_setup_compile(s, r, &s->programs[r]));
    }
    return sk_verify((const sk_program *const *)s->programs, s->n_ranks);
}

/* One of each kind: classes are numbered as they appear. */
static sk_status compile_firsts(sk_setup *s)
{
    int made = 0;
    for (int r = 0; r < s->n_ranks && made < s->n_classes; r++) {
        if (s->class_of[r] != made) continue;
        s->first_of[made++] = r;
        SK_TRY(sk_setup_compile(s, r, &s->programs[r]));
    }
    return SK_OK;
}

static sk_status compile_shapes(sk_setup *s)
{
    s->n_classes = sk_shapes(s->plan, s->class_of);
    if (s->n_classes >= 0) return compile_firsts(s);
    SK_TRY(sk_setup_compile(s, 0, &s->programs[0])); /* it may have a better error report */
    return sk_too_many_shapes(s->plan);
}

/* With few ranks a class, classes save nothing. */
static sk_status compile_classes(sk_setup *s)
{
    s->n_classes = sk_classes(s->plan, s->class_of);
    if (s->n_classes < 0 || 2 * s->n_classes > s->n_ranks) return compile_all(s);
    SK_TRY(compile_firsts(s));
    if (!sk_program_stands(s->programs[0])) return compile_all(s);
    for (int r = 0; r < s->n_ranks; r++) s->programs[r] = s->programs[s->first_of[s->class_of[r]]];
    return sk_verify((const sk_program *const *)s->programs, s->n_ranks);
}

static sk_status compile(sk_setup *s, sk_status (*some)(sk_setup *s))
{
    sk_compile_opts o = sk_setup_opts(s);
    SK_TRY(sk_plan_graph(s->arena, &s->graph, &s->layout, &o, &s->plan));
    s->programs = sk_many(s->arena, sk_program *, s->n_ranks);
    s->class_of = sk_many(s->arena, int, s->n_ranks);
    s->first_of = sk_many(s->arena, int, s->n_ranks);
    SK_TRY(some(s));
    return sk_setup_check_async(s); /* behind what cannot be in any case */
}

/* So far only the program of its class was verified.  Shared weights lie in the memory of another
 * rank: then both programs are verified together. */
static sk_status verify_own(const sk_setup *s, int rank, const sk_program *own)
{
    sk_arena tmp = {0};
    sk_program *owner = NULL;
    SK_TRY(sk_verify_rank(own, s->programs[rank]));
    if (own->shares_with == rank) return SK_OK;
    sk_status st = compile_one(s, &tmp, own->shares_with, &owner);
    if (!st) st = sk_verify_pair(own, owner);
    sk_arena_end(&tmp);
    return st;
}

sk_status sk_setup_own_program(const sk_setup *s, sk_arena *a, int rank, const sk_program **out)
{
    sk_program *own = s->programs[rank];
    if (own->rank != rank) {
        SK_TRY(compile_one(s, a, rank, &own));
        SK_TRY(verify_own(s, rank, own));
    }
    *out = own;
    return SK_OK;
}

/* Is there a fallback program (fallback.h)? */
static bool has_fallback(const sk_setup *s)
{
    return s->job->dropless || sk_layout_may_fill(&s->layout);
}

static sk_status add_programs(sk_setup *s, bool all)
{
    all |= sk_relayout_asked(s->job);
    SK_TRY(compile(s, all ? compile_all : compile_shapes));
    if (has_fallback(s)) return sk_fallback_plan(s, all);
    return sk_relayout_asked(s->job) ? sk_relayout_plan(s) : SK_OK;
}

sk_status sk_setup_second_programs(sk_setup *s)
{
    return sk_relayout_asked(s->job) || has_fallback(s) ? add_programs(s, false) : SK_OK;
}

sk_status sk_setup_program(sk_arena *a, const sk_job *job, bool all, sk_setup *out)
{
    SK_TRY(sk_setup_layout(a, job, out));
    return add_programs(out, all);
}

enum { MOST_HERE = 1 << 16 }; /* ranks of a run on one host: more threads than most systems have */

/* Moves between layouts, and two programs in one heap, differ from rank to rank: then all ranks are
 * compiled. */
sk_status sk_setup_run(sk_arena *a, const sk_job *job, sk_setup *out)
{
    SK_TRY(sk_setup_layout(a, job, out));
    SK_TRY(sk_backward_used(job));
    if (out->n_here > MOST_HERE)
        return sk_fail(SK_ECONF,
                       "layout: %d ranks would run on one host, where %d can; take fewer ranks or "
                       "more hosts (skein plan and simulate take any number)",
                       out->n_here, MOST_HERE);
    if (sk_relayout_asked(job) || has_fallback(out)) return add_programs(out, true);
    return compile(out, compile_classes);
}

const sk_program *sk_setup_program_of(const sk_setup *s, int rank)
{
    sk_assert(rank >= 0 && rank < s->n_ranks && s->class_of[rank] < s->n_classes);
    const sk_program *own = s->programs[rank];
    return own ? own : s->programs[s->first_of[s->class_of[rank]]];
}
