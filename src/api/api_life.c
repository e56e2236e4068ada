/* api_life.c - one rank of a run: it opens its end and then serves requests. */
#include "api/running.h"
#include "base/clock.h"
#include "plan/deadline.h"
#include "run/flight.h"
#include "train/fits.h"
#include "train/hf.h"
#include "train/model_export.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

typedef struct life {
    skein_run *r;
    int rank;
    sk_arena arena;
    sk_run *run;
    sk_flight_book book;
} life;

/* --- beginning --- */

static sk_status load_model(life *l)
{
    const sk_setup *s = &l->r->program->setup;
    const sk_job *job = s->job;
    int n_shapes = 0, n = 0;
    sk_tensor_shard *boxes;
    const sk_hf_shape *shapes = sk_hf_shapes(&l->arena, &s->graph, &n_shapes);
    SK_TRY(sk_hf_check(job->model_dir, job->model, &job->hyper, shapes, n_shapes,
                       (sk_chunk_share){l->rank, s->n_ranks}));
    sk_run_shards(l->run, &l->arena, &boxes, &n);
    n = sk_shards_sort(&s->graph, boxes, n);
    for (int i = 0; i < n; i++) boxes[i] = sk_shard_each(&boxes[i]);
    SK_TRY(sk_hf_load(job->model_dir, job->model, &job->hyper, shapes, n_shapes, boxes, n));
    sk_run_average_shards(l->run, &l->arena, &boxes, &n);
    SK_TRY(sk_hf_load(job->model_dir, job->model, &job->hyper, shapes, n_shapes, boxes, n));
    return sk_run_push(l->run);
}

static sk_status begin(life *l)
{
    const sk_setup *s = &l->r->program->setup;
    const sk_job *job = s->job;
    bool data = (l->r->flags & SKEIN_DATA) != 0;
    l->book.all = (const sk_program *const *)s->programs;
    sk_run_opts o = {.fill = data ? sk_setup_fill : sk_inputs_fill,
                     .fill_ctx = data ? (void *)s : (void *)l->r,
                     .seed = job->seed,
                     .knobs = sk_setup_knobs(job),
                     .timeout_s = sk_timeout(job->timeout, s->programs[l->rank], l->r->heaps),
                     .scratch = *job->scratch ? job->scratch : NULL,
                     .where = sk_flight_where,
                     .where_ctx = &l->book,
                     .device = job->device,
                     .no_memory = sk_fits_device,
                     .no_memory_ctx = (void *)s};
    SK_TRY(sk_run_open(&l->arena, s->programs[l->rank], l->r->heaps, &o, &l->run));
    SK_TRY(sk_run_init(l->run, job->seed));
    if (*job->model_dir) SK_TRY(load_model(l));
    return sk_run_barrier(l->run);
}

/* --- requests --- */

/* False: the caller is gone. */
static bool next_request(const life *l)
{
    sk_run_slot *slot = &l->r->slots[l->rank];
    const int64_t look = 1; /* seconds between two looks for the caller */
    for (;;) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += look;
        if (!sem_timedwait(&slot->go, &until)) return true;
        if (l->r->ranks.processes && getppid() != l->r->caller) return false;
    }
}

static sk_status serve(life *l)
{
    sk_run_control *b = l->r->control;
    sk_step_out out = {0};
    sk_status st = SK_OK;
    switch (b->kind) {
    case SK_REQUEST_STEP:
        st = sk_run_step(l->run, &b->in, &out);
        break;
    case SK_REQUEST_VALIDATE:
        st = sk_run_mean(l->run);
        if (!st) st = sk_run_validate(l->run, b->batch, &out);
        break;
    case SK_REQUEST_PULL:
        st = sk_run_pull(l->run);
        break;
    case SK_REQUEST_PUSH:
        st = sk_run_push(l->run);
        break;
    case SK_REQUEST_PULL_SUM:
        st = sk_output_pull(l->r, l->rank, l->run);
        break;
    default:
        break;
    }
    if (!st && !l->rank) b->out = out;
    return st;
}

/* A failure is reported before the request is answered. */
static void answer(const life *l, long long number, sk_status st)
{
    if (st) sk_heaps_abort(l->r->heaps, st, l->rank, sk_error_line());
    atomic_store(&l->r->slots[l->rank].answered, number);
    sem_post(&l->r->control->done);
}

sk_status sk_rank_life(void *ctx, int rank)
{
    SK_ENTER;
    life l = {.r = ctx, .rank = rank};
    sk_status st = begin(&l);
    answer(&l, 1, st);
    while (!st) {
        if (!next_request(&l) || l.r->control->kind == SK_REQUEST_END) break;
        long long number = l.r->control->number;
        st = serve(&l);
        answer(&l, number, st);
    }
    if (l.run) sk_run_close(l.run);
    sk_arena_end(&l.arena);
    return st;
}
