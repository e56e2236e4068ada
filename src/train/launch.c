/* launch.c - a training run on this host from its beginning to its outcome. */
#include "train/launch.h"
#include "base/clock.h"
#include "base/file_io.h"
#include "base/shell_word.h"
#include "base/strings.h"
#include "run/flight.h"
#include "train/console.h"
#include "train/launcher.h"
#include "train/relayout.h"
#include "train/rundir.h"
#include "train/sampler.h"

#include <math.h>
#include <signal.h>

#define GRACE_S 0.7  /* from a failure until the ranks that are still alive are killed */
#define CHECK_S 0.05 /* of a tick, for token ids that were not checked yet */

/* A console that is gone does not end training; a file at its limit (ulimit -f) is an error that
 * the write returns. */
static const int ignored[] = {SIGPIPE, SIGXFSZ};
enum { N_IGNORED = sizeof ignored / sizeof *ignored };

/* The token ids that were not checked at the start: a bad id ends the run in its first minutes, not
 * when its window comes. */
static void check_ids(sk_launcher *l)
{
    if (sk_heaps_aborted(l->t.heaps, NULL, NULL, NULL)) return;
    sk_status st = sk_setup_check_more(&l->setup, CHECK_S);
    if (st) sk_heaps_abort(l->t.heaps, st, 0, sk_error_line());
}

static void watch(sk_launcher *l)
{
    while (l->alive) {
        sk_launch_sleep(l);
        sk_launch_reap(l);
        if (sk_launcher_leads(l)) sk_launch_read_records(l);
        sk_launch_sample(l, 4);
        if (sk_launcher_leads(l)) check_ids(l);
        if (l->kill_at <= 0 && sk_heaps_aborted(l->t.heaps, NULL, NULL, NULL))
            l->kill_at = sk_now() + GRACE_S;
        if (sk_launch_asked() > 1 || (l->kill_at > 0 && sk_now() > l->kill_at)) {
            sk_launch_kill(l);
            if (l->boot && l->alive) return; /* a thread cannot be killed: the process ends */
        }
        if (sk_launcher_leads(l)) sk_console_tick(&l->console);
    }
    if (sk_launcher_leads(l)) sk_launch_read_records(l);
}

/* flight.txt: the last instructions of every rank, to find out why a run failed. */
static void write_flight(sk_launcher *l)
{
    sk_out o = {.arena = l->arena};
    double until = 0;
    for (int r = 0; r < l->setup.n_ranks; r++)
        until = fmax(until, sk_flight_newest(sk_heaps_rank_state(l->t.heaps, r)));
    for (int r = 0; r < l->setup.n_ranks; r++) {
        sk_arena tmp = {0};
        sk_flight_print(sk_launch_program(l, r, &tmp), sk_heaps_rank_state(l->t.heaps, r), until,
                        &o);
        sk_arena_end(&tmp);
    }
    if (sk_file_replace(sk_print(l->arena, "%s/flight.txt", l->t.dir), o.s, o.n))
        sk_launch_warn(l, sk_error_line());
}

/* Another process prints the error report. */
static sk_status quiet(sk_status code)
{
    sk_error_set("");
    return code;
}

static sk_status outcome(sk_launcher *l)
{
    sk_status code;
    int rank;
    const char *report;
    if (sk_launcher_leads(l)) sk_console_clear(&l->console);
    if (sk_launch_asked() > 1 && !l->stopped)
        return sk_fail((sk_status)(128 + sk_launch_asked_by()),
                       "ended at once by a second signal; skein train --resume run=%s continues "
                       "from the newest checkpoint, if there is one",
                       sk_shell_word(l->arena, l->t.dir));
    if (sk_heaps_aborted(l->t.heaps, &code, &rank, &report)) {
        bool nobody =
            rank < 0 && l->boot && l->boot->local == 0; /* it died while it wrote its report */
        if (l->boot && l->boot->rank != rank && !nobody) return quiet(code);
        write_flight(l);
        return sk_fail(code, "%s", report);
    }
    if (!sk_launcher_leads(l)) return l->stopped ? quiet(SK_ESTOP) : SK_OK;
    if (l->stopped)
        return sk_fail(SK_ESTOP,
                       "stopped after step %lld, everything is saved; skein train --resume run=%s "
                       "continues",
                       (long long)l->console.last.step, sk_shell_word(l->arena, l->t.dir));
    if (l->setup.tokenizer && l->job->sample_every && *l->final) sk_launch_final_sample(l);
    sk_console_done(&l->console, l->final);
    return SK_OK;
}

/* A rank was killed: begin again from the newest checkpoint, if restarts are left. */
static bool restart(sk_launcher *l)
{
    const char *report = "";
    int64_t before = l->t.step;
    if (!l->killed || l->as_threads || l->fruitless >= l->o->restarts) return false;
    sk_heaps_aborted(l->t.heaps, NULL, NULL, &report);
    report = sk_strdup(l->arena, report);
    l->t.steps = l->console.steps; /* train.time is not measured twice */
    sk_launch_heaps(NULL);
    sk_heaps_close(l->t.heaps);
    l->t.heaps = NULL;
    if (sk_rundir_restart(l->arena, &l->t) || sk_launch_open_heaps(l)) return false;
    l->fruitless = l->t.step > before ? 0 : l->fruitless + 1;
    l->phase = sk_relayout_with(&l->setup, l->t.step, l->t.next.batch);
    l->killed = false;
    l->kill_at = 0;
    sk_launch_heaps(l->t.heaps);
    sk_launch_warn(l, sk_print(l->arena, "%s", report));
    sk_launch_warn(l, sk_print(l->arena, "restarting from step %lld", (long long)l->t.step));
    return true;
}

static sk_status run(sk_launcher *l)
{
    struct sigaction before[SK_STOP_SIGNALS];
    SK_TRY(sk_launch_prepare(l));
    sk_launch_catch(l->t.heaps, before);
    sk_status st;
    do {
        st = sk_launch_start(l);
        watch(l);
    } while (!st && restart(l));
    bool fine = !st && l->t.heaps && !sk_heaps_aborted(l->t.heaps, NULL, NULL, NULL);
    if (fine && sk_launcher_leads(l)) sk_launch_settle(l);
    if (!st) st = l->t.heaps ? outcome(l) : SK_EPEER;
    sk_launch_release(before);
    return st;
}

static sk_status launch(sk_arena *a, const sk_job *job, const sk_launch_opts *o)
{
    sk_launcher *l = sk_new(a, sk_launcher);
    l->arena = a;
    l->job = job;
    l->o = o;
    l->boot = o->boot;
    l->as_threads = o->threads || o->boot;
    if (o->boot && o->boot->n_hosts > 1) {
        l->t.wire = o->boot->wire;
        l->t.host_of = o->boot->host_of;
    }
    sk_status st = run(l);
    sk_launch_end_sampler(l);
    if (l->boot && l->alive) return st; /* its thread is still there: the process is about to end */
    if (l->t.ckpt_dir) sk_ckpt_close(l->t.ckpt_dir);
    sk_heaps_close(l->t.heaps);
    return st;
}

sk_status sk_launch(sk_arena *a, const sk_job *job, const sk_launch_opts *o)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before[N_IGNORED];
    for (int i = 0; i < N_IGNORED; i++) sigaction(ignored[i], &ignore, &before[i]);
    sk_status st = launch(a, job, o);
    for (int i = 0; i < N_IGNORED; i++) sigaction(ignored[i], &before[i], NULL);
    return st;
}
