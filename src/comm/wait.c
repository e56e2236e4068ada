/* wait.c - waiting for other ranks, and failing together.
 *
 * Waiting is spinning for SPINS, yielding for YIELDS, then sleeping on the bell.
 * With more ranks than cores spinning only keeps the awaited rank from running:
 * a wait then yields a few times and sleeps.  Whoever raises a flag looks whether
 * its readers sleep.  The two orders "raise flag, read asleep" and "set asleep,
 * read flag" must not both miss, hence sequentially consistent atomics there. */
#include "comm/inside.h"
#include "base/clock.h"

#include <sched.h>
#include <stdio.h>

enum { SPINS = 2000, YIELDS = 200, CROWDED_YIELDS = 8 };

/* --- failing --- */

sk_status sk_comm_tell(sk_comm *c, sk_status code)
{
    if (sk_heaps_abort(c->heaps, code, c->rank, sk_error())) return code;
    sk_error_set("");
    return SK_EPEER;
}

sk_status sk_comm_hushed(void)
{
    sk_error_set("");
    return SK_EPEER;
}

static sk_status too_long(sk_comm *c, int peer, double seconds)
{
    const sk_line *l = sk_heaps_line(c->heaps, peer);
    char waits[64] = "not waiting for a rank";
    long long step = atomic_load(&l->step), pc = atomic_load(&l->pc);
    long long on = atomic_load(&l->waits_for);
    if (on >= 0) snprintf(waits, sizeof waits, "waiting for rank %lld", on);
    sk_status st =
        sk_fail(SK_EPEER,
                "rank %d waited %.3g s at instruction %lld for rank %d (which is at "
                "step %lld, instruction %lld, %s); it hangs, died, or is slower than "
                "the timeout allows",
                c->rank, seconds, (long long)atomic_load(&c->line->pc), peer, step, pc, waits);
    return sk_comm_tell(c, st);
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

static sk_status sleep_until(sk_comm *c, const atomic_ullong *flag, uint64_t least, int peer)
{
    sk_bell *bell = sk_heaps_bell(c->heaps, c->rank);
    double start = sk_now(), slice = c->timeout_s > 0 ? c->timeout_s / 8 : 1;
    int yields = c->crowded ? CROWDED_YIELDS : YIELDS;
    for (int i = 0; !sk_reached(flag, least); i++) {
        if (!sk_heaps_quiet(c->heaps)) return sk_comm_hushed();
        double waited = sk_now() - start;
        if (c->timeout_s > 0 && waited > c->timeout_s) return too_long(c, peer, waited);
        if (i < yields) {
            sched_yield();
            continue;
        }
        unsigned seen = atomic_load(&bell->ring);
        atomic_store(&bell->asleep, 1);
        if (atomic_load(flag) < least && sk_heaps_quiet(c->heaps)) sk_bell_sleep(bell, seen, slice);
        atomic_store(&bell->asleep, 0);
    }
    return SK_OK;
}

sk_status sk_await(sk_comm *c, const atomic_ullong *flag, uint64_t least, int peer)
{
    for (int i = c->crowded ? SPINS : 0; i < SPINS; i++) {
        if (sk_reached(flag, least)) return SK_OK;
        if (!sk_heaps_quiet(c->heaps)) return sk_comm_hushed();
        pause_cpu();
    }
    if (sk_reached(flag, least)) return SK_OK;
    atomic_store_explicit(&c->line->waits_for, peer, memory_order_relaxed);
    sk_status st = sleep_until(c, flag, least, peer);
    atomic_store_explicit(&c->line->waits_for, -1, memory_order_relaxed);
    return st;
}
