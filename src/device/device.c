/* device.c - devices by name, and the list of what each of them has open. */
#include "device/device.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Not there where skein_cuda, or the tests' test/lib/cpu_device.c, was not linked; the address is
 * then NULL. */
#pragma weak sk_device_cuda
#pragma weak sk_device_cpu

static const sk_device_kind *const kinds[] = {&sk_device_cpu, &sk_device_cuda};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* ---- opening and closing */

static sk_status no_kind(const char *name, const char *word)
{
    if (!strcmp(word, "cuda"))
        return sk_fail(SK_ECONF,
                       "device '%s': this program was built without CUDA; build it where nvcc is "
                       "found, or use the device 'cpu'",
                       name);
    return sk_fail(SK_ECONF, "device '%s': '%s' is no kind of device; there are 'cpu' and 'cuda'",
                   name, word);
}

/* "cuda:1" -> the kind cuda and 1; "cuda" is "cuda:0". */
static sk_status parse(const char *name, const sk_device_kind **kind, int *index)
{
    char word[16];
    size_t n = strcspn(name, ":");
    const char *number = name[n] ? name + n + 1 : "0";
    char *end;
    long i = strtol(number, &end, 10);
    if (*end || number[strspn(number, "0123456789")] || !*number || i > INT_MAX)
        return sk_fail(SK_ECONF, "device '%s': '%s' is no number; say for example 'cuda:0'", name,
                       number);
    snprintf(word, sizeof word, "%.*s", n < sizeof word ? (int)n : (int)sizeof word, name);
    *index = (int)i;
    for (int k = 0; k < N_KINDS; k++)
        if (kinds[k] && !strcmp((*kind = kinds[k])->name, word)) return SK_OK;
    return no_kind(name, word);
}

static const sk_device_kind *find(const char *kind)
{
    for (int k = 0; k < N_KINDS; k++)
        if (kinds[k] && !strcmp(kinds[k]->name, kind)) return kinds[k];
    return NULL;
}

int sk_device_count(const char *kind)
{
    const sk_device_kind *k = find(kind);
    return !k ? 0 : k->count ? k->count() : 1;
}

bool sk_device_known(const char *kind) { return find(kind) != NULL; }

int sk_device_libraries(const char *kind, bool open, sk_device_library out[SK_MAX_LIBRARIES])
{
    const sk_device_kind *k = find(kind);
    memset(out, 0, sizeof *out * SK_MAX_LIBRARIES);
    return k && k->tools ? k->tools(open, out) : 0;
}

sk_status sk_device_open(const char *name, sk_device **out)
{
    const sk_device_kind *kind = NULL;
    int index = 0;
    SK_TRY(parse(name, &kind, &index));
    sk_arena a = {0};
    sk_device *d = sk_new(&a, sk_device);
    *d = (sk_device){.kind = kind, .index = index, .arena = a};
    snprintf(d->name, sizeof d->name, "%s:%d", kind->name, index);
    sk_status st = kind->open(d);
    if (st) {
        sk_device_close(d);
        return sk_trail(st, SK_HERE);
    }
    *out = d;
    return SK_OK;
}

void sk_device_close(sk_device *d)
{
    if (!d) return;
    for (int i = 0; i < d->graphs.n; i++) d->kind->graph_close(d, d->graphs.v[i]);
    for (int i = 0; i < d->events.n; i++) d->kind->event_close(d, d->events.v[i]);
    for (int i = 0; i < d->streams.n; i++) d->kind->stream_close(d, d->streams.v[i]);
    for (int i = 0; i < d->pools.n; i++)
        if (d->pools.v[i].base) d->kind->pool_close(d, d->pools.v[i].base, d->pools.v[i].bytes);
    for (int i = 0; i < d->pins.n; i++) d->kind->unpin(d, d->pins.v[i]);
    for (int i = 0; i < d->pinned.n; i++) d->kind->pinned_close(d, d->pinned.v[i]);
    sk_arena a = d->arena; /* d itself lies in it */
    sk_arena_end(&a);
}

const char *sk_device_name(const sk_device *d) { return d->name; }

sk_status sk_device_enter(sk_device *d)
{
    if (d->kind->enter) SK_TRY(d->kind->enter(d));
    return SK_OK;
}

sk_status sk_device_look(sk_device *d, sk_device_facts *out)
{
    sk_device_facts f = {0};
    SK_TRY(d->kind->look(d, &f));
    *out = f;
    return SK_OK;
}

/* ---- memory */

sk_status sk_pool_open(sk_device *d, size_t bytes, void **base)
{
    void *p = NULL;
    if (!bytes) bytes = 1; /* an empty pool has an address all the same */
    if (bytes > INT64_MAX / 2)
        return sk_fail(SK_EIO, "device '%s': no memory holds a pool of %zu bytes", d->name, bytes);
    SK_TRY(d->kind->pool_open(d, bytes, &p));
    *sk_push(&d->arena, &d->pools) = (sk_pool){p, bytes};
    *base = p;
    return SK_OK;
}

void sk_pool_close(sk_device *d, void *base)
{
    int i = 0;
    while (i < d->pools.n && d->pools.v[i].base != base) i++;
    sk_assert(base && i < d->pools.n);
    d->kind->pool_close(d, base, d->pools.v[i].bytes);
    d->pools.v[i] = (sk_pool){0};
}

sk_status sk_pinned_open(sk_device *d, size_t bytes, void **base)
{
    void *p = NULL;
    if (!d->kind->pinned_open) {
        *base = sk_alloc(&d->arena, bytes + 1);
        return SK_OK;
    }
    SK_TRY(d->kind->pinned_open(d, bytes ? bytes : 1, &p));
    *base = *sk_push(&d->arena, &d->pinned) = p;
    return SK_OK;
}

sk_status sk_pin(sk_device *d, void *base, size_t bytes)
{
    if (!d->kind->pin || !bytes) return SK_OK;
    SK_TRY(d->kind->pin(d, base, bytes));
    *sk_push(&d->arena, &d->pins) = base;
    return SK_OK;
}

/* Host and device addresses are never the same number, so one comparison serves all directions. */
static bool apart(const void *a, const void *b, size_t bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x < y ? y - x >= bytes : x - y >= bytes;
}

sk_status sk_device_copy(sk_device *d, void *to, const void *from, size_t bytes, sk_stream *s)
{
    if (!bytes) return SK_OK;
    sk_assert(s && apart(to, from, bytes));
    SK_TRY(d->kind->copy(d, to, from, bytes, s));
    return SK_OK;
}

sk_status sk_device_zero(sk_device *d, void *to, size_t bytes, sk_stream *s)
{
    if (bytes) SK_TRY(d->kind->zero(d, to, bytes, s));
    return SK_OK;
}

/* ---- streams, graphs and events */

sk_status sk_stream_open(sk_device *d, sk_stream **out)
{
    sk_stream *s = NULL;
    SK_TRY(d->kind->stream_open(d, &s));
    *out = *sk_push(&d->arena, &d->streams) = s;
    return SK_OK;
}

sk_status sk_stream_sync(sk_device *d, sk_stream *s)
{
    SK_TRY(d->kind->stream_sync(d, s));
    return SK_OK;
}

sk_status sk_event_open(sk_device *d, sk_event **out)
{
    sk_event *e = NULL;
    SK_TRY(d->kind->event_open(d, &e));
    *out = *sk_push(&d->arena, &d->events) = e;
    return SK_OK;
}

sk_status sk_event_record(sk_device *d, sk_event *e, sk_stream *s)
{
    SK_TRY(d->kind->event_record(d, e, s));
    return SK_OK;
}

sk_status sk_event_mark(sk_device *d, sk_event *e, sk_stream *s)
{
    SK_TRY((d->kind->event_mark ? d->kind->event_mark : d->kind->event_record)(d, e, s));
    return SK_OK;
}

sk_status sk_event_wait(sk_device *d, sk_event *e, sk_stream *s)
{
    SK_TRY(d->kind->event_wait(d, e, s));
    return SK_OK;
}

sk_status sk_event_done(sk_device *d, sk_event *e, bool *out)
{
    SK_TRY(d->kind->event_done(d, e, out));
    return SK_OK;
}

sk_status sk_event_seconds(sk_device *d, sk_event *from, sk_event *to, double *out)
{
    SK_TRY(d->kind->event_seconds(d, from, to, out));
    return SK_OK;
}

sk_status sk_stream_done(sk_device *d, sk_stream *s, bool *out)
{
    SK_TRY(d->kind->stream_done(d, s, out));
    return SK_OK;
}

static sk_status no_graphs(const sk_device *d)
{
    return sk_fail(SK_EBUG, "device '%s' records nothing", d->name);
}

sk_status sk_device_graph_begin(sk_device *d, sk_stream *s)
{
    if (!d->kind->graph_begin) return no_graphs(d);
    SK_TRY(d->kind->graph_begin(d, s));
    return SK_OK;
}

sk_status sk_device_graph_end(sk_device *d, sk_stream *s, sk_device_graph **out)
{
    sk_device_graph *t = NULL;
    if (!d->kind->graph_end) return no_graphs(d);
    SK_TRY(d->kind->graph_end(d, s, &t));
    *out = *sk_push(&d->arena, &d->graphs) = t;
    return SK_OK;
}

sk_status sk_device_graph_launch(sk_device *d, sk_device_graph *t, sk_stream *s)
{
    if (!d->kind->graph_launch) return no_graphs(d);
    SK_TRY(d->kind->graph_launch(d, t, s));
    return SK_OK;
}
