/* wait.c - waiting for other ranks, and failing together.
 *
 * A wait spins SPINS times (some us), yields until YIELD_S have passed, then sleeps
 * on the bell.  Spinning is short because the awaited rank may sit on the same core
 * even when there are enough of them: two ranks that another program had pushed
 * together took 80 us for a call with 2000 spins and take 10 with 200.  A yield
 * costs 0.2 us when there is nobody to yield to, a switch 1 to 2, a wake-up across cores
 * 58.  With more ranks than cores a wait yields at once.  Every spin looks at the
 * abort word.  Whoever raises a flag looks whether its readers sleep.  The two orders
 * "raise flag, read asleep" and "set asleep, read flag" must not both miss, hence the
 * fence after arming.
 *
 * The slow part of a wait also looks whether those it waits for still live, once in
 * a ms or at each waking, and at the deadline.  Time in which this rank itself was
 * stopped does not count: after Ctrl-Z and fg everybody would be late. */
#include "comm/endpoint.h"
#include "comm/hang_diagnosis.h"
#include "base/clock.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SPINS = 200,
    CLOCK_EVERY = 16,
    LOOK_EVERY = 512,
    MANY = 1 << 30,
    FAILED = 4,
    PLACE = 360,
    WAY = 160,
    CAUSE = 800
};
#define YIELD_S      1e-3
#define POLL_YIELD_S 20e-3  /* something is on the wire, which rings no bell */
#define POLL_S       100e-6 /* and then at most this long without a look at it */
#define SLEEP_S      20e-3
#define LONGEST_S    160e-3 /* with many ranks a core: who only looks takes the core from others */
#define ABSENT_S     0.5    /* a sleep that took longer: I was stopped myself */
#define GRACE_S      0.1    /* for a launcher, to tell of a death before I do */

/* --- failing --- */

/* Somebody else reported the error: SK_EPEER without words. */
static sk_status quiet_failure(void)
{
    sk_error_set("");
    return SK_EPEER;
}

sk_status sk_comm_report(sk_comm *c, sk_status code)
{
    if (sk_heaps_abort(c->heaps, code, c->rank, sk_error())) {
        atomic_store(&c->state->state, FAILED);
        return code;
    }
    int first = -1; /* told once more by who told it: still its report */
    if (sk_heaps_aborted(c->heaps, NULL, &first, NULL) && first == c->rank) return code;
    return quiet_failure();
}

/* --- error reports --- */

/* "in step 7, instruction 97 B0 op ..": where a rank is, by its line. */
static void place(const sk_comm *c, int rank, char to[PLACE])
{
    const sk_rank_state *l = sk_heaps_rank_state(c->heaps, rank);
    long long step = atomic_load(&l->step), pc = atomic_load(&l->pc);
    const char *text = step >= 0 && c->where ? c->where(c->where_ctx, rank, (int)pc) : NULL;
    if (step < 0 && pc <= 0) snprintf(to, PLACE, "before the first step");
    else if (step < 0) snprintf(to, PLACE, "before the first step, instruction %lld", pc);
    else if (pc == SK_AT_MEETING)
        snprintf(to, PLACE, "after step %lld, at the meeting of replicas", step + 1);
    else if (text) snprintf(to, PLACE, "in step %lld, instruction %.300s", step + 1, text);
    else snprintf(to, PLACE, "in step %lld, instruction %lld", step + 1, pc);
}

static sk_status peer_died(sk_comm *c, int peer)
{
    char its[PLACE], mine[PLACE];
    const sk_rank_state *l = sk_heaps_rank_state(c->heaps, peer);
    const char *how = atomic_load(&l->state) == 3 ? "ended too early" : "died";
    place(c, peer, its);
    place(c, c->rank, mine);
    sk_status st = sk_fail(SK_EPEER, "rank %d (pid %lld) %s %s; rank %d waited for it %s", peer,
                           (long long)atomic_load(&l->pid), how, its, c->rank, mine);
    return sk_comm_report(c, st);
}

/* "rank 2, which waits for rank 3, which waits for .." */
static void chain_text(const sk_hang *b, char to[WAY])
{
    int n = 0;
    for (int i = 0; i < b->n && i < SK_HANG_CHAIN && n < WAY - 40; i++)
        n += snprintf(to + n, (size_t)(WAY - n), "%srank %d", i ? ", which waits for " : "",
                      b->chain[i]);
    if (b->n > SK_HANG_CHAIN && n < WAY - 20) snprintf(to + n, (size_t)(WAY - n), ", and so on");
}

static void advice(const sk_comm *c, char process, long long pid, char *to, size_t size)
{
    if (process == 'T') snprintf(to, size, "kill -CONT %lld would let it go on", pid);
    else if (process == 'Z' || process == 'X') snprintf(to, size, "its end was told by nobody");
    else
        snprintf(to, size,
                 "it hangs, or is slower than comm.timeout=%g allows (gdb -p %lld shows where)",
                 c->timeout_s, pid);
}

/* How long the rank has been at its instruction, as far as its ring tells. */
static double at_it(const sk_rank_state *l, double now)
{
    unsigned n = atomic_load(&l->ring_n);
    return n ? now - l->ring[(n - 1) % SK_FLIGHT_RECORDS].at : 0;
}

/* The rank that is the cause: what its process does, since when, where, and what helps. */
static void describe_cause(const sk_comm *c, int rank, double now, char to[CAUSE])
{
    const sk_rank_state *l = sk_heaps_rank_state(c->heaps, rank);
    long long pid = atomic_load(&l->pid);
    char process = pid == getpid() ? 'R' : sk_process_state(l); /* a thread runs, as I do */
    char its[PLACE], hint[200], since[40] = "";
    place(c, rank, its);
    advice(c, process, pid, hint, sizeof hint);
    if (at_it(l, now) > 0) snprintf(since, sizeof since, " since %.1f s", at_it(l, now));
    snprintf(to, CAUSE, "; rank %d (pid %lld) is %s%s %s; %s", rank, pid,
             sk_process_state_name(process), since, its, hint);
}

static sk_status too_long(sk_comm *c, const sk_backoff *p, double now)
{
    char mine[PLACE], who[WAY] = "several ranks", more[CAUSE] = "";
    sk_hang b = sk_hang_find(c->heaps, p->peer < 0 ? c->rank : p->peer);
    place(c, c->rank, mine);
    if (p->peer >= 0) chain_text(&b, who);
    if (b.cycle) snprintf(more, sizeof more, ": they wait for each other");
    else if (b.rank != c->rank) describe_cause(c, b.rank, now, more);
    sk_status st = sk_fail(SK_EPEER, "rank %d waited %.3g s %s, for %s%s", c->rank, now - p->since,
                           mine, who, more);
    return sk_comm_report(c, st);
}

/* --- waiting --- */

static inline void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Is there still reason to wait? */
static sk_status look(sk_comm *c, const sk_backoff *p)
{
    double now = sk_now();
    int dead = sk_hang_dead_rank(c->heaps, c->rank, p->peer, GRACE_S);
    if (dead >= 0) return peer_died(c, dead);
    if (c->timeout_s > 0 && now - p->since > c->timeout_s) return too_long(c, p, now);
    return SK_OK;
}

bool sk_wait_register(void)
{
    return !syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);
}

static void arm(sk_bell *bell, sk_backoff *p)
{
    p->seen = atomic_load(&bell->ring);
    atomic_store(&bell->asleep, 1);
    atomic_thread_fence(memory_order_seq_cst); /* before the caller reads its flags once more */
    syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
    p->armed = true;
}

static void disarm(sk_bell *bell, sk_backoff *p)
{
    atomic_store(&bell->asleep, 0);
    p->armed = false;
}

/* The time; a long while in which nobody looked is one in which I was stopped. */
static double look_at_clock(sk_backoff *p)
{
    double now = sk_now();
    if (p->since <= 0) p->since = p->looked = now;
    if (now - p->looked > ABSENT_S) p->since += now - p->looked;
    return p->looked = now;
}

/* Looks of all ranks together take the same part of the cores, however many ranks there are. */
static double sleep_s(const sk_comm *c)
{
    double s = SLEEP_S * c->heaps->n_here / (16.0 * c->heaps->cores);
    return s < SLEEP_S ? SLEEP_S : s < LONGEST_S ? s : LONGEST_S;
}

static sk_status nap(sk_comm *c, sk_backoff *p)
{
    sk_bell *bell = sk_heaps_bell(c->heaps, c->rank);
    sk_bell_sleep(bell, p->seen, p->poll ? POLL_S : sleep_s(c));
    disarm(bell, p);
    look_at_clock(p);
    if (!sk_heaps_quiet(c->heaps)) return quiet_failure();
    return look(c, p);
}

sk_status sk_backoff_wait(sk_comm *c, sk_backoff *p)
{
    if (!sk_heaps_quiet(c->heaps)) return quiet_failure();
    if (p->turns < MANY) p->turns++;
    if (p->turns <= SPINS && !c->crowded) {
        pause_cpu();
        return SK_OK;
    }
    if (p->since > 0 && !p->armed && p->turns % CLOCK_EVERY) { /* looking at the clock costs too */
        sched_yield();
        return SK_OK;
    }
    double now = look_at_clock(p);
    atomic_store_explicit(&c->state->waits_for, p->peer, memory_order_relaxed);
    if (now - p->since < (p->poll ? POLL_YIELD_S : YIELD_S)) {
        sched_yield();
        return p->turns % LOOK_EVERY ? SK_OK : look(c, p);
    }
    if (p->armed) return nap(c, p);
    arm(sk_heaps_bell(c->heaps, c->rank), p);
    return SK_OK;
}

void sk_backoff_end(sk_comm *c, sk_backoff *p)
{
    if (p->since > 0) atomic_store_explicit(&c->state->waits_for, -1, memory_order_relaxed);
    if (p->armed) disarm(sk_heaps_bell(c->heaps, c->rank), p);
    *p = (sk_backoff){.peer = p->peer};
}

/* Apart, so that the usual wait needs no frame. */
__attribute__((noinline)) static sk_status await_slowly(sk_comm *c, const atomic_ullong *flag,
                                                        uint64_t least, int peer)
{
    sk_backoff p = {.turns = SPINS, .peer = peer, .poll = c->in_flight || c->p2p};
    sk_status st = SK_OK;
    while (!st && !sk_reached(flag, least)) {
        st = sk_comm_progress(c); /* somebody may need what I have under way before it can come */
        if (!st) st = sk_backoff_wait(c, &p);
    }
    sk_backoff_end(c, &p);
    return st;
}

sk_status sk_await(sk_comm *c, const atomic_ullong *flag, uint64_t least, int peer)
{
    for (int i = c->crowded ? SPINS : 0; i < SPINS; i++) {
        if (sk_reached(flag, least)) return SK_OK;
        if (atomic_load_explicit(c->aborted, memory_order_relaxed)) return quiet_failure();
        pause_cpu();
    }
    return sk_reached(flag, least) ? SK_OK : await_slowly(c, flag, least, peer);
}
