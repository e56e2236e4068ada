/* coll_calibration.c - a few dozen timings, a few straight lines. */
#include "plan/coll_calibration.h"
#include "base/proc.h"
#include "plan/coll_timing.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 32, N_NEAR = 3, N_MIDDLE = 3, N_PLAYED = 4, MOST_RANKS = 64 };

static const int64_t near_sizes[N_NEAR] = {64 << 10, 256 << 10, 1 << 20};
static const int64_t middle_sizes[N_MIDDLE] = {4 << 20, 12 << 20, 36 << 20};
static const int64_t played_sizes[N_PLAYED] = {64, 4 << 10, 64 << 10, 1 << 20};
static const double least = 1e-15; /* of what must not be zero */

void sk_fit_line(const double *size, const double *seconds, int n, double *a, double *b)
{
    double w = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (int i = 0; i < n; i++) {
        double k = 1 / (seconds[i] * seconds[i]);
        w += k;
        x += k * size[i];
        y += k * seconds[i];
        xx += k * size[i] * size[i];
        xy += k * size[i] * seconds[i];
    }
    *b = fmax((w * xy - x * y) / (w * xx - x * x), 0);
    *a = fmax((y - *b * x) / w, 0);
}

/* --- points: what is timed together --- */

typedef struct points {
    sk_coll_spec spec[MOST];
    sk_coll_timing time[MOST];
    int n;
} points;

static void add_point(points *p, sk_coll_kind kind, int64_t bytes, int ranks, int algorithm)
{
    sk_assert(p->n < MOST);
    p->spec[p->n++] = (sk_coll_spec){.kind = kind,
                                     .reduce = SK_SUM,
                                     .type = SK_F32,
                                     .bytes = bytes,
                                     .n_ranks = ranks,
                                     .algorithm = algorithm,
                                     .in_place = kind == SK_ALLREDUCE};
}

/* A tenth of the samples are faster: what the host does when it is left alone. */
static double took(const points *p, int at) { return p->time[at].p10; }

static sk_status time_points(points *p, double seconds)
{
    for (int i = 0; i < p->n; i++) p->spec[i].seconds = seconds / p->n;
    SK_TRY(sk_time_colls(p->spec, p->n, p->time));
    for (int i = 0; i < p->n; i++)
        if (p->time[i].wrong)
            return sk_fail(SK_EBUG, "calibrating: %lld elements of %s by %s came out wrong",
                           (long long)p->time[i].wrong, sk_coll_names[p->spec[i].kind],
                           sk_algorithm_name(p->spec[i].algorithm));
    return SK_OK;
}

/* The line through points [from, from + n). */
static void line(const points *p, int from, int n, double *a, double *b)
{
    double size[MOST], seconds[MOST];
    for (int i = 0; i < n; i++) {
        size[i] = (double)p->spec[from + i].bytes;
        seconds[i] = took(p, from + i);
    }
    sk_fit_line(size, seconds, n, a, b);
}

/* --- in the heaps --- */

/* Two vectors of this size do not fit in the cache, but four in a sixth of the memory. */
static int64_t far_size(const sk_costs *c)
{
    int64_t want = c->cache / 2 + c->cache / 8, most = sk_proc_available() / 24;
    if (want < (64 << 20)) want = 64 << 20;
    return (want < most ? want : most) / 4096 * 4096;
}

static double per_byte(const points *p, int at) { return took(p, at) / (double)p->spec[at].bytes; }

static void far_rate(const points *p, int at, double near, double *far)
{
    *far = fmax(per_byte(p, at), near) / p->spec[at].n_ranks;
}

/* Where near ends: the kernel's word on caches holds for a whole processor, of which a virtual
 * machine may have little, so the times must say it. */
static void find_cache(const points *p, int from, int n, sk_costs *c)
{
    const double slower = 1.6; /* than near */
    for (int i = from; i < from + n; i++) {
        if (per_byte(p, i) < slower * c->shm.sum) continue;
        int64_t below = i > from ? p->spec[i - 1].bytes : near_sizes[N_NEAR - 1];
        c->cache = 2 * (int64_t)sqrt((double)below * (double)p->spec[i].bytes);
        return;
    }
}

static sk_status heaps(sk_arena *a, sk_costs *c, double seconds)
{
    points *p = sk_new(a, points);
    double start, crowd = fmax(1, 2 / (double)c->cores);
    int64_t far = far_size(c);
    add_point(p, SK_ALLREDUCE, 4, 2, SK_BUILTIN);
    for (int i = 0; i < N_NEAR; i++) add_point(p, SK_ALLREDUCE, near_sizes[i], 2, SK_BUILTIN);
    for (int i = 0; i < N_NEAR; i++) add_point(p, SK_ALLGATHER, near_sizes[i], 2, SK_BUILTIN);
    add_point(p, SK_ALLGATHER, far, 2, SK_BUILTIN);
    add_point(p, SK_ALLREDUCE, far, 2, SK_BUILTIN);
    int middle = p->n;
    for (int i = 0; i < N_MIDDLE && middle_sizes[i] < far; i++)
        add_point(p, SK_ALLREDUCE, middle_sizes[i], 2, SK_BUILTIN);
    SK_TRY(time_points(p, seconds));
    c->shm.tiny = fmax(took(p, 0), least);
    line(p, 1, N_NEAR, &start, &c->shm.sum);
    line(p, 1 + N_NEAR, N_NEAR, &start, &c->shm.copy);
    far_rate(p, middle - 1, c->shm.sum, &c->shm.sum_far);
    far_rate(p, middle - 2, c->shm.copy, &c->shm.copy_far);
    c->far = 2 * far;
    find_cache(p, middle, p->n - middle, c);
    if (c->far < c->cache) c->far = c->cache; /* of a host with little memory */
    c->shm.sum = fmax(c->shm.sum / crowd, least);
    c->shm.copy = fmax(c->shm.copy / crowd, least);
    return SK_OK;
}

static sk_status tiny(sk_arena *a, int ranks, double seconds, double *out)
{
    points *p = sk_new(a, points);
    add_point(p, SK_ALLREDUCE, 4, ranks, SK_BUILTIN);
    SK_TRY(time_points(p, seconds));
    *out = took(p, 0);
    return SK_OK;
}

/* As many ranks as cores, then twice as many. */
static sk_status members(sk_arena *a, sk_costs *c, double seconds)
{
    int cores = c->cores < MOST_RANKS ? (int)c->cores : MOST_RANKS;
    int crowd = cores < 2 ? 4 : 2 * cores < MOST_RANKS ? 2 * cores : MOST_RANKS;
    double t = 0;
    if (cores > 2) {
        SK_TRY(tiny(a, cores, seconds / 2, &t));
        c->shm.member = fmax(t - c->shm.tiny, 0) / (cores - 2);
    }
    if (crowd <= c->cores) return SK_OK; /* a host so large is not crowded by this many */
    SK_TRY(tiny(a, crowd, seconds / 2, &t));
    c->shm.crowded = t / crowd;
    return SK_OK;
}

/* --- lists --- */

/* A list that gathers and scatters sums of two in one round each. */
static int played_list(void)
{
    for (int i = 0; sk_coll_parts[i]; i++) {
        const sk_coll *c = sk_coll_parts[i];
        bool plain = c->build && c->price && !c->native && !c->packs && !c->adasum;
        bool can = sk_coll_can(c, &(sk_coll_ask){.kind = SK_ALLGATHER, .n = 2}) &&
                   sk_coll_can(c, &(sk_coll_ask){.kind = SK_REDUCE_SCATTER, .n = 2});
        if (plain && can && c->order == SK_ORDER_TREE) return i;
    }
    return SK_NO_CHOICE;
}

static sk_status lists(sk_arena *a, sk_costs *c, double seconds)
{
    points *p = sk_new(a, points);
    double once, b, start, b_sum;
    int list = played_list();
    if (list < 0) return SK_OK;
    for (int i = 0; i < N_PLAYED; i++) add_point(p, SK_ALLGATHER, played_sizes[i], 2, list);
    for (int i = 0; i < N_PLAYED; i++) add_point(p, SK_REDUCE_SCATTER, played_sizes[i], 2, list);
    SK_TRY(time_points(p, seconds));
    sk_coll_cost moved = sk_coll_parts[list]->price(&(sk_coll_ask){.kind = SK_ALLGATHER, .n = 2});
    sk_coll_cost sums =
        sk_coll_parts[list]->price(&(sk_coll_ask){.kind = SK_REDUCE_SCATTER, .n = 2});
    line(p, 0, N_PLAYED, &once, &b);
    line(p, N_PLAYED, N_PLAYED, &start, &b_sum);
    /* one message out and one in a round, each half an alpha */
    c->inside.alpha = fmax(once / (2 * moved.rounds), least);
    c->inside.each = c->inside.alpha / 2;
    c->inside.beta = fmax(b / moved.sent, least);
    /* where sums hide behind copies, a quarter of what both cost in the heaps is the least */
    c->gamma = fmax((b_sum - sums.sent * c->inside.beta) / sums.summed, c->shm.sum / 4);
    return SK_OK;
}

/* A fifth is left for starting ranks, touching memory and checking results. */
sk_status sk_calibrate(sk_arena *a, double seconds, sk_costs *out)
{
    sk_costs c = sk_costs_preset;
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (cache > 0) c.cache = cache;
    c.cores = sk_proc_cores();
    SK_TRY(heaps(a, &c, 0.4 * seconds));
    SK_TRY(members(a, &c, 0.1 * seconds));
    SK_TRY(lists(a, &c, 0.3 * seconds));
    sk_host_mark(c.host, sizeof c.host);
    *out = c;
    return SK_OK;
}

sk_status sk_calibrate_machine(sk_arena *a, const sk_costs *c, sk_machine *out)
{
    SK_TRY(sk_machine_read(a, "cpu", out));
    snprintf(out->name, sizeof out->name, "calibrated");
    out->doc = sk_print(a, "measured on %s", c->host);
    out->costs = *c;
    return SK_OK;
}
