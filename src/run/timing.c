/* timing.c - collectives and steps by the clock. */
#include "run/timing.h"
#include "base/clock.h"
#include "run/crew.h"

#include <stdlib.h>
#include <string.h>

enum { TABLE = 4096, MOST_TIMES = 400, WARM = 2 };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double at(const double *sorted, int n, double part)
{
    return sorted[(int)(part * (n - 1) + 0.5)];
}

/* --- collectives --- */

typedef struct coll_job {
    sk_heaps *heaps;
    sk_coll_kind kind;
    int n_ranks, times;
    int64_t elements, src_at, dst_at;
    double *seconds; /* [rank * times + k], shared */
    int64_t *wrong;  /* by rank, shared */
} coll_job;

static float value(int rank, int64_t i) { return (float)((i * 7 + rank * 3) % 61); }

static float expected(const coll_job *j, int64_t i)
{
    float sum = 0;
    if (j->kind == SK_ALLGATHER) {
        int owner = 0;
        while (i >= j->elements * (owner + 1) / j->n_ranks) owner++;
        return value(owner, i);
    }
    for (int r = 0; r < j->n_ranks; r++) sum += value(r, i); /* small whole numbers: exact */
    return sum;
}

static void lay(const coll_job *j, int rank, char *base)
{
    sk_coll_call *call = (sk_coll_call *)(void *)base;
    int64_t from = j->elements * rank / j->n_ranks, to = j->elements * (rank + 1) / j->n_ranks;
    bool gather = j->kind == SK_ALLGATHER;
    float *src = (float *)(void *)(base + j->src_at);
    *call = (sk_coll_call){
        .id = 1, .kind = j->kind, .reduce = SK_SUM, .type = SK_F32, .n_segs = 1, .algorithm = -1};
    call->segs[0] = (sk_seg){j->src_at, j->dst_at, 1, j->elements, 1};
    if (!gather) from = 0, to = j->elements;
    for (int64_t i = from; i < to; i++) src[i - from] = value(rank, i);
}

static int64_t count_wrong(const coll_job *j, int rank, const char *base)
{
    int64_t from = j->elements * rank / j->n_ranks, to = j->elements * (rank + 1) / j->n_ranks;
    const float *dst = (const float *)(const void *)(base + j->dst_at);
    int64_t wrong = 0;
    if (j->kind != SK_REDUCE_SCATTER) from = 0, to = j->elements;
    for (int64_t i = from; i < to; i++) wrong += dst[i - from] != expected(j, i);
    return wrong;
}

static sk_status once(sk_comm *c, const sk_coll_call *call, double *seconds)
{
    SK_TRY(sk_comm_barrier(c));
    double start = sk_now();
    SK_TRY(sk_comm_start(c, call));
    SK_TRY(sk_comm_wait(c, call));
    if (seconds) *seconds = sk_now() - start;
    return SK_OK;
}

static sk_status coll_rank(void *ctx, int rank)
{
    coll_job *j = ctx;
    sk_arena a = {0};
    int *ranks = sk_many(&a, int, j->n_ranks);
    for (int r = 0; r < j->n_ranks; r++) ranks[r] = r;
    sk_group all = {.n = j->n_ranks, .me = rank, .ranks = ranks};
    char *base = sk_heap_base(j->heaps, rank);
    const sk_coll_call *call = (const sk_coll_call *)(void *)base;
    sk_comm *c = NULL;
    sk_comm_opts ends = {.rank = rank, .groups = &all, .n_groups = 1, .timeout_s = 60};
    SK_TRY(sk_comm_open(j->heaps, &ends, &c));
    lay(j, rank, base);
    for (int k = -WARM; k < j->times; k++)
        SK_TRY(once(c, call, k < 0 ? NULL : &j->seconds[rank * j->times + k]));
    memset(base + j->dst_at, 0xff, (size_t)j->elements * 4);
    SK_TRY(once(c, call, NULL));
    j->wrong[rank] = count_wrong(j, rank, base);
    sk_comm_close(c);
    sk_arena_end(&a);
    return SK_OK;
}

static void sum_up(const coll_job *j, sk_coll_timing *out)
{
    double slowest[MOST_TIMES];
    *out = (sk_coll_timing){.times = j->times};
    for (int k = 0; k < j->times; k++) {
        slowest[k] = 0;
        for (int r = 0; r < j->n_ranks; r++) {
            double s = j->seconds[r * j->times + k];
            if (s > slowest[k]) slowest[k] = s;
        }
    }
    qsort(slowest, (size_t)j->times, sizeof *slowest, by_size);
    out->median = at(slowest, j->times, 0.5);
    out->p10 = at(slowest, j->times, 0.1);
    out->p90 = at(slowest, j->times, 0.9);
    for (int r = 0; r < j->n_ranks; r++) out->wrong += j->wrong[r];
}

sk_status sk_time_coll(sk_coll_kind kind, int64_t bytes, int n_ranks, sk_coll_timing *out)
{
    sk_arena tmp = {0};
    int64_t room = (bytes + 4095) / 4096 * 4096, *heap = sk_many(&tmp, int64_t, n_ranks);
    coll_job j = {.kind = kind, .n_ranks = n_ranks, .elements = bytes / 4};
    j.times = (int)((64 << 20) / (bytes + 1)); /* some tenths of a second each */
    j.times = j.times < 10 ? 10 : j.times > MOST_TIMES ? MOST_TIMES : j.times;
    j.src_at = TABLE;
    j.dst_at = TABLE + room;
    for (int r = 0; r < n_ranks; r++) heap[r] = TABLE + 2 * room;
    size_t extra = ((size_t)n_ranks * (size_t)j.times + (size_t)n_ranks) * sizeof(double);
    sk_status st = sk_heaps_open(n_ranks, heap, true, extra, &j.heaps);
    if (!st) {
        j.seconds = sk_heaps_extra(j.heaps);
        j.wrong = (int64_t *)(void *)(j.seconds + (int64_t)n_ranks * j.times);
        st = sk_crew_run(j.heaps, n_ranks, coll_rank, &j);
        if (!st) sum_up(&j, out);
        sk_heaps_close(j.heaps);
    }
    sk_arena_end(&tmp);
    return st;
}

/* --- steps --- */

typedef struct step_note {
    double seconds[SK_TIMED_STEPS], waited, total, loss[SK_TIMED_STEPS], tokens;
} step_note;

typedef struct step_job {
    const sk_program *const *programs;
    const sk_run_opts *opts;
    sk_heaps *heaps;
    double lr;
    int steps;
    step_note *notes; /* by rank, shared */
} step_job;

static sk_status steps_of(step_job *j, sk_run *run, step_note *note)
{
    sk_step_out out = {0};
    sk_run_init(run, j->opts->seed);
    SK_TRY(sk_run_barrier(run));
    for (int s = 0; s < j->steps; s++) {
        SK_TRY(sk_run_step(run, &(sk_step_in){.step = s, .lr = j->lr}, &out));
        note->loss[s] = out.loss;
        note->seconds[s] = out.seconds;
        note->tokens = out.tokens;
        if (s < WARM) continue;
        note->waited += out.waited;
        note->total += out.seconds;
    }
    return SK_OK;
}

static sk_status step_rank(void *ctx, int rank)
{
    step_job *j = ctx;
    sk_arena a = {0};
    sk_run *run = NULL;
    SK_TRY(sk_run_open(&a, j->programs[rank], j->heaps, j->opts, &run));
    sk_status st = steps_of(j, run, &j->notes[rank]);
    sk_run_close(run);
    sk_arena_end(&a);
    return st;
}

static void read_notes(const step_job *j, int n_ranks, sk_step_timing *out)
{
    double sorted[SK_TIMED_STEPS], waited = 0, total = 0;
    int n = j->steps - WARM;
    memcpy(sorted, j->notes[0].seconds + WARM, sizeof *sorted * (size_t)n);
    qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    for (int r = 0; r < n_ranks; r++) {
        waited += j->notes[r].waited;
        total += j->notes[r].total;
    }
    *out = (sk_step_timing){.seconds = at(sorted, n, 0.5),
                            .waited = total > 0 ? waited / total : 0,
                            .tokens = j->notes[0].tokens,
                            .n = j->steps};
    memcpy(out->loss, j->notes[0].loss, sizeof out->loss);
}

sk_status sk_time_steps(const sk_program *const *programs, const sk_run_opts *o, double lr,
                        int steps, sk_step_timing *out)
{
    sk_arena tmp = {0};
    int n = programs[0]->n_ranks;
    int64_t *heap = sk_many(&tmp, int64_t, n);
    step_job j = {.programs = programs, .opts = o, .lr = lr, .steps = steps + WARM};
    sk_assert(steps > 0 && j.steps <= SK_TIMED_STEPS);
    for (int r = 0; r < n; r++) heap[r] = programs[r]->heap_bytes;
    sk_status st = sk_heaps_open(n, heap, true, sizeof(step_note) * (size_t)n, &j.heaps);
    if (!st) {
        j.notes = sk_heaps_extra(j.heaps);
        st = sk_crew_run(j.heaps, n, step_rank, &j);
        if (!st) read_notes(&j, n, out);
        sk_heaps_close(j.heaps);
    }
    sk_arena_end(&tmp);
    return st;
}
