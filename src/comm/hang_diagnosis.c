/* hang_diagnosis.c - who keeps us waiting: chains of waits, processes and their ends. */
#include "comm/hang_diagnosis.h"
#include "base/clock.h"
#include "base/proc.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DONE = 3, WATCHED = 4096 };
#define ROUND_S 0.1  /* between two looks at all ranks, */
#define EACH_S  2e-3 /* or so much for each of them: every process looks at all others */

/* --- processes --- */

char sk_process_state(const sk_rank_state *l)
{
    char path[48], state[16];
    long long pid = atomic_load(&l->pid);
    if (pid <= 0) return '?';
    snprintf(path, sizeof path, "/proc/%lld/status", pid);
    return sk_proc_line(path, "State", state, sizeof state) ? state[0] : 'X';
}

const char *sk_process_state_name(char process)
{
    switch (process) {
    case 'R':
        return "running";
    case 'S':
    case 'I':
        return "sleeping";
    case 'T':
        return "stopped";
    case 't':
        return "held by a debugger";
    case 'D':
        return "stuck in the kernel, on a disk or a file server (state D)";
    case 'Z':
    case 'X':
        return "dead";
    default:
        return "not on this host";
    }
}

/* --- chains --- */

/* What such a rank says about waiting is old: it may have got what it waited for. */
static bool cannot_move(char process) { return process && strchr("TtDZX", process); }

sk_hang sk_hang_find(const sk_heaps *h, int peer)
{
    int ranks = sk_heaps_ranks(h);
    sk_hang b = {.rank = peer};
    while (b.n <= ranks) { /* a chain that is longer than all ranks comes back to itself */
        const sk_rank_state *l = sk_heaps_rank_state(h, b.rank);
        if (b.n < SK_HANG_CHAIN) b.chain[b.n] = b.rank;
        b.n++;
        long long next = atomic_load(&l->waits_for);
        if (next < 0 || next >= ranks || cannot_move(sk_process_state(l))) return b;
        b.rank = (int)next;
    }
    b.cycle = true;
    return b;
}

/* --- ends --- */

/* A process that was seen alive.  One table for this process: threads share it. */
typedef struct watch {
    long long pid;  /* 0: empty */
    int fd;         /* -1: the kernel has no pidfds; then kill(pid, 0) */
    double over_at; /* when its end was seen; 0: not yet */
} watch;

static watch watched[WATCHED];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void begin_seat(watch *s, long long pid, double now)
{
    if (s->pid && s->fd >= 0) close(s->fd);
    s->pid = 0;
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    bool gone = fd < 0 && kill((pid_t)pid, 0) && errno == ESRCH;
    *s = (watch){.pid = pid, .fd = fd, .over_at = gone ? now : 0};
}

static bool is_over(const watch *s)
{
    struct pollfd p = {.fd = s->fd, .events = POLLIN};
    if (s->fd >= 0) return poll(&p, 1, 0) == 1;
    return kill((pid_t)s->pid, 0) && errno == ESRCH;
}

/* Seconds since the process of a rank was seen to be over; < 0: it lives, or is not known. */
static double over_for(const sk_heaps *h, int rank, double now)
{
    long long pid = atomic_load(&sk_heaps_rank_state(h, rank)->pid);
    watch *s = &watched[rank % WATCHED];
    if (pid <= 0 || pid == getpid()) return -1;
    if (s->pid != pid) begin_seat(s, pid, now);
    if (s->over_at <= 0 && is_over(s)) s->over_at = now;
    return s->over_at > 0 ? now - s->over_at : -1;
}

/* The first rank that died; every rank is looked at, and so seen alive before it matters. */
static int look_round(const sk_heaps *h, int me, double now, double grace_s)
{
    int found = -1;
    for (int r = 0; r < sk_heaps_ranks(h); r++) {
        if (r == me || over_for(h, r, now) < grace_s || found >= 0) continue;
        if (atomic_load(&sk_heaps_rank_state(h, r)->state) != DONE) found = r;
    }
    return found;
}

int sk_hang_dead_rank(const sk_heaps *h, int me, int peer, double grace_s)
{
    static double round_at;
    int found = -1, ranks = sk_heaps_ranks(h);
    double now = sk_now(), between = EACH_S * ranks > ROUND_S ? EACH_S * ranks : ROUND_S;
    pthread_mutex_lock(&lock);
    if (peer < 0 || now - round_at > between) {
        int any = look_round(h, me, now, grace_s);
        round_at = now;
        if (peer < 0) found = any;
    }
    if (peer >= 0 && over_for(h, peer, now) >= grace_s) found = peer;
    pthread_mutex_unlock(&lock);
    return found;
}
