/* aside.c - the background worker of a rank: tasks run in order and have times; every wait
 * after a failure returns its error, and a task that never ends fails the first wait and blocks no
 * close.
 */
#include "run/background.h"
#include "base/clock.h"
#include "lib/check.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum { N = 100 };

static int order[4 * N + 1];
static atomic_int n_done;

static sk_status note(void *ctx)
{
    int at = atomic_fetch_add(&n_done, 1);
    order[at] = *(int *)ctx;
    return SK_OK;
}

static sk_status breaks(void *ctx)
{
    (void)ctx;
    return sk_fail(SK_EIO, "a disk that is gone");
}

static sk_status sleeps(void *ctx)
{
    (void)ctx;
    sleep(5);
    return SK_OK;
}

static void in_order(void)
{
    sk_background *a = NULL;
    int number[N];
    check(!sk_background_open(N, &a));
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < N; i++) {
            number[i] = i;
            sk_background_begin(a, i, note, &number[i]);
        }
        for (int i = N - 1; i >= 0; i--) check(!sk_background_wait(a, i, 10));
        check(sk_background_times(a, 0)[0] <= sk_background_times(a, 0)[1]);
        check(sk_background_times(a, 0)[1] <= sk_background_times(a, N - 1)[0]);
    }
    bool good = atomic_load(&n_done) == 4 * N;
    for (int i = 0; i < 4 * N; i++) good &= order[i] == i % N;
    check(good);
    sk_background_close(a);
}

static void failures(void)
{
    sk_background *a = NULL;
    int one = 1;
    check(!sk_background_open(2, &a));
    sk_background_begin(a, 0, breaks, NULL);
    sk_background_begin(a, 1, note, &one);
    fails(sk_background_wait(a, 0, 10), SK_EIO, "a disk that is gone");
    fails(sk_background_wait(a, 1, 10), SK_EIO, "a disk that is gone");
    sk_background_close(a);
}

static void stuck(void)
{
    sk_background *a = NULL;
    double begin = sk_now();
    check(!sk_background_open(1, &a));
    sk_background_begin(a, 0, sleeps, NULL);
    fails(sk_background_wait(a, 0, 0.1), SK_EIO, "is a disk stuck?");
    sk_background_close(a);
    check(sk_now() - begin < 3);
    sk_background_close(NULL);
}

int main(void)
{
    in_order();
    failures();
    stuck();
    printf("aside: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
