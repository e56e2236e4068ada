/* step_timing.c - training steps by the clock. */
#include "plan/step_timing.h"
#include "base/clock.h"
#include "plan/deadline.h"
#include "plan/workers.h"
#include "run/slow_kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>

enum { WARM = SK_TIMED_WARM, MOST = 1 << 20 };

/* --- intervals --- */

static int common(int a, int b)
{
    int x = a, y = b;
    while (y) {
        int rest = x % y;
        x = y;
        y = rest;
    }
    return b < MOST && a / x < MOST / b ? a / x * b : MOST;
}

int sk_steps_interval(const sk_program *const *programs)
{
    int interval = 1;
    for (int r = 0; r < programs[0]->n_ranks; r++)
        for (int i = 0; i < programs[r]->n_train; i++) {
            const sk_inst *in = &programs[r]->insts.v[i];
            if (in->every > 1) interval = common(interval, in->every);
            if (in->sync.steps > 1 && !in->sync.until) interval = common(interval, in->sync.steps);
        }
    return interval;
}

int sk_steps_whole(int steps, int interval)
{
    int whole = (steps + interval - 1) / interval * interval;
    return whole + WARM <= SK_TIMED_STEPS ? whole : steps;
}

/* --- ranks --- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct step_note {
    double seconds[SK_TIMED_STEPS], waited, total, loss[SK_TIMED_STEPS], tokens;
    double cores;           /* a step */
    int64_t wire;           /* all that are timed */
    sk_device_facts device; /* of a GPU */
    char slow[SK_TIMED_WORDS];
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
    SK_TRY(sk_run_init(run, j->opts->seed));
    SK_TRY(sk_run_barrier(run));
    double before = 0;
    for (int s = 0; s < j->steps; s++) {
        if (s == WARM) before = sk_worked_all();
        SK_TRY(sk_run_step(run, &(sk_step_in){.step = s, .lr = j->lr}, &out));
        note->loss[s] = out.loss;
        note->seconds[s] = out.seconds;
        note->tokens = out.tokens;
        if (s < WARM) continue;
        note->wire += out.wire;
        note->waited += out.waited;
        note->total += out.seconds;
    }
    note->cores = (sk_worked_all() - before) / (j->steps - WARM);
    sk_gpu_usage gpu;
    if (sk_run_gpu_usage(run, &gpu)) note->device = gpu.facts;
    return SK_OK;
}

static sk_status step_rank(void *ctx, int rank)
{
    step_job *j = ctx;
    sk_arena a = {0};
    sk_run *run = NULL;
    sk_run_opts o = *j->opts;
    o.timeout_s = sk_timeout(o.timeout_s, j->programs[rank], j->heaps);
    SK_TRY(sk_run_open(&a, j->programs[rank], j->heaps, &o, &run));
    const char *slow = sk_run_slow_kernels(&a, run);
    snprintf(j->notes[rank].slow, SK_TIMED_WORDS, "%s", slow ? slow : "");
    sk_status st = steps_of(j, run, &j->notes[rank]);
    sk_run_close(run);
    sk_arena_end(&a);
    return st;
}

/* Ranks that share a GPU share its peak. */
static bool counts(const step_job *j, int rank)
{
    for (int r = 0; r < rank; r++)
        if (!strcmp(j->notes[r].device.uuid, j->notes[rank].device.uuid)) return false;
    return true;
}

/* Of rank 0: the step of each place of an interval, median over intervals; of these the mean. */
static double mean_step(const step_job *j, int interval)
{
    const double *seconds = j->notes[0].seconds + WARM;
    int n = j->steps - WARM;
    double sum = 0;
    if (n % interval) interval = 1;
    for (int at = 0; at < interval; at++) {
        double sorted[SK_TIMED_STEPS];
        int k = 0;
        for (int s = at; s < n; s += interval) sorted[k++] = seconds[s];
        qsort(sorted, (size_t)k, sizeof *sorted, by_size);
        sum += sorted[k / 2];
    }
    return sum / interval;
}

/* From replicas_from on a rank has the numbers of its replica, and all replicas have as many ranks.
 */
static void join_replicas(const step_job *j, int n_ranks, sk_step_timing *out)
{
    const sk_program *p = j->programs[0];
    double tokens = 0;
    out->tokens = j->notes[0].tokens;
    memcpy(out->loss, j->notes[0].loss, sizeof out->loss);
    if (!p->apart || p->replicas_from >= j->steps) return;
    for (int r = 0; r < n_ranks; r++) tokens += j->notes[r].tokens;
    out->tokens = tokens * sk_layout_replicas(&p->layout) / n_ranks;
    for (int s = (int)p->replicas_from; s < j->steps && tokens > 0; s++) {
        out->loss[s] = 0;
        for (int r = 0; r < n_ranks; r++)
            out->loss[s] += j->notes[r].loss[s] * j->notes[r].tokens / tokens;
    }
}

static void read_notes(const step_job *j, int n_ranks, sk_step_timing *out)
{
    double waited = 0, total = 0;
    int interval = sk_steps_interval(j->programs);
    for (int r = 0; r < n_ranks; r++) {
        waited += j->notes[r].waited;
        total += j->notes[r].total;
    }
    *out = (sk_step_timing){.seconds = mean_step(j, interval),
                            .waited = total > 0 ? waited / total : 0,
                            .interval = interval,
                            .n = j->steps};
    join_replicas(j, n_ranks, out);
    for (int r = 0; r < n_ranks; r++) {
        out->wire += j->notes[r].wire;
        out->cores += j->notes[r].cores;
        for (int k = 0; k < 2 && counts(j, r); k++) out->peak[k] += j->notes[r].device.flops[k];
    }
    out->wire = llround((double)out->wire / (j->steps - WARM));
    memcpy(out->slow, j->notes[0].slow, sizeof out->slow);
}

sk_status sk_time_steps(const sk_program *const *programs, const sk_run_opts *o, double lr,
                        int steps, sk_step_timing *out)
{
    sk_arena tmp = {0};
    int n = programs[0]->n_ranks;
    int64_t *heap = sk_many(&tmp, int64_t, n);
    int timed = sk_steps_whole(steps, sk_steps_interval(programs));
    step_job j = {.programs = programs, .opts = o, .lr = lr, .steps = timed + WARM};
    sk_assert(steps > 0 && j.steps <= SK_TIMED_STEPS);
    sk_heap_aliases aliases = sk_program_shared(&tmp, programs, n, heap);
    size_t notes = sizeof(step_note) * (size_t)n;
    sk_status st = sk_heaps_open_aliased(n, heap, aliases, true, notes, &j.heaps);
    if (!st) {
        j.notes = sk_heaps_extra(j.heaps);
        st = sk_workers_run(j.heaps, n, step_rank, &j);
        if (!st) read_notes(&j, n, out);
        sk_heaps_close(j.heaps);
    }
    sk_arena_end(&tmp);
    return st;
}
