/* host_peak.c - the peak of this host's cores, measured once and kept in a file. */
#include "train/host_peak.h"
#include "base/file_io.h"
#include "base/hash.h"
#include "base/threads.h"
#include "base/strings.h"
#include "tensor/strict.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define MEASURE_S 0.3  /* where nothing is kept */
#define CORE_MOST 1e12 /* flops per second: two FMA units of 16 lanes at 6 GHz have 0.4e12 */
#define TIMES     1000000000
enum { ENTRIES = 64, FILE_MOST = 16 << 10 };

typedef struct entry {
    int64_t busy, times;
    double flops;
} entry;

typedef struct table {
    const char *path, *head; /* NULL: no place for a file */
    entry v[ENTRIES];        /* by busy, ascending */
    int n;
} table;

int sk_host_busy(int ranks, int threads, int cores)
{
    int64_t all = (int64_t)ranks * threads;
    return all < cores ? (int)all : cores;
}

static void name_file(sk_arena *a, table *t)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char host[65] = "host";
    sk_host h;
    sk_host_detect(&h);
    gethostname(host, sizeof host - 1);
    for (char *p = host; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '.') *p = '-';
    t->head = sk_print(a, "skein peak 1, %s, %s, %s, %d cores, %s\n", host, h.cpu, h.isa, h.cores,
                       h.blas);
    if (cache && *cache == '/')
        t->path = sk_print(a, "%s/skein/peak-%s-%d.txt", cache, host, h.cores);
    else if (home && *home)
        t->path = sk_print(a, "%s/.cache/skein/peak-%s-%d.txt", home, host, h.cores);
}

/* One line "cores flops times"; its end, NULL: it is not one. */
static const char *read_entry(const char *s, entry *e)
{
    char *end = NULL;
    if (!isdigit((unsigned char)*s)) return NULL;
    e->busy = strtoll(s, &end, 10);
    if (*end != ' ' || !isdigit((unsigned char)end[1])) return NULL;
    e->flops = strtod(end + 1, &end);
    if (*end != ' ' || !isdigit((unsigned char)end[1])) return NULL;
    e->times = strtoll(end + 1, &end, 10);
    bool good = e->busy >= 1 && e->busy <= INT32_MAX && e->times >= 1 && e->times <= TIMES &&
                e->flops >= 1e6 && e->flops <= CORE_MOST * (double)e->busy;
    return good && *end == '\n' ? end + 1 : NULL;
}

static sk_shown first_line(sk_arena *a, const char *s)
{
    return sk_strict_show(sk_print(a, "%.*s", (int)strcspn(s, "\n"), s));
}

/* NULL: all of it is as it should be. */
static const char *read_entries(sk_arena *a, table *t, const sk_text *x)
{
    const char *s = x->s, *sum = NULL;
    size_t n = strlen(t->head);
    if (strncmp(s, t->head, n))
        return strncmp(s, "skein peak ", 11)
                   ? "is no file of peaks"
                   : sk_print(a, "is of another host or BLAS (%s)", first_line(a, s).s);
    for (s += n; strncmp(s, "sum ", 4); t->n++) {
        entry e;
        if (t->n == ENTRIES || !(s = read_entry(s, &e)) || (t->n && e.busy <= t->v[t->n - 1].busy))
            return "has a malformed line";
        t->v[t->n] = e;
    }
    sum = sk_print(a, "sum %08x\n", sk_crc32c(0, x->s, (size_t)(s - x->s)));
    return strcmp(s, sum) || x->n != (size_t)(s - x->s) + strlen(sum) ? "has a wrong sum" : NULL;
}

/* What failed and is survived is told by its caller, and by nobody else. */
static const char *survived(sk_arena *a)
{
    const char *line = sk_strdup(a, sk_error_line());
    sk_error_set("");
    return line;
}

/* Fills t; what is wrong with the file comes out as a sentence, NULL: nothing, or there is none. */
static const char *read_table(sk_arena *a, table *t)
{
    int fd = -1;
    int64_t size = 0;
    const char *wrong = NULL;
    if (!t->path || !sk_is_there(t->path)) return NULL;
    sk_status st = sk_file_open(t->path, &fd, &size);
    if (!st && size > FILE_MOST) wrong = "is too long";
    else if (!st) {
        char *s = sk_alloc(a, (size_t)size + 1);
        st = sk_file_pread(fd, t->path, s, (size_t)size, 0);
        if (!st) wrong = read_entries(a, t, &(sk_text){s, (size_t)size});
    }
    if (fd >= 0) close(fd);
    if (wrong || st) t->n = 0;
    if (wrong) return sk_print(a, "%s %s: the peak is measured again", t->path, wrong);
    return st ? sk_print(a, "%s: the peak is measured again", survived(a)) : NULL;
}

static entry *look_up(table *t, int busy)
{
    for (int i = 0; i < t->n; i++)
        if (t->v[i].busy == busy) return &t->v[i];
    return NULL;
}

sk_kept_peak sk_host_peak_find(sk_arena *a, int busy)
{
    table t = {0};
    name_file(a, &t);
    sk_kept_peak out = {.why = read_table(a, &t)};
    const entry *e = look_up(&t, busy);
    if (e) out.flops = e->flops, out.times = e->times;
    return out;
}

/* The entry of so many cores, made if there is none; NULL: the table is full. */
static entry *take(table *t, int busy)
{
    entry *e = look_up(t, busy);
    if (e || t->n == ENTRIES) return e;
    int i = t->n++;
    for (; i && t->v[i - 1].busy > busy; i--) t->v[i] = t->v[i - 1];
    t->v[i] = (entry){.busy = busy};
    return &t->v[i];
}

static sk_status write_table(sk_arena *a, const table *t)
{
    sk_out o = {.arena = a};
    sk_out_add(&o, "%s", t->head);
    for (int i = 0; i < t->n; i++)
        sk_out_add(&o, "%lld %.6g %lld\n", (long long)t->v[i].busy, t->v[i].flops,
                   (long long)t->v[i].times);
    sk_out_add(&o, "sum %08x\n", sk_crc32c(0, o.s, o.n));
    return sk_file_replace(t->path, o.s, o.n);
}

/* Without a lock (a file system that has none, a holder that was stopped) two at once may lose one
 * of them, no more. */
static void wait_for(int fd)
{
    const struct timespec moment = {.tv_nsec = 10000000};
    for (int i = 0; i < 100 && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK; i++)
        nanosleep(&moment, NULL);
}

static sk_status lock(sk_arena *a, const table *t, int *fd)
{
    if (!t->path)
        return sk_fail(SK_EIO, "neither XDG_CACHE_HOME nor HOME names a folder to store it in");
    SK_TRY(sk_dir_make(sk_print(a, "%.*s", (int)(strrchr(t->path, '/') - t->path), t->path)));
    SK_TRY(sk_file_own(sk_print(a, "%s.lock", t->path), 0, fd));
    wait_for(*fd);
    return SK_OK;
}

sk_kept_peak sk_host_peak_keep(sk_arena *a, int busy, double flops)
{
    table t = {0};
    sk_kept_peak out = {.flops = flops, .times = 1};
    int fd = -1;
    name_file(a, &t);
    sk_status st = lock(a, &t, &fd);
    if (!st) read_table(a, &t); /* who looked for one before was told what is wrong */
    entry *e = st ? NULL : take(&t, busy);
    if (e) {
        if (flops > e->flops) e->flops = flops;
        if (e->times < TIMES) e->times++;
        out = (sk_kept_peak){.flops = e->flops, .times = e->times};
        st = write_table(a, &t);
    }
    if (fd >= 0) close(fd);
    if (st)
        out.why = sk_print(a,
                           "the peak of this host cannot be stored, so each run measures its own "
                           "and their MFUs cannot be compared: %s",
                           survived(a));
    return out;
}

sk_kept_peak sk_host_peak_of(sk_arena *a, int busy)
{
    sk_kept_peak kept = sk_host_peak_find(a, busy);
    int threads = busy < SK_THREADS_MAX ? busy : SK_THREADS_MAX;
    const char *why = kept.why;
    sk_peak_rate rate;
    if (kept.flops > 0) return kept;
    if (sk_host_peak(threads, MEASURE_S, &rate))
        return (sk_kept_peak){.why = sk_print(a, "the peak is not measured: %s", survived(a))};
    kept = sk_host_peak_keep(a, busy, rate.flops * busy / threads);
    if (!kept.why) kept.why = why;
    return kept;
}
