/* device_rates.c - copies, files and launches by the clock. */
#include "plan/device_rates.h"
#include "base/clock.h"
#include "base/strings.h"
#include "device/disk.h"
#include "plan/workers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { TURNS = 5, LAUNCHES = 256, PAGE = 4096, SMALLEST = 256 << 10 };

typedef struct rates_note { /* shared with the worker */
    sk_device_rates rates;
    char how[256];
} rates_note;

typedef struct rates_job {
    const char *device, *folder;
    int64_t most;
    rates_note *note;
} rates_job;

/* --- a processor --- */

static double copied(char *to, const char *from, size_t bytes)
{
    int times = bytes < (4 << 20) ? 16 : 1;
    double best = INFINITY;
    for (int turn = 0; turn < TURNS; turn++) {
        double begin = sk_worked();
        for (int i = 0; i < times; i++) {
            memcpy(to, from, bytes);
            to[i] ^= 1; /* so that no copy can be left out */
        }
        best = fmin(best, (sk_worked() - begin) / times);
    }
    return fmax(best, 1e-9);
}

static sk_status processor(const rates_job *j)
{
    sk_device_rates *r = &j->note->rates;
    size_t most = (size_t)j->most;
    char *at = mmap(NULL, 2 * most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return sk_fail(SK_EIO, "measuring copies: there is no room for two times %lld bytes",
                       (long long)most);
    memset(at, 1, 2 * most);
    int i = 0;
    for (size_t n = SMALLEST; n <= most && i < SK_COPY_SIZES; n *= 8, i++) {
        r->size[i] = 2 * (double)n;
        r->inside[i] = copied(at, at + most, n);
    }
    if (i) r->in = r->out = r->size[i - 1] / 2 / r->inside[i - 1];
    munmap(at, 2 * most);
    return SK_OK;
}

/* --- a GPU --- */

typedef struct gpu {
    sk_device *d;
    sk_stream *s;
    sk_event *from, *to;
    char *pool, *pinned;
} gpu;

static sk_status copy_seconds(gpu *g, void *to, const void *from, size_t bytes, double *out)
{
    int times = bytes < (16 << 20) ? 8 : 2;
    *out = INFINITY;
    for (int turn = 0; turn < TURNS; turn++) {
        double took = 0;
        SK_TRY(sk_event_record(g->d, g->from, g->s));
        for (int i = 0; i < times; i++) SK_TRY(sk_device_copy(g->d, to, from, bytes, g->s));
        SK_TRY(sk_event_record(g->d, g->to, g->s));
        SK_TRY(sk_stream_sync(g->d, g->s));
        SK_TRY(sk_event_seconds(g->d, g->from, g->to, &took));
        *out = fmin(*out, fmax(took / times, 1e-9));
    }
    return SK_OK;
}

static sk_status copies(gpu *g, const rates_job *j)
{
    sk_device_rates *r = &j->note->rates;
    size_t most = (size_t)j->most, n = SMALLEST;
    double in = 0, out = 0;
    for (int i = 0; n <= most && i < SK_COPY_SIZES; n *= 8, i++) {
        r->size[i] = 2 * (double)n;
        SK_TRY(copy_seconds(g, g->pool, g->pool + most, n, &r->inside[i]));
    }
    SK_TRY(copy_seconds(g, g->pool, g->pinned, most, &in));
    SK_TRY(copy_seconds(g, g->pinned, g->pool, most, &out));
    r->in = (double)most / in;
    r->out = (double)most / out;
    return SK_OK;
}

static sk_status issue_all(gpu *g)
{
    for (int i = 0; i < LAUNCHES; i++)
        SK_TRY(sk_device_zero(g->d, g->pool + (size_t)(PAGE * i), sizeof(float), g->s));
    return SK_OK;
}

static sk_status launches_issued(gpu *g, sk_device_rates *r)
{
    r->issue = r->alone = INFINITY;
    for (int turn = 0; turn < TURNS; turn++) {
        double begin = sk_now();
        SK_TRY(issue_all(g));
        r->issue = fmin(r->issue, (sk_now() - begin) / LAUNCHES);
        SK_TRY(sk_stream_sync(g->d, g->s));
        r->alone = fmin(r->alone, (sk_now() - begin) / LAUNCHES);
    }
    return SK_OK;
}

static sk_status launches_in_graph(gpu *g, sk_device_rates *r)
{
    sk_device_graph *graph = NULL;
    r->replay = r->in_graph = INFINITY;
    SK_TRY(sk_device_graph_begin(g->d, g->s));
    SK_TRY(issue_all(g));
    SK_TRY(sk_device_graph_end(g->d, g->s, &graph));
    for (int turn = 0; turn < TURNS; turn++) {
        double begin = sk_now();
        SK_TRY(sk_device_graph_launch(g->d, graph, g->s));
        r->replay = fmin(r->replay, sk_now() - begin);
        SK_TRY(sk_stream_sync(g->d, g->s));
        r->in_graph = fmin(r->in_graph, (sk_now() - begin) / LAUNCHES);
    }
    return SK_OK;
}

static sk_status with_gpu(const rates_job *j)
{
    gpu g = {NULL, NULL, NULL, NULL, NULL, NULL};
    void *pool = NULL, *pinned = NULL;
    SK_TRY(sk_device_open(j->device, &g.d));
    sk_status st = sk_stream_open(g.d, &g.s);
    if (!st) st = sk_event_open(g.d, &g.from);
    if (!st) st = sk_event_open(g.d, &g.to);
    if (!st) st = sk_pool_open(g.d, 2 * (size_t)j->most, &pool);
    if (!st) st = sk_pinned_open(g.d, (size_t)j->most, &pinned);
    g.pool = pool, g.pinned = pinned;
    if (!st) st = sk_device_look(g.d, &j->note->rates.facts);
    if (!st) st = copies(&g, j);
    if (!st) st = launches_issued(&g, &j->note->rates);
    if (!st) st = launches_in_graph(&g, &j->note->rates);
    sk_device_close(g.d);
    return st;
}

/* --- a file --- */

static sk_status file_turn(sk_disk *d, char *at, int64_t bytes, sk_device_rates *r)
{
    double begin = sk_now();
    SK_TRY(sk_disk_write(d, 0, at, bytes));
    double middle = sk_now();
    SK_TRY(sk_disk_read(d, at, 0, bytes));
    r->written = fmax(r->written, (double)bytes / fmax(middle - begin, 1e-9));
    r->read = fmax(r->read, (double)bytes / fmax(sk_now() - middle, 1e-9));
    return SK_OK;
}

/* A folder without room for the file is no reason to stop: its rate stays as preset. */
static void file(const rates_job *j)
{
    int64_t bytes = j->most / PAGE * PAGE;
    sk_disk *d = NULL;
    if (!j->folder) return;
    char *at = mmap(NULL, (size_t)bytes + SK_DISK_BOUNCE, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return;
    memset(at, 1, (size_t)bytes);
    sk_status st = sk_disk_open(j->folder, bytes, at + bytes, &d);
    for (int turn = 0; !st && turn < 2; turn++) st = file_turn(d, at, bytes, &j->note->rates);
    snprintf(j->note->how, sizeof j->note->how, "%s", st ? sk_error_line() : sk_disk_how(d));
    if (st) j->note->rates.read = j->note->rates.written = 0;
    sk_disk_close(d);
    munmap(at, (size_t)bytes + SK_DISK_BOUNCE);
}

static sk_status measure(void *ctx, int rank)
{
    const rates_job *j = ctx;
    (void)rank;
    SK_TRY(strcmp(j->device, "cpu") ? with_gpu(j) : processor(j));
    file(j);
    return SK_OK;
}

sk_status sk_measure_device(sk_arena *a, const char *device, const char *folder, int64_t most,
                            sk_device_rates *out)
{
    const int64_t none = PAGE;
    sk_heaps *heaps = NULL;
    *out = (sk_device_rates){.how = ""};
    SK_TRY(sk_heaps_open(1, &none, true, sizeof(rates_note), &heaps));
    rates_job j = {device, folder, most, sk_heaps_extra(heaps)};
    sk_status st = sk_workers_run(heaps, 1, measure, &j);
    if (!st) {
        *out = j.note->rates;
        out->how = sk_strdup(a, j.note->how);
    }
    sk_heaps_close(heaps);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}
