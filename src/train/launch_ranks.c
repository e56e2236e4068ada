/* launch_ranks.c - the ranks of this launcher: starting them, waiting for them, reporting how they
 * ended. */
#include "train/launcher.h"
#include "base/entry.h"
#include "base/file_io.h"
#include "base/proc.h"
#include "program/class_program.h"
#include "run/flight.h"
#include "train/fits.h"
#include "train/loop.h"
#include "train/relayout.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TICK_MS = 50, LOG_TAIL = 600 };

static void log_path(const sk_launcher *l, int rank, char to[PATH_MAX])
{
    snprintf(to, PATH_MAX, "%.*s/rank%d.log", PATH_MAX - 64, l->t.dir, rank);
}

/* Standard error goes to the log of the rank, standard input and output to /dev/null. */
static void own_streams(int log)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        dup2(null, 0);
        dup2(null, 1);
    }
    dup2(log, 2);
}

static _Noreturn void be_process(sk_launcher *l, int rank, pid_t parent, int log)
{
    struct rlimit none = {0, 0}; /* a core file would hold the weights */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(SK_EPEER);
    for (int i = 0; i < SK_STOP_SIGNALS; i++) signal(sk_stop_signals[i], SIG_IGN);
    setrlimit(RLIMIT_CORE, &none);
    own_streams(log);
    _exit((int)sk_loop_rank(&l->t, rank));
}

static void *be_thread(void *arg)
{
    SK_ENTER;
    sk_launched_rank *s = arg;
    s->code = sk_loop_rank(&s->l->t, s->rank);
    atomic_store(&s->left, true);
    return NULL;
}

/* The kernel does not say which limit was reached. */
static sk_status cannot_start(const sk_launcher *l, int rank, int err)
{
    struct rlimit most = {0};
    getrlimit(RLIMIT_NPROC, &most);
    long long user = most.rlim_cur < INT64_MAX ? (long long)most.rlim_cur : INT64_MAX;
    return sk_fail(SK_EIO,
                   "cannot start rank %d of %d: %s; %d %s are needed, a user may have %lld of both "
                   "kinds (ulimit -u), this host %lld (kernel.threads-max), and a control group "
                   "may have fewer (pids.max)",
                   rank, l->setup.n_ranks, strerror(err), l->setup.n_ranks,
                   l->as_threads ? "threads" : "processes", user,
                   (long long)sk_proc_number("/proc/sys/kernel/threads-max", "", 1));
}

static sk_status start_process(sk_launcher *l, sk_launched_rank *s)
{
    char path[PATH_MAX];
    pid_t parent = getpid();
    int log = -1;
    log_path(l, s->rank, path);
    SK_TRY(sk_file_own(path, O_TRUNC | O_APPEND, &log));
    s->pid = fork();
    if (!s->pid) be_process(l, s->rank, parent, log);
    int err = errno;
    close(log);
    if (s->pid < 0) return cannot_start(l, s->rank, err);
    s->fd = (int)syscall(SYS_pidfd_open, s->pid, 0);
    atomic_store(&sk_heaps_rank_state(l->t.heaps, s->rank)->pid, (long long)s->pid);
    return SK_OK;
}

static sk_status start_one(sk_launcher *l, int rank)
{
    sk_launched_rank *s = &l->ranks[rank];
    sk_assert(!s->alive);
    *s = (sk_launched_rank){.l = l, .rank = rank, .fd = -1};
    if (l->as_threads) {
        int err = pthread_create(&s->thread, NULL, be_thread, s);
        if (err) return cannot_start(l, rank, err);
    } else SK_TRY(start_process(l, s));
    s->alive = true;
    l->alive++;
    return SK_OK;
}

void sk_launch_kill(sk_launcher *l)
{
    for (int r = 0; r < l->setup.n_ranks; r++)
        if (l->ranks[r].alive && l->ranks[r].pid > 0) kill(l->ranks[r].pid, SIGKILL);
}

sk_status sk_launch_start(sk_launcher *l)
{
    fflush(NULL); /* or every rank would print it again */
    for (int r = 0; r < l->setup.n_ranks; r++) {
        sk_status st = sk_launcher_owns(l, r) ? start_one(l, r) : SK_OK;
        if (!st) continue;
        sk_heaps_abort(l->t.heaps, st, r, sk_error_line());
        return sk_trail(st, SK_HERE);
    }
    return SK_OK;
}

/* The last five lines of a log; "" if it is empty. */
static const char *last_words(sk_arena *a, const char *path)
{
    sk_text t;
    int lines = 0;
    if (!sk_is_file(path) || sk_file_read(a, path, &t) || !t.n) return "";
    const char *end = t.s + t.n - (t.s[t.n - 1] == '\n'), *p = end;
    while (p > t.s && end - p < LOG_TAIL && !(p[-1] == '\n' && ++lines == 5)) p--;
    return sk_print(a, "\n%.*s", (int)(end - p), p);
}

const sk_program *sk_launch_program(const sk_launcher *l, int rank, sk_arena *a)
{
    long long step = atomic_load(&sk_heaps_rank_state(l->t.heaps, rank)->step);
    uint64_t hash = atomic_load(&sk_heaps_rank_state(l->t.heaps, rank)->hash);
    int phase = sk_relayout_of(&l->setup, step < 0 ? l->t.step : step, hash);
    if (atomic_load(&l->t.fallback_stats->fallback[rank])) return l->setup.fallback->programs[rank];
    return sk_program_as(a, sk_relayout_setup(&l->setup, phase)->programs[rank], rank);
}

/* The rank ended without an error report of its own: write one for it. */
static void report_death(sk_launcher *l, int rank, const char *how, const char *hint)
{
    char path[PATH_MAX];
    const sk_rank_state *line = sk_heaps_rank_state(l->t.heaps, rank);
    log_path(l, rank, path);
    const char *report =
        sk_print(l->arena, "rank %d %s %s%s; its log: %s%s", rank, how,
                 sk_flight_place(sk_launch_program(l, rank, l->arena), line, l->arena), hint, path,
                 last_words(l->arena, path));
    sk_heaps_abort(l->t.heaps, SK_EPEER, rank, report);
}

static void on_exit_status(sk_launcher *l, sk_launched_rank *s, int wait_status)
{
    if (WIFSIGNALED(wait_status)) {
        int sig = WTERMSIG(wait_status);
        const char *hint = "";
        s->code = SK_EPEER;
        if (l->kill_at <= 0 && !sk_launch_asked()) l->killed = true;
        if (sig == SIGKILL && l->kill_at <= 0)
            hint = sk_print(l->arena,
                            " (if nobody killed it, the kernel ran out of memory; planned are %s)",
                            sk_fits_kinds(l->arena, l->setup.programs[s->rank]));
        report_death(l, s->rank, sk_print(l->arena, "died: signal %d (%s)", sig, strsignal(sig)),
                     hint);
        return;
    }
    s->code = (sk_status)WEXITSTATUS(wait_status);
    if (s->code && s->code != SK_ESTOP)
        report_death(l, s->rank, sk_print(l->arena, "ended with code %d", (int)s->code), "");
}

void sk_launch_reap(sk_launcher *l)
{
    for (int r = 0; r < l->setup.n_ranks; r++) {
        sk_launched_rank *s = &l->ranks[r];
        int wait_status = 0;
        if (!s->alive) continue;
        if (l->as_threads) {
            if (!atomic_load(&s->left)) continue;
            pthread_join(s->thread, NULL);
        } else if (waitpid(s->pid, &wait_status, WNOHANG) != s->pid) continue;
        else on_exit_status(l, s, wait_status);
        if (s->fd >= 0) close(s->fd);
        s->alive = false;
        sk_assert(l->alive > 0);
        l->alive--;
        if (s->code == SK_ESTOP) l->stopped = true;
    }
}

void sk_launch_sleep(sk_launcher *l)
{
    for (int r = 0; r < l->setup.n_ranks; r++)
        l->endings[r] =
            (struct pollfd){.fd = l->ranks[r].alive ? l->ranks[r].fd : -1, .events = POLLIN};
    poll(l->endings, (nfds_t)l->setup.n_ranks, l->sampler ? 0 : TICK_MS);
}
