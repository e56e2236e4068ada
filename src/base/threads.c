/* threads.c - a generation counter starts a job, a countdown ends it. */
#include "base/threads.h"
#include "base/status.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPINS = 2000, YIELDS = 200 }; /* about 50 us, then about 100 us */

struct sk_threads {
    _Alignas(64) atomic_uint job; /* counts jobs and wraps; each thread follows it, so that none
                                     is missed */
    _Alignas(64) atomic_int left; /* threads still working on this job */
    _Alignas(64) atomic_int asleep;
    sk_work *work; /* NULL: go home */
    void *ctx;
    int n;
    struct member {
        sk_threads *team;
        int part;
        pthread_t thread;
    } member[SK_THREADS_MAX];
};

static void futex(atomic_uint *word, int op, unsigned value)
{
    syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static void pause_cpu(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

/* One turn of waiting; false when it is time to sleep. */
static bool turn(int i)
{
    if (i < SPINS) pause_cpu();
    else if (i < SPINS + YIELDS) sched_yield();
    else return false;
    return true;
}

static void wait_change(sk_threads *t, unsigned seen)
{
    for (int i = 0; turn(i); i++)
        if (atomic_load_explicit(&t->job, memory_order_acquire) != seen) return;
    atomic_fetch_add(&t->asleep, 1);
    while (atomic_load(&t->job) == seen) futex(&t->job, FUTEX_WAIT, seen);
    atomic_fetch_sub(&t->asleep, 1);
}

static void *life(void *arg)
{
    struct member *me = arg;
    sk_threads *t = me->team;
    for (unsigned seen = 0;; seen++) {
        wait_change(t, seen);
        if (!t->work) return NULL;
        t->work(t->ctx, me->part, t->n);
        atomic_fetch_sub_explicit(&t->left, 1, memory_order_release);
    }
}

static void post(sk_threads *t, sk_work *work, void *ctx)
{
    t->work = work;
    t->ctx = ctx;
    atomic_store_explicit(&t->left, t->n - 1, memory_order_relaxed);
    atomic_fetch_add(&t->job, 1);
    if (atomic_load(&t->asleep)) futex(&t->job, FUTEX_WAKE, SK_THREADS_MAX);
}

sk_threads *sk_threads_open(int threads)
{
    sk_assert(threads >= 1 && threads <= SK_THREADS_MAX);
    sk_threads *t = aligned_alloc(64, (sizeof *t + 63) / 64 * 64);
    sk_assert(t);
    *t = (sk_threads){.n = threads};
    for (int i = 1; i < threads; i++) {
        t->member[i] = (struct member){.team = t, .part = i};
        sk_assert(!pthread_create(&t->member[i].thread, NULL, life, &t->member[i]));
    }
    return t;
}

void sk_threads_run(sk_threads *t, sk_work *work, void *ctx)
{
    if (t->n == 1) {
        work(ctx, 0, 1);
        return;
    }
    post(t, work, ctx);
    work(ctx, 0, t->n);
    for (int i = 0; atomic_load_explicit(&t->left, memory_order_acquire); i++)
        if (!turn(i)) sched_yield(); /* a part of a kernel is long, never endless */
}

void sk_threads_close(sk_threads *t)
{
    if (t->n > 1) post(t, NULL, NULL);
    for (int i = 1; i < t->n; i++) pthread_join(t->member[i].thread, NULL);
    free(t);
}

int sk_threads_count(const sk_threads *t) { return t->n; }
