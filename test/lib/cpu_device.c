/* cpu_device.c - the host as a device, for tests: pools are its memory, streams are done as soon as
 * asked.  Linked where a test names sk_device_cpu.
 *
 * Pools start on a 2 MiB boundary and ask for huge pages: kernels walk through all of a pool every
 * step, and with 4 KiB pages the walk misses the TLB once per page.  The kernel of the system
 * promises memory it does not have and kills somebody later, so a pool that cannot fit is refused
 * here, before. */
#include "device/device.h"
#include "base/clock.h"
#include "base/proc.h"
#include "base/strings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE = 2 << 20 };

struct sk_event {
    double at; /* seconds; 0: never recorded */
};

static sk_status cpu_open(sk_device *d)
{
    if (!d->index) return SK_OK;
    return sk_fail(SK_ECONF, "device '%s': all processors of a host are the one device 'cpu'",
                   d->name);
}

/* ---- facts */

static sk_status cpu_look(sk_device *d, sk_device_facts *out)
{
    (void)d;
    if (!sk_proc_line("/proc/cpuinfo", "model name", out->model, sizeof out->model))
        snprintf(out->model, sizeof out->model, "a processor without a name");
    out->bytes = sk_proc_memory();
    out->available = sk_proc_available();
    out->same_memory_as_host = true;
    return SK_OK;
}

/* ---- pools */

static size_t round_up(size_t x, size_t to) { return (x + to - 1) / to * to; }

static sk_status no_memory(sk_device *d, size_t bytes, int64_t available, const char *why)
{
    sk_arena a = {0};
    sk_status st =
        sk_fail(SK_EIO,
                "device '%s': a pool of %s (%zu bytes) does not fit, %s can be had: %s; "
                "use a smaller micro-batch, or shard or recompute more",
                d->name, sk_bytes(&a, (int64_t)bytes), bytes, sk_bytes(&a, available), why);
    sk_arena_end(&a);
    return st;
}

/* Map one huge page more than asked, then cut off what stands over on both sides. */
static sk_status cpu_pool_open(sk_device *d, size_t bytes, void **base)
{
    sk_device_facts f = {0};
    SK_TRY(cpu_look(d, &f));
    if (bytes > (uint64_t)f.available) return no_memory(d, bytes, f.available, "the host is full");
    size_t all = round_up(bytes, HUGE), mapped = all + HUGE;
    char *p = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return no_memory(d, bytes, f.available, strerror(errno));
    size_t before = round_up((size_t)p, HUGE) - (size_t)p;
    if (before) munmap(p, before);
    if (before < HUGE) munmap(p + before + all, HUGE - before);
    madvise(p + before, all, MADV_HUGEPAGE); /* if it cannot: slower, not wrong */
    *base = p + before;
    return SK_OK;
}

static void cpu_pool_close(sk_device *d, void *base, size_t bytes)
{
    (void)d;
    munmap(base, round_up(bytes, HUGE));
}

static sk_status cpu_copy(sk_device *d, void *to, const void *from, size_t bytes, sk_stream *s)
{
    (void)d, (void)s;
    memcpy(to, from, bytes);
    return SK_OK;
}

static sk_status cpu_zero(sk_device *d, void *to, size_t bytes, sk_stream *s)
{
    (void)d, (void)s;
    memset(to, 0, bytes);
    return SK_OK;
}

/* ---- streams and events: all is over when the call returns, so order keeps itself */

static sk_status cpu_stream_open(sk_device *d, sk_stream **out)
{
    *out = (sk_stream *)sk_alloc(&d->arena, 1); /* nothing but an address of its own */
    return SK_OK;
}

static void cpu_stream_close(sk_device *d, sk_stream *s) { (void)d, (void)s; }

static sk_status cpu_stream_sync(sk_device *d, sk_stream *s)
{
    (void)d, (void)s;
    return SK_OK;
}

static sk_status cpu_stream_done(sk_device *d, sk_stream *s, bool *out)
{
    (void)d, (void)s;
    *out = true;
    return SK_OK;
}

static sk_status cpu_event_open(sk_device *d, sk_event **out)
{
    *out = sk_new(&d->arena, sk_event);
    return SK_OK;
}

static void cpu_event_close(sk_device *d, sk_event *e) { (void)d, (void)e; }

static sk_status cpu_event_record(sk_device *d, sk_event *e, sk_stream *s)
{
    (void)d, (void)s;
    e->at = sk_now();
    return SK_OK;
}

static sk_status cpu_event_wait(sk_device *d, sk_event *e, sk_stream *s)
{
    (void)d, (void)e, (void)s;
    return SK_OK;
}

static sk_status cpu_event_done(sk_device *d, sk_event *e, bool *out)
{
    (void)d, (void)e;
    *out = true;
    return SK_OK;
}

static sk_status cpu_event_seconds(sk_device *d, sk_event *from, sk_event *to, double *out)
{
    if (from->at <= 0 || to->at <= 0)
        return sk_fail(SK_EBUG, "device '%s': time between events that were never recorded",
                       d->name);
    *out = to->at - from->at;
    return SK_OK;
}

const sk_device_kind sk_device_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .look = cpu_look,
    .pool_open = cpu_pool_open,
    .pool_close = cpu_pool_close,
    .copy = cpu_copy,
    .stream_open = cpu_stream_open,
    .stream_close = cpu_stream_close,
    .stream_sync = cpu_stream_sync,
    .event_open = cpu_event_open,
    .event_close = cpu_event_close,
    .event_record = cpu_event_record,
    .event_wait = cpu_event_wait,
    .event_seconds = cpu_event_seconds,
    .zero = cpu_zero,
    .stream_done = cpu_stream_done,
    .event_done = cpu_event_done,
};
