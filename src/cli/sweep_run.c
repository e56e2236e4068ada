/* sweep_run.c - the jobs of a sweep as processes, several at once.
 *
 * A job is a fork of this process that runs the command `train` (sk_command), as the program would
 * when started by hand.  It gets a share of the cores, the same in each slot, by its
 * affinity: `train` counts the cores it may use, and its threads follow from them.
 *
 * Jobs die with the sweep (PR_SET_PDEATHSIG), and their ranks with them.  All of them hold the
 * lock of the sweep's directory, which they inherit: whoever gets it knows that nobody is left. */
#include "cli/sweep.h"
#include "base/clock.h"
#include "base/file_io.h"
#include "base/proc.h"
#include "base/shell_word.h"
#include "comm/boot.h"
#include "skein.h"
#include "train/checkpoint.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TICK_US = 20000 };

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_SIGNALS = sizeof signals / sizeof *signals };
static volatile sig_atomic_t asked;

/* `timeout` and some shells send a signal to the process and to its group: signals within half a
 * second count once. */
static void on_signal(int sig)
{
    static double last;
    double now = sk_now();
    (void)sig;
    if (asked && now - last < 0.5) return;
    last = now;
    asked++;
}

typedef struct slot {
    pid_t pid; /* 0: free */
    sk_sweep_job *job;
    double began;
} slot;

typedef struct runner {
    sk_sweep *s;
    slot *slots;
    int n_slots, next, ended, alive;
    int lock;
    bool told; /* jobs were asked to stop */
    FILE *progress;
    struct sigaction before[N_SIGNALS];
} runner;

/* ---- the job's process */

/* Slot k of n: its share of the cores that the sweep may use, at least one. */
static void own_cores(int k, int n)
{
    cpu_set_t all, mine;
    if (n < 2 || sched_getaffinity(0, sizeof all, &all)) return;
    int cores = CPU_COUNT(&all), seen = 0;
    int from = n > cores ? k % cores : k * cores / n;
    int to = n > cores ? from + 1 : (k + 1) * cores / n;
    CPU_ZERO(&mine);
    for (size_t c = 0; c < CPU_SETSIZE; c++) {
        if (!CPU_ISSET(c, &all)) continue;
        if (seen >= from && seen < to) CPU_SET(c, &mine);
        seen++;
    }
    sched_setaffinity(0, sizeof mine, &mine);
}

static _Noreturn void be_job(runner *r, const sk_sweep_job *j, int slot_number, bool resume,
                             pid_t parent)
{
    sk_arena a = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(SK_EPEER);
    for (int i = 0; i < N_SIGNALS; i++) signal(signals[i], SIG_DFL);
    sk_sweep_streams(j->dir);
    own_cores(slot_number, r->n_slots);
    sk_proc_begin();
    const char *words[] = {"train", sk_print(&a, "%s/job.yaml", j->dir),
                           sk_print(&a, "run=%s", j->dir), "--resume"};
    int code = sk_command(resume ? 4 : 3, words);
    if (code) fprintf(stderr, "skein: %s\n", code == SK_EBUG ? sk_error() : sk_error_line());
    fflush(NULL);
    sk_sweep_outcome(j, (sk_status)code, code ? sk_error_line() : "");
    _exit(code);
}

/* ---- starting */

/* Does the job go on from a checkpoint?  If not, it begins as one that was never started. */
static sk_status prepare(const runner *r, const sk_sweep_job *j, bool *resume)
{
    sk_arena *a = r->s->arena;
    int64_t *steps;
    int n = 0;
    *resume = false;
    if (sk_ckpt_list(a, sk_print(a, "%s/ckpt", j->dir), &steps, &n)) {
        sk_error_set(""); /* `train` will say it */
        return SK_OK;
    }
    *resume = n > 0;
    return n ? SK_OK : sk_sweep_remove_orphan(r->s, j, r->progress);
}

static sk_status start(runner *r, int k, sk_sweep_job *j)
{
    pid_t parent = getpid();
    bool resume;
    SK_TRY(sk_sweep_keep(r->s, j));
    SK_TRY(prepare(r, j, &resume));
    const char *outcome = sk_print(r->s->arena, "%s/outcome", j->dir);
    if (unlink(outcome) && errno != ENOENT)
        return sk_fail(SK_EIO, "cannot remove %s: %s", outcome, strerror(errno));
    fflush(NULL); /* or the job would print it again */
    pid_t pid = fork();
    if (!pid) be_job(r, j, k, resume, parent);
    if (pid < 0) return sk_fail(SK_EIO, "cannot start a job: %s", strerror(errno));
    r->slots[k] = (slot){.pid = pid, .job = j, .began = sk_now()};
    r->alive++;
    return SK_OK;
}

static sk_status fill_slots(runner *r)
{
    for (int k = 0; k < r->n_slots; k++) {
        while (r->next < r->s->jobs.n && sk_sweep_finished(&r->s->jobs.v[r->next])) r->next++;
        if (r->slots[k].pid) continue;
        if (r->next == r->s->jobs.n) return SK_OK;
        SK_TRY(start(r, k, &r->s->jobs.v[r->next++]));
    }
    return SK_OK;
}

/* ---- ending */

static void tell(runner *r, const sk_sweep_job *j, double seconds)
{
    fprintf(r->progress, "[%d/%d] %-8s %s", r->ended, r->s->jobs.n, sk_sweep_state(j), j->name);
    if (isfinite(j->loss)) fprintf(r->progress, "  loss %.5g", j->loss);
    if (isfinite(j->val)) fprintf(r->progress, "  val %.5g", j->val);
    if (seconds > 0) fprintf(r->progress, "  %.1f s", seconds);
    fprintf(r->progress, "%s%s\n", *j->why ? "  " : "", j->why);
    fflush(r->progress);
}

static sk_status reap(runner *r)
{
    for (int k = 0; k < r->n_slots; k++) {
        slot *x = &r->slots[k];
        int status = 0;
        if (!x->pid || waitpid(x->pid, &status, WNOHANG) != x->pid) continue;
        sk_sweep_job *j = x->job;
        x->pid = 0;
        r->alive--;
        r->ended++;
        SK_TRY(sk_sweep_look(r->s, j));
        if (WIFSIGNALED(status)) {
            j->ended = true;
            j->code = SK_EPEER;
            j->why = sk_print(r->s->arena, "died: signal %d (%s)", WTERMSIG(status),
                              strsignal(WTERMSIG(status)));
        }
        tell(r, j, sk_now() - x->began);
    }
    return SK_OK;
}

static void signal_jobs(const runner *r, int sig)
{
    for (int k = 0; k < r->n_slots; k++)
        if (r->slots[k].pid) kill(r->slots[k].pid, sig);
}

static sk_status watch(runner *r)
{
    sk_status st = SK_OK;
    for (;;) {
        if (!st && !asked) st = fill_slots(r);
        if (!r->alive) return st;
        if ((asked || st) && !r->told) { /* they save, and end with SK_ESTOP */
            signal_jobs(r, SIGTERM);
            r->told = true;
        }
        if (asked > 1) signal_jobs(r, SIGKILL);
        usleep(TICK_US);
        sk_status one = reap(r);
        if (!st) st = one;
    }
}

/* ---- the whole */

static void catch_signals(runner *r, bool now)
{
    struct sigaction act = {.sa_handler = on_signal};
    if (now) asked = 0;
    for (int i = 0; i < N_SIGNALS; i++)
        sigaction(signals[i], now ? &act : &r->before[i], now ? &r->before[i] : NULL);
}

static sk_status run(runner *r)
{
    sk_sweep *s = r->s;
    sk_sweep_remove_temporaries(s->dir);
    for (int i = 0; i < s->jobs.n; i++) { /* before the first starts */
        sk_sweep_job *j = &s->jobs.v[i];
        SK_TRY(sk_sweep_look(s, j));
        if (j->begun) sk_sweep_remove_temporaries(j->dir);
        if (j->begun && j->job) SK_TRY(sk_sweep_keep(s, j));
        r->ended += j->job && sk_sweep_finished(j);
    }
    SK_TRY(sk_sweep_save(s)); /* not the words of a command that was refused */
    if (r->ended) fprintf(r->progress, "[%d/%d] finished before\n", r->ended, s->jobs.n);
    for (int i = 0; i < s->jobs.n; i++)
        if (!s->jobs.v[i].job) r->ended++, tell(r, &s->jobs.v[i], 0);
    sk_status st = watch(r);
    if (st || !asked) return st;
    int finished = 0;
    for (int i = 0; i < s->jobs.n; i++) finished += sk_sweep_finished(&s->jobs.v[i]);
    if (finished == s->jobs.n) return SK_OK; /* the signal came too late */
    return sk_fail(SK_ESTOP,
                   "stopped with %d of %d jobs finished; skein sweep run=%s goes on with the rest",
                   finished, s->jobs.n, sk_shell_word(s->arena, s->dir));
}

sk_status sk_sweep_run(sk_sweep *s, int at_once, FILE *progress)
{
    runner r = {.s = s, .progress = progress, .n_slots = at_once, .lock = -1};
    if (r.n_slots > s->jobs.n) r.n_slots = s->jobs.n;
    r.slots = sk_many(s->arena, slot, r.n_slots + 1);
    SK_TRY(sk_sweep_lock(s->arena, "sweep", s->dir, progress, &r.lock));
    catch_signals(&r, true);
    sk_status st = run(&r);
    close(r.lock);
    catch_signals(&r, false);
    return st;
}

/* Under mpirun each of its processes would run all jobs, and each job would look for the others. */
sk_status sk_sweep_alone(sk_arena *a, const char *command)
{
    sk_boot boot = {0};
    sk_status st = sk_boot_detect(a, &boot);
    if (!st && boot.n_ranks < 2) return SK_OK;
    return sk_fail(SK_EUSAGE,
                   "%s: %s started this as one of many; a %s is one process, and starts its jobs "
                   "itself",
                   command, st || !boot.by ? "another launcher" : boot.by, command);
}
