/* The device "cpu": names, pools, copies, streams, events, and what must be refused. */
#include "device/device.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static int n_checks, n_bad;

static void check(bool ok, const char *what)
{
    n_checks++;
    if (!ok) n_bad++, printf("%s does not hold (last failure: %s)\n", what, sk_error_line());
}
#define CHECK(cond) check((cond), #cond)

static void refused(const char *name, const char *hint)
{
    sk_device *d = NULL;
    sk_status st = sk_device_open(name, &d);
    n_checks++;
    if (st == SK_ECONF && !d && strstr(sk_error_line(), hint)) return;
    n_bad++;
    printf("device '%s': %d, \"%s\"; \"%s\" was expected in it\n", name, (int)st, sk_error_line(),
           hint);
    sk_device_close(d);
}

static void names(void)
{
    static const char *const good[] = {"cpu", "cpu:0"};
    for (size_t i = 0; i < 2; i++) {
        sk_device *d = NULL;
        CHECK(!sk_device_open(good[i], &d));
        CHECK(d && !strcmp(sk_device_name(d), "cpu:0"));
        sk_device_close(d);
    }
    refused("gpu", "'gpu' is no kind");
    refused("", "'' is no kind");
    refused("cp", "no kind");
    refused("a name longer than any kind of device could ever have", "no kind");
    refused("cpu:1", "one device 'cpu'");
    refused("cpu:", "no number");
    refused("cpu:x", "no number");
    refused("cpu:-1", "no number");
    refused("cpu: 1", "no number");
    refused("cpu:99999999999999999999", "no number");
    refused("cuda:0", "without CUDA"); /* this test is linked without skein_cuda */
    sk_device_close(NULL);
}

static void facts(sk_device *d)
{
    sk_device_facts f;
    CHECK(!sk_device_look(d, &f));
    CHECK(f.model[0] && memchr(f.model, 0, sizeof f.model));
    CHECK(f.bytes > 0 && f.available > 0 && f.available <= f.bytes);
    CHECK(f.same_memory_as_host);
}

static void pools(sk_device *d)
{
    static const size_t sizes[] = {0, 1, 4096, (2 << 20) - 1, 2 << 20, (4 << 20) + 3};
    enum { N = sizeof sizes / sizeof *sizes };
    char *base[N];
    for (int i = 0; i < N; i++) {
        void *p = NULL;
        CHECK(!sk_pool_open(d, sizes[i], &p));
        CHECK(p && !((uintptr_t)p % 256));
        base[i] = memset(p, i + 1, sizes[i]);
    }
    for (int i = 0; i < N; i++) /* nobody wrote into anybody's pool */
        CHECK(!sizes[i] || (base[i][0] == i + 1 && base[i][sizes[i] - 1] == i + 1));
    for (int i = 0; i < N; i += 2) sk_pool_close(d, base[i]); /* the rest goes with the device */
    void *p = NULL;
    CHECK(sk_pool_open(d, (size_t)1 << 60, &p) == SK_EIO && !p);
    CHECK(strstr(sk_error_line(), "does not fit"));
    CHECK(sk_pool_open(d, SIZE_MAX, &p) == SK_EIO && !p);
    CHECK(!sk_pool_open(d, 64, &p) && p); /* a refusal does no harm */
}

static void streams(sk_device *d)
{
    static const char text[] = "there and back";
    char back[sizeof text] = "";
    sk_stream *s[2] = {0};
    sk_event *e[2] = {0};
    void *base = NULL;
    double seconds = -1;
    CHECK(!sk_pool_open(d, 256, &base));
    for (int i = 0; i < 2; i++) CHECK(!sk_stream_open(d, &s[i]) && !sk_event_open(d, &e[i]));
    CHECK(s[0] && s[1] && s[0] != s[1] && e[0] && e[1] && e[0] != e[1]);
    CHECK(sk_event_seconds(d, e[0], e[1], &seconds) == SK_EBUG);
    CHECK(!sk_event_record(d, e[0], s[0]));
    CHECK(!sk_device_copy(d, base, text, sizeof text, s[0]));
    CHECK(!sk_device_copy(d, (char *)base + 128, base, sizeof text, s[0]));
    CHECK(!sk_device_copy(d, NULL, NULL, 0, s[0])); /* an empty piece has no address */
    CHECK(!sk_event_record(d, e[1], s[0]));
    CHECK(!sk_event_wait(d, e[1], s[1]));
    CHECK(!sk_device_copy(d, back, (char *)base + 128, sizeof text, s[1]));
    CHECK(!sk_stream_sync(d, s[1]));
    CHECK(!strcmp(text, back));
    CHECK(!sk_event_seconds(d, e[0], e[1], &seconds) && seconds >= 0 && seconds < 10);
}

int main(void)
{
    sk_device *d = NULL;
    CHECK(!strcmp(sk_device_cpu.name, "cpu")); /* links test/lib/cpu_device.c */
    names();
    CHECK(!sk_device_open("cpu", &d));
    if (d) facts(d), pools(d), streams(d);
    sk_device_close(d);
    printf("device: %d checks, %d bad\n", n_checks, n_bad);
    return n_bad != 0;
}
