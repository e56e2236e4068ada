/* workers.c - fork, work, wait. */
#include "plan/workers.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static _Noreturn void be(sk_heaps *h, int rank, sk_worker_task *task, void *ctx, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* no worker outlives the caller, however that ends */
    if (getppid() != parent) _exit(SK_EPEER);
    sk_status st = task(ctx, rank);
    if (st) sk_heaps_abort(h, st, rank, sk_error_line());
    _exit((int)st);
}

static void over(sk_heaps *h, int rank, int how)
{
    char report[160];
    if (WIFEXITED(how) && !WEXITSTATUS(how)) return;
    if (WIFSIGNALED(how))
        snprintf(report, sizeof report, "rank %d died: signal %d (%s)", rank, WTERMSIG(how),
                 strsignal(WTERMSIG(how)));
    else snprintf(report, sizeof report, "rank %d ended with code %d", rank, WEXITSTATUS(how));
    sk_heaps_abort(h, SK_EPEER, rank, report); /* unless it wrote its own report */
}

sk_status sk_workers_run(sk_heaps *h, int n_ranks, sk_worker_task *task, void *ctx)
{
    pid_t parent = getpid();
    sk_arena tmp = {0};
    pid_t *pids = sk_many(&tmp, pid_t, n_ranks);
    int alive = 0, how = 0;
    fflush(NULL); /* or every rank would print it again */
    for (; alive < n_ranks; alive++) {
        pids[alive] = fork();
        if (!pids[alive]) be(h, alive, task, ctx, parent);
        if (pids[alive] > 0) continue;
        sk_heaps_abort(h, SK_EIO, alive, strerror(errno));
        break;
    }
    while (alive) { /* in the order in which they end: the first failure is the one to report */
        pid_t pid = wait(&how);
        if (pid < 0 && errno == EINTR) continue;
        if (pid < 0) break;
        for (int r = 0; r < n_ranks; r++)
            if (pids[r] == pid) over(h, r, how), alive--;
    }
    sk_arena_end(&tmp);
    sk_status code;
    const char *report;
    if (sk_heaps_aborted(h, &code, NULL, &report)) return sk_fail(code, "%s", report);
    return SK_OK;
}

void sk_worker_pin(int place)
{
    cpu_set_t may, one;
    if (sched_getaffinity(0, sizeof may, &may)) return;
    size_t core = 0;
    int left = place % CPU_COUNT(&may);
    while (core < CPU_SETSIZE && (!CPU_ISSET(core, &may) || left-- > 0)) core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
}
