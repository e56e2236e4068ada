/* metrics.c - metrics.jsonl of a long run that is resumed: what stays, what is moved aside,
 * and a time that grows with the file, not with its square. */
#include "train/metrics.h"
#include "base/file_io.h"
#include "base/strings.h"
#include "lib/check.h"

#include <time.h>
#include <unistd.h>

/* The strict checks of ASan read the rest of the file for every line: there the time says nothing.
 */
#ifdef __SANITIZE_ADDRESS__
enum { STEPS = 6000, DONE = 4000 };
#else
enum { STEPS = 60000, DONE = 40000 };
#endif

static double used(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void tell(const char *path, int64_t step, double loss)
{
    sk_metrics m;
    check(!sk_metrics_open(&m, path, 0, 30));
    check(sk_metrics_val(&m, &(sk_record){.step = step, .loss = loss, .accuracy = NAN}));
    sk_metrics_close(&m);
}

/* A validation that is made again has its line already, whatever the order of its sums was. */
static void val_again(sk_arena *a, const char *path)
{
    static const char step[] = "{\"step\":30,\"loss\":1,\"ms\":2}\n";
    const char *one = sk_print(a, "%s{\"step\":30,\"val_loss\":5.25}\n", step);
    const char *more =
        sk_print(a, "%s{\"step\":30,\"val_loss\":5.26}\n{\"step\":30,\"val_loss\":null}\n", one);
    sk_text t = {0};
    check(!sk_file_write_new(path, step, sizeof step - 1));
    tell(path, 30, 5.25);
    tell(path, 30, 5.25);
    tell(path, 30, 5.2500003);
    check(!sk_file_read(a, path, &t) && !strcmp(t.s, one));
    tell(path, 30, 5.26); /* of other data */
    tell(path, 30, NAN);
    tell(path, 30, NAN);
    check(!sk_file_read(a, path, &t) && !strcmp(t.s, more));
}

int main(void)
{
    char dir[] = "/tmp/skein-metrics-XXXXXX";
    sk_arena a = {0};
    sk_metrics m;
    sk_text kept = {0}, aside = {0};
    sk_out o = {.arena = &a};
    check(mkdtemp(dir));
    const char *path = sk_print(&a, "%s/metrics.jsonl", dir);
    const char *first = sk_print(&a, "{\"step\":%d,", DONE + 1); /* of what is moved aside */
    for (int i = 1; i <= STEPS; i++)
        sk_out_add(&o, "{\"step\":%d,\"loss\":1,\"ms\":2,\"more\":\"%0200d\"}\n", i, 0);
    check(!sk_file_write_new(path, o.s, o.n));
    double begin = used();
    check(!sk_metrics_open(&m, path, 0, DONE));
    check(used() - begin < 5); /* 0.1; with a scan of the rest for every line 16 */
    check(m.n_again == STEPS - DONE && !strcmp(m.aside, "metrics.jsonl.1"));
    check(m.again_s > 2e-3 * (STEPS - DONE) - 0.1 && m.again_s < 2e-3 * (STEPS - DONE) + 0.1);
    sk_metrics_close(&m);
    check(!sk_file_read(&a, path, &kept) && !sk_file_read(&a, sk_print(&a, "%s.1", path), &aside));
    check(kept.n + aside.n == o.n && !memcmp(o.s, kept.s, kept.n));
    check(!memcmp(aside.s, o.s + kept.n, aside.n) && !strncmp(aside.s, first, strlen(first)));
    unlink(path);
    unlink(sk_print(&a, "%s.1", path));
    val_again(&a, path);
    unlink(path);
    rmdir(dir);
    sk_arena_end(&a);
    printf("metrics: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
