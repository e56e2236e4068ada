/* background.c - a queue of tasks and the thread that executes them. */
#include "run/background.h"
#include "base/clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct task {
    int number;
    sk_background_task *run;
    void *ctx;
} task;

struct sk_background {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    int n;
    task *queue; /* a ring buffer of n: each number is under way at most once */
    int head, len;
    bool *busy;
    double *times;
    bool closing;
    bool stuck;   /* a task took longer than the timeout */
    char *failed; /* the first error; every later wait returns it */
};

static void do_one(sk_background *a)
{
    task t = a->queue[a->head];
    a->head = (a->head + 1) % a->n;
    a->len--;
    pthread_mutex_unlock(&a->lock);
    a->times[2 * t.number] = sk_now();
    sk_status st = t.run(t.ctx);
    a->times[2 * t.number + 1] = sk_now();
    pthread_mutex_lock(&a->lock);
    if (st && !a->failed) a->failed = strdup(sk_error_line());
    a->busy[t.number] = false;
    pthread_cond_signal(&a->done);
}

static void *serve(void *ctx)
{
    sk_background *a = ctx;
    pthread_mutex_lock(&a->lock);
    while (!a->closing || a->len) {
        if (a->len) do_one(a);
        else pthread_cond_wait(&a->work, &a->lock);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

static void release(sk_background *a)
{
    free(a->queue);
    free(a->busy);
    free(a->times);
    free(a->failed);
    free(a);
}

static sk_background *make(int n)
{
    sk_background *a = calloc(1, sizeof *a);
    if (!a) return NULL;
    a->n = n;
    a->queue = calloc((size_t)n + 1, sizeof *a->queue);
    a->busy = calloc((size_t)n + 1, sizeof *a->busy);
    a->times = calloc(2 * (size_t)n + 2, sizeof *a->times);
    if (a->queue && a->busy && a->times) return a;
    release(a);
    return NULL;
}

sk_status sk_background_open(int n, sk_background **out)
{
    sk_background *a = make(n);
    pthread_condattr_t attr;
    if (!a) return sk_fail(SK_EIO, "no memory for a background worker");
    pthread_mutex_init(&a->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&a->work, NULL);
    pthread_cond_init(&a->done, &attr);
    pthread_condattr_destroy(&attr);
    int error = pthread_create(&a->thread, NULL, serve, a);
    if (error) {
        release(a);
        return sk_fail(SK_EIO, "cannot start a background worker: %s", strerror(error));
    }
    *out = a;
    return SK_OK;
}

void sk_background_close(sk_background *a)
{
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    a->closing = true;
    pthread_cond_signal(&a->work);
    pthread_mutex_unlock(&a->lock);
    if (a->stuck) { /* the task may never end, and the error must be reported: leak all of it */
        pthread_detach(a->thread);
        return;
    }
    pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->work);
    pthread_cond_destroy(&a->done);
    pthread_mutex_destroy(&a->lock);
    release(a);
}

void sk_background_begin(sk_background *a, int number, sk_background_task *run, void *ctx)
{
    pthread_mutex_lock(&a->lock);
    sk_assert(0 <= number && number < a->n && !a->busy[number] && a->len < a->n);
    a->queue[(a->head + a->len++) % a->n] = (task){number, run, ctx};
    a->busy[number] = true;
    pthread_cond_signal(&a->work);
    pthread_mutex_unlock(&a->lock);
}

static struct timespec in_seconds(double s)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double end = (double)t.tv_sec + (double)t.tv_nsec * 1e-9 + s;
    t.tv_sec = (time_t)end;
    t.tv_nsec = (long)((end - (double)t.tv_sec) * 1e9);
    return t;
}

sk_status sk_background_wait(sk_background *a, int number, double timeout_s)
{
    struct timespec until = in_seconds(timeout_s);
    sk_assert(0 <= number && number < a->n);
    int error = 0;
    sk_status st = SK_OK;
    pthread_mutex_lock(&a->lock);
    while (a->busy[number] && !error) error = pthread_cond_timedwait(&a->done, &a->lock, &until);
    if (a->failed) st = sk_fail(SK_EIO, "%s", a->failed);
    else if ((a->stuck = a->busy[number]))
        st = sk_fail(SK_EIO, "a task of the background worker took over %.0f s; is a disk stuck?",
                     timeout_s);
    pthread_mutex_unlock(&a->lock);
    return st;
}

const double *sk_background_times(const sk_background *a, int number)
{
    return &a->times[2 * number];
}
