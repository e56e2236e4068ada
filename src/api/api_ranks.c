/* api_ranks.c - ranks of a library call: threads of this process, or processes of their own.
 *
 * A process of the caller may have other children, and threads that come and go: ranks
 * are waited for by their pid alone, and a rank sees by its parent's pid that the
 * caller is gone (PR_SET_PDEATHSIG would mean the thread that forked). */
#include "api/handles.h"
#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct sk_rank_slot {
    sk_heaps *heaps;
    sk_rank_task *task;
    void *ctx;
    int rank;
    pid_t pid;        /* of a process */
    pthread_t thread; /* or a thread: */
    atomic_bool left; /*   it is over */
    bool alive;       /* started, and not waited for so far */
} sk_rank_slot;

/* --- one rank --- */

static sk_status live(sk_rank_slot *s)
{
    sk_error_set("");
    sk_status st = s->task(s->ctx, s->rank);
    if (!st) return SK_OK;
    if (!*sk_error_line()) st = sk_fail(st, "rank %d returned %d", s->rank, (int)st);
    sk_heaps_abort(s->heaps, st, s->rank, sk_error_line());
    return st;
}

static void *be_thread(void *arg)
{
    sk_rank_slot *s = arg;
    live(s);
    atomic_store(&s->left, true);
    return NULL;
}

/* Ctrl-C is the caller's business.  A core file would hold the weights. */
static _Noreturn void be_process(sk_rank_slot *s)
{
    struct rlimit none = {0, 0};
    signal(SIGINT, SIG_IGN);
    setrlimit(RLIMIT_CORE, &none);
    int code = (int)live(s) & 255;
    fflush(NULL); /* what the caller's own function printed */
    _exit(code);
}

static sk_status start_one(sk_rank_slot *s, bool process)
{
    int err = 0;
    if (process) {
        s->pid = fork();
        if (!s->pid) be_process(s);
        if (s->pid < 0) err = errno;
    } else err = pthread_create(&s->thread, NULL, be_thread, s);
    if (err) return sk_fail(SK_EIO, "cannot start rank %d: %s", s->rank, strerror(err));
    s->alive = true;
    return SK_OK;
}

sk_status sk_ranks_start(sk_arena *a, sk_heaps *h, int n, bool processes, sk_rank_task *task,
                         void *ctx, sk_ranks *out)
{
    *out = (sk_ranks){.heaps = h, .n = n, .processes = processes};
    out->v = sk_many(a, sk_rank_slot, n);
    if (processes) fflush(NULL); /* or every rank would print it again */
    for (int r = 0; r < n; r++) {
        sk_rank_slot *s = &out->v[r];
        s->heaps = h, s->task = task, s->ctx = ctx, s->rank = r;
        sk_status st = start_one(s, processes);
        if (!st) continue;
        sk_heaps_abort(h, st, r, sk_error_line());
        return sk_trail(st, SK_HERE);
    }
    return SK_OK;
}

/* --- all of them --- */

static void judge(const sk_ranks *r, int rank, int how)
{
    char why[160];
    if (WIFEXITED(how) && !WEXITSTATUS(how)) return;
    if (WIFSIGNALED(how))
        snprintf(why, sizeof why, "rank %d died: signal %d (%s)", rank, WTERMSIG(how),
                 strsignal(WTERMSIG(how)));
    else snprintf(why, sizeof why, "rank %d ended with code %d", rank, WEXITSTATUS(how));
    sk_heaps_abort(r->heaps, SK_EPEER, rank, why); /* unless the rank said why itself */
}

/* The caller ignores SIGCHLD, or waits for all children: how it ended is lost.  A rank that ends
 * well closes its end of the communication first. */
static void judge_unseen(const sk_ranks *r, int rank)
{
    const int over = 3; /* sk_rank_state.state: done */
    char why[80];
    if (atomic_load(&sk_heaps_rank_state(r->heaps, rank)->state) >= over) return;
    snprintf(why, sizeof why, "rank %d died, and the caller's process lost its status", rank);
    sk_heaps_abort(r->heaps, SK_EPEER, rank, why);
}

void sk_ranks_poll(sk_ranks *r)
{
    for (int k = 0; k < r->n; k++) {
        sk_rank_slot *s = &r->v[k];
        int how = 0;
        if (!s->alive) continue;
        if (!r->processes) {
            if (!atomic_load(&s->left)) continue;
            pthread_join(s->thread, NULL);
        } else {
            pid_t got = waitpid(s->pid, &how, WNOHANG);
            if (got == 0 || (got < 0 && errno == EINTR)) continue;
            if (got == s->pid) judge(r, k, how);
            else judge_unseen(r, k);
        }
        s->alive = false;
    }
}

bool sk_rank_over(const sk_ranks *r, int rank)
{
    sk_assert(rank >= 0 && rank < r->n);
    return !r->v[rank].alive;
}

static int count_alive(const sk_ranks *r)
{
    int n = 0;
    for (int k = 0; k < r->n; k++) n += r->v[k].alive;
    return n;
}

static void kill_all(const sk_ranks *r)
{
    for (int k = 0; k < r->n && r->processes; k++)
        if (r->v[k].alive) kill(r->v[k].pid, SIGKILL);
}

void sk_ranks_end(sk_ranks *r, double grace)
{
    double deadline = 0;
    for (long nap = 20000; r->v && count_alive(r); nap = nap < 2000000 ? 2 * nap : nap) {
        sk_ranks_poll(r);
        if (!count_alive(r)) return;
        if (deadline <= 0 && sk_heaps_aborted(r->heaps, NULL, NULL, NULL))
            deadline = sk_now() + grace;
        if (deadline > 0 && sk_now() > deadline) kill_all(r);
        nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
    }
}

sk_status sk_heaps_failure(const sk_heaps *h)
{
    sk_status code = SK_OK;
    const char *why = "";
    if (!sk_heaps_aborted(h, &code, NULL, &why)) return SK_OK;
    return sk_fail(code ? code : SK_EPEER, "%s", why);
}
