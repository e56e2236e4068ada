/* copier.c - copies in order, on a thread of their own. */
#include "run/copier.h"
#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct task {
    int number;
    sk_copy copy;
} task;

struct sk_copier {
    sk_disk *disk;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    int n;
    task *queue; /* a ring of n: a number is under way once at most */
    int head, len;
    bool *busy;
    double *times;
    bool closing;
    char *failed; /* the first story; copies go on being answered with it */
};

static sk_status copy_one(const sk_copier *c, const sk_copy *k)
{
    if (!k->from) return sk_disk_read(c->disk, k->to, k->at, k->bytes);
    if (!k->to) return sk_disk_write(c->disk, k->at, k->from, k->bytes);
    memcpy(k->to, k->from, (size_t)k->bytes);
    return SK_OK;
}

static void do_one(sk_copier *c)
{
    task t = c->queue[c->head];
    c->head = (c->head + 1) % c->n;
    c->len--;
    pthread_mutex_unlock(&c->lock);
    c->times[2 * t.number] = sk_now();
    sk_status st = copy_one(c, &t.copy);
    c->times[2 * t.number + 1] = sk_now();
    pthread_mutex_lock(&c->lock);
    if (st && !c->failed) c->failed = strdup(sk_error_line());
    c->busy[t.number] = false;
    pthread_cond_signal(&c->done);
}

static void *serve(void *ctx)
{
    sk_copier *c = ctx;
    pthread_mutex_lock(&c->lock);
    while (!c->closing || c->len) {
        if (c->len) do_one(c);
        else pthread_cond_wait(&c->work, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

sk_status sk_copier_open(sk_disk *disk, int n, sk_copier **out)
{
    sk_copier *c = calloc(1, sizeof *c);
    pthread_condattr_t attr;
    if (c) c->queue = calloc((size_t)n + 1, sizeof *c->queue);
    if (c) c->busy = calloc((size_t)n + 1, sizeof *c->busy);
    if (c) c->times = calloc(2 * (size_t)n + 2, sizeof *c->times);
    if (!c || !c->queue || !c->busy || !c->times) return sk_fail(SK_EIO, "no memory for copies");
    c->disk = disk;
    c->n = n;
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->work, NULL);
    pthread_cond_init(&c->done, &attr);
    pthread_condattr_destroy(&attr);
    if (pthread_create(&c->thread, NULL, serve, c))
        return sk_fail(SK_EIO, "cannot start the thread that copies: %s", strerror(errno));
    *out = c;
    return SK_OK;
}

void sk_copier_close(sk_copier *c)
{
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    pthread_cond_destroy(&c->work);
    pthread_cond_destroy(&c->done);
    pthread_mutex_destroy(&c->lock);
    free(c->queue);
    free(c->busy);
    free(c->times);
    free(c->failed);
    free(c);
}

void sk_copier_begin(sk_copier *c, int number, sk_copy copy)
{
    pthread_mutex_lock(&c->lock);
    sk_assert(number < c->n && !c->busy[number] && c->len < c->n);
    c->queue[(c->head + c->len++) % c->n] = (task){number, copy};
    c->busy[number] = true;
    pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->lock);
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

sk_status sk_copier_wait(sk_copier *c, int number, double timeout_s)
{
    struct timespec until = in_seconds(timeout_s);
    int error = 0;
    sk_status st = SK_OK;
    pthread_mutex_lock(&c->lock);
    while (c->busy[number] && !error) error = pthread_cond_timedwait(&c->done, &c->lock, &until);
    if (c->failed) st = sk_fail(SK_EIO, "%s", c->failed);
    else if (c->busy[number])
        st = sk_fail(SK_EIO, "a copy between memories took over %.0f s; is the disk stuck?",
                     timeout_s);
    pthread_mutex_unlock(&c->lock);
    return st;
}

const double *sk_copier_times(const sk_copier *c, int number) { return &c->times[2 * number]; }
