/* team.c - the threads of a rank: every part exactly once, nothing lost between two jobs.
 *
 * The job writes plain memory from all threads and the caller reads it: under
 * ThreadSanitizer this also proves that a job's end orders what was written. */
#include "lib/check.h"

#include "base/clock.h"
#include "base/threads.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 13, COUNT = 10007 };

typedef struct sheet {
    int64_t round, n;
    int64_t seen[MOST], of[MOST]; /* by part: the last round, and how many parts it was told of */
    int64_t times[MOST];
    int64_t cell[COUNT];
} sheet;

static void work(void *ctx, int part, int of)
{
    sheet *s = ctx;
    s->seen[part] = s->round;
    s->of[part] = of;
    s->times[part]++;
    int64_t to = s->n * (part + 1) / of;
    for (int64_t i = s->n * part / of; i < to; i++) s->cell[i] += s->round;
}

static void rest(long us) { nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL); }

/* `rounds` jobs of odd sizes; now and then a pause in which the team falls asleep. */
static bool stress(int threads, int rounds, int pause_every)
{
    static const int64_t sizes[] = {COUNT, 0, 1, 2, 3, 5, 16, 17, 1023};
    sheet *s = calloc(1, sizeof *s);
    sk_threads *t = sk_threads_open(threads);
    int64_t sum = 0, want = 0;
    bool ok = s && sk_threads_count(t) == threads;
    for (s->round = 1; ok && s->round <= rounds; s->round++) {
        s->n = sizes[s->round % 9];
        sk_threads_run(t, work, s);
        for (int p = 0; p < threads; p++)
            ok &= s->seen[p] == s->round && s->of[p] == threads && s->times[p] == s->round;
        want += s->n * s->round;
        if (pause_every && s->round % pause_every == 0) rest(700);
    }
    sk_threads_close(t);
    for (int i = 0; i < COUNT; i++) sum += s->cell[i];
    if (sum != want)
        printf("%d threads: sum %lld, not %lld\n", threads, (long long)sum, (long long)want);
    free(s);
    return ok && sum == want;
}

static void *other(void *arg)
{
    *(bool *)arg = stress(3, 300, 60);
    return NULL;
}

/* Four callers with a team each, on fewer cores. */
static void side_by_side(void)
{
    pthread_t thread[4];
    bool ok[4] = {0};
    for (int i = 0; i < 4; i++) check(!pthread_create(&thread[i], NULL, other, &ok[i]));
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    check(ok[0] && ok[1] && ok[2] && ok[3]);
}

static void open_close(void)
{
    for (int i = 0; i < 60; i++) {
        sheet *s = calloc(1, sizeof *s);
        sk_threads *t = sk_threads_open(1 + i % 6);
        if (i % 3 == 0) rest(400); /* the threads are asleep when it ends */
        if (i % 2) s->round = 1, sk_threads_run(t, work, s);
        sk_threads_close(t);
        check(!(i % 2) || s->times[0] == 1);
        free(s);
    }
}

int main(void)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 8, MOST};
    double begin = sk_now();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) check(stress(sizes[i], 400, 0));
    check(stress(2, 60, 1));
    check(stress(5, 60, 1));
    side_by_side();
    open_close();
    printf("team: %d checks, %d failed (%.1f s)\n", checks, bad, sk_now() - begin);
    return bad != 0;
}
