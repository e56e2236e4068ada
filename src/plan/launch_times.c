/* launch_times.c - timing the launches of one rank. */
#include "plan/launch_times.h"
#include "base/clock.h"
#include "plan/deadline.h"
#include "plan/workers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WARM_S 0.7 /* of work of a GPU */
enum { WARM = 3, LEAST = 3, MOST = 40, BURST = 3, IDLE_S = 1, MOST_DROOP = 4096 };

typedef struct launch_note { /* shared with the worker */
    double step[2][MOST];    /* seconds: plain, traced */
    double outside[MOST];    /* of a traced one, of no launch */
    int n[2];
    sk_device_facts device;
    float seconds[]; /* [step][instruction] */
} launch_note;

typedef struct launch_job {
    const sk_program *p;
    const sk_run_opts *opts;
    sk_heaps *heaps;
    double lr, seconds;
    launch_note *note;
} launch_job;

/* Instructions that are part of another launch begin where their marks are, and take no time. */
static void keep(const launch_job *j, sk_run *run, int at)
{
    const double *times = sk_run_times(run);
    float *to = j->note->seconds + (int64_t)at * j->p->n_train;
    double end = times[0];
    for (int pc = 0; pc < j->p->n_train; pc++) {
        to[pc] = (float)(times[2 * pc + 1] - times[2 * pc]);
        end = fmax(end, times[2 * pc + 1]);
    }
    j->note->outside[at] = fmax(j->note->step[1][at] - (end - times[0]), 0);
}

/* On a processor alone: that counts the time of the thread (run/run.h). */
static sk_status one_step(const launch_job *j, sk_run *run, int step, double *seconds)
{
    sk_step_out out = {0};
    int pc = 0;
    double before = sk_worked_all();
    if (j->p->gpu) SK_TRY(sk_run_step(run, &(sk_step_in){.step = step, .lr = j->lr}, &out));
    while (!j->p->gpu && pc < j->p->n_train) SK_TRY(sk_run_until_wait(run, step, &pc));
    *seconds = j->p->gpu ? out.seconds : sk_worked_all() - before;
    return SK_OK;
}

/* A GPU loads kernels in the first step, captures the second, and needs some tenths of a second of
 * work until its clocks are those of a long run. */
static sk_status warm_up(const launch_job *j, sk_run *run, int *steps)
{
    double seconds;
    for (; *steps < WARM; ++*steps) SK_TRY(one_step(j, run, *steps, &seconds));
    double end = sk_now() + fmin(WARM_S, j->seconds / 4);
    for (; j->p->gpu && sk_now() < end; ++*steps) SK_TRY(one_step(j, run, *steps, &seconds));
    return SK_OK;
}

static sk_status steps_of(const launch_job *j, sk_run *run, bool traced)
{
    launch_note *note = j->note;
    SK_TRY(sk_run_init(run, j->opts->seed));
    int warm = 0;
    SK_TRY(warm_up(j, run, &warm));
    double end = sk_now() + j->seconds / 2;
    for (int at = 0; at < MOST && (at < LEAST || sk_now() < end); at++) {
        SK_TRY(one_step(j, run, warm + at, &note->step[traced][at]));
        if (traced) keep(j, run, at);
        note->n[traced] = at + 1;
    }
    sk_gpu_usage gpu;
    if (sk_run_gpu_usage(run, &gpu)) note->device = gpu.facts;
    return SK_OK;
}

static sk_status one_turn(const launch_job *j, bool traced)
{
    sk_arena a = {0};
    sk_run *run = NULL;
    sk_run_opts o = *j->opts;
    o.trace = traced;
    o.alone = !j->p->gpu; /* the clock of the thread */
    o.timeout_s = sk_timeout(o.timeout_s, j->p, j->heaps);
    SK_TRY(sk_run_open(&a, j->p, j->heaps, &o, &run));
    sk_status st = steps_of(j, run, traced);
    sk_run_close(run);
    sk_arena_end(&a);
    return st;
}

static sk_status launch_rank(void *ctx, int rank)
{
    const launch_job *j = ctx;
    (void)rank;
    SK_TRY(one_turn(j, false));
    return one_turn(j, true);
}

/* --- droop --- */

typedef struct droop_note { /* shared with the worker */
    double step[MOST_DROOP];
    int n;
} droop_note;

/* The first steps load kernels and capture the graph. */
static sk_status droop_steps(const launch_job *j, sk_run *run, droop_note *note)
{
    double end = 0;
    SK_TRY(sk_run_init(run, j->opts->seed));
    for (int s = 0; s < WARM + MOST_DROOP; s++) {
        if (s == WARM) {
            sleep(IDLE_S);
            end = sk_now() + j->seconds;
        }
        if (s >= WARM + 2 * BURST && sk_now() > end) break;
        double seconds;
        SK_TRY(one_step(j, run, s, &seconds));
        if (s >= WARM) note->step[note->n++] = seconds;
    }
    return SK_OK;
}

static sk_status droop_rank(void *ctx, int rank)
{
    const launch_job *j = ctx;
    sk_arena a = {0};
    sk_run *run = NULL;
    sk_run_opts o = *j->opts;
    (void)rank;
    o.alone = !j->p->gpu;
    o.timeout_s = sk_timeout(o.timeout_s, j->p, j->heaps);
    SK_TRY(sk_run_open(&a, j->p, j->heaps, &o, &run));
    sk_status st = droop_steps(j, run, sk_heaps_extra(j->heaps));
    sk_run_close(run);
    sk_arena_end(&a);
    return st;
}

/* --- numbers --- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_size);
    return v[n / 2];
}

static void read_note(sk_arena *a, const launch_job *j, sk_launch_times *out)
{
    launch_note *note = j->note;
    int n = j->p->n_train;
    out->seconds = sk_many(a, double, n);
    out->device = note->device;
    out->steps = note->n[1];
    for (int pc = 0; pc < n; pc++) {
        double v[MOST];
        for (int s = 0; s < note->n[1]; s++) v[s] = (double)note->seconds[(int64_t)s * n + pc];
        out->seconds[pc] = median(v, note->n[1]);
    }
    out->outside = median(note->outside, note->n[1]);
    out->plain = median(note->step[0], note->n[0]);
    out->traced = median(note->step[1], note->n[1]);
}

sk_status sk_time_launches(sk_arena *a, const sk_program *p, const sk_run_opts *o, double lr,
                           double seconds, sk_launch_times *out)
{
    launch_job j = {.p = p, .opts = o, .lr = lr, .seconds = seconds};
    sk_assert(p->n_ranks == 1);
    *out = (sk_launch_times){0};
    size_t bytes = sizeof *j.note + sizeof(float) * MOST * (size_t)p->n_train;
    SK_TRY(sk_heaps_open(1, &p->heap_bytes, true, bytes, &j.heaps));
    j.note = sk_heaps_extra(j.heaps);
    sk_status st = sk_workers_run(j.heaps, 1, launch_rank, &j);
    if (!st) read_note(a, &j, out);
    sk_heaps_close(j.heaps);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}

sk_status sk_time_droop(const sk_program *p, const sk_run_opts *o, double lr, double seconds,
                        double *burst, double *sustained)
{
    launch_job j = {.p = p, .opts = o, .lr = lr, .seconds = seconds};
    sk_assert(p->n_ranks == 1);
    SK_TRY(sk_heaps_open(1, &p->heap_bytes, true, sizeof(droop_note), &j.heaps));
    droop_note *note = sk_heaps_extra(j.heaps);
    sk_status st = sk_workers_run(j.heaps, 1, droop_rank, &j);
    if (!st) {
        int n = note->n, last = n - n / 4;
        qsort(note->step, BURST, sizeof *note->step, by_size);
        qsort(note->step + last, (size_t)(n - last), sizeof *note->step, by_size);
        *burst = note->step[0];
        *sustained = note->step[last + (n - last) / 2];
    }
    sk_heaps_close(j.heaps);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}
