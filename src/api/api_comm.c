/* api_comm.c - communicators: for a function on n ranks, for threads of the caller's, for a process
 * that another launcher started. */
#include "api/communicator.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { USUAL_MIB = 64, PAGE = 4096, MOST_RANKS = 4096 };
static const double usual_timeout = 60, grace_s = 2;

/* --- the world --- */

static sk_status good_size(const char *who, int64_t *bytes, double *timeout)
{
    const int64_t most = (int64_t)1 << 46;
    if (*bytes < 0 || *bytes > most)
        return sk_fail(SK_EUSAGE, "%s: %lld bytes for each rank; up to %lld are possible", who,
                       (long long)*bytes, (long long)most);
    if (isnan(*timeout)) return sk_fail(SK_EUSAGE, "%s: timeout_s is not a number", who);
    if (!*bytes) *bytes = (int64_t)USUAL_MIB << 20;
    *bytes = (*bytes + PAGE - 1) / PAGE * PAGE + SK_CALL_SLOTS * SK_CALL_BYTES;
    *timeout = *timeout < 0 ? 0 : *timeout > 0 ? *timeout : usual_timeout;
    return SK_OK;
}

static sk_world *new_world(int n, double timeout)
{
    sk_arena a = {0};
    sk_world *w = sk_new(&a, sk_world);
    w->arena = a;
    w->n = n;
    w->timeout_s = timeout;
    atomic_store(&w->refs, 1);
    return w;
}

static void leave_world(sk_world *w)
{
    if (atomic_fetch_sub(&w->refs, 1) > 1) return;
    bool failed = w->heaps && sk_heaps_aborted(w->heaps, NULL, NULL, NULL);
    if (w->heaps) sk_heaps_close(w->heaps);
    if (w->joined && w->boot.n_hosts && !failed) sk_boot_leave(&w->boot);
    sk_arena a = w->arena; /* w itself lies in it */
    sk_arena_end(&a);
}

static sk_status open_world(const char *who, int n, int64_t bytes, double timeout, bool shared,
                            sk_world **out)
{
    if (n < 1 || n > MOST_RANKS)
        return sk_fail(SK_EUSAGE, "%s: %d ranks; 1 to %d are possible", who, n, MOST_RANKS);
    SK_TRY(good_size(who, &bytes, &timeout));
    sk_world *w = new_world(n, timeout);
    int64_t *each = sk_many(&w->arena, int64_t, n);
    for (int r = 0; r < n; r++) each[r] = bytes;
    sk_status st = sk_heaps_open(n, each, shared, 0, &w->heaps);
    if (st) leave_world(w);
    else *out = w;
    return st;
}

/* --- one rank's end --- */

static sk_status open_end(sk_world *w, int rank, skein_comm **out)
{
    sk_arena a = {0};
    skein_comm *c = sk_new(&a, skein_comm);
    c->arena = a;
    c->world = w;
    c->rank = rank;
    c->ranks = sk_many(&c->arena, int, w->n);
    for (int r = 0; r < w->n; r++) c->ranks[r] = r;
    c->base = sk_heap_base(w->heaps, rank);
    c->bytes = sk_heap_bytes(w->heaps, rank);
    atomic_fetch_add(&w->refs, 1);
    sk_group all = {.n = w->n, .me = rank, .ranks = c->ranks};
    sk_comm_opts o = {.rank = rank,
                      .groups = &all,
                      .n_groups = 1,
                      .timeout_s = w->timeout_s,
                      .wire = w->host_of ? w->boot.wire : NULL,
                      .host_of = w->host_of};
    sk_status st = sk_comm_open(w->heaps, &o, &c->comm);
    if (st) skein_comm_close(c);
    else *out = c;
    return st;
}

void skein_comm_close(skein_comm *c)
{
    if (!c) return;
    sk_comm_close(c->comm);
    leave_world(c->world);
    sk_arena a = c->arena; /* c itself lies in it */
    sk_arena_end(&a);
}

int skein_comm_rank(const skein_comm *c) { return c ? c->rank : -1; }
int skein_comm_ranks(const skein_comm *c) { return c ? c->world->n : 0; }

/* --- what became of it --- */

/* The rank that failed first has said why; the other ranks report the same. */
static sk_status failure_of(const skein_comm *c)
{
    const char *why = "";
    if (!sk_heaps_aborted(c->world->heaps, NULL, NULL, &why)) return SK_OK;
    return sk_fail(SK_EPEER, "%s", why);
}

sk_status sk_communicator_check(const skein_comm *c, const char *who)
{
    if (!c) return sk_fail(SK_EUSAGE, "%s: the communicator is NULL", who);
    return failure_of(c);
}

/* Arguments are checked before, so that what comm/ calls a bug is that ranks differ in their calls.
 */
sk_status sk_communicator_error(const skein_comm *c, sk_status st)
{
    if (!st) return SK_OK;
    if (st == SK_EBUG) return sk_fail(SK_EUSAGE, "%s", sk_error_line());
    if (st == SK_EPEER && failure_of(c)) return SK_EPEER;
    sk_heaps_abort(c->world->heaps, st, c->rank, sk_error_line());
    return st;
}

void skein_comm_abort(skein_comm *c, const char *why)
{
    if (c) sk_heaps_abort(c->world->heaps, SK_EPEER, c->rank, why && *why ? why : "aborted");
}

/* --- three ways to open it --- */

int skein_comm_open(int n, int64_t bytes, double timeout_s, skein_comm *comms[])
{
    sk_world *w = NULL;
    SK_NEED(comms);
    SK_TELL(open_world(__func__, n, bytes, timeout_s, false, &w));
    sk_arena tmp = {0};
    skein_comm **made = sk_many(&tmp, skein_comm *, n);
    sk_status st = SK_OK;
    for (int r = 0; r < n && !st; r++) st = open_end(w, r, &made[r]);
    for (int r = 0; r < n; r++)
        if (st) skein_comm_close(made[r]);
        else comms[r] = made[r];
    leave_world(w);
    sk_arena_end(&tmp);
    return (int)(st ? sk_trail(st, SK_HERE) : SK_OK);
}

typedef struct crowd { /* of skein_comm_run */
    sk_world *world;
    skein_rank *f;
    void *ctx;
} crowd;

static sk_status be_rank(void *ctx, int rank)
{
    crowd *x = ctx;
    skein_comm *c = NULL;
    SK_TRY(open_end(x->world, rank, &c));
    int code = x->f(c, x->ctx);
    char why[80];
    snprintf(why, sizeof why, "skein_comm_run: f returned %d on rank %d", code, rank);
    if (code) /* before the end is closed, so that nobody waits for it */
        sk_heaps_abort(x->world->heaps, (sk_status)code, rank,
                       *sk_error_line() ? sk_error_line() : why);
    skein_comm_close(c);
    return (sk_status)code;
}

int skein_comm_run(int n, int64_t bytes, double timeout_s, int flags, skein_rank *f, void *ctx)
{
    sk_world *w = NULL;
    sk_arena tmp = {0};
    sk_ranks ranks = {0};
    bool processes = (flags & SKEIN_PROCESSES) != 0;
    SK_NEED(f);
    if (flags & ~SKEIN_PROCESSES)
        return (int)sk_fail(SK_EUSAGE, "skein_comm_run: flags are %d; SKEIN_PROCESSES is known",
                            flags);
    SK_TELL(open_world(__func__, n, bytes, timeout_s, processes, &w));
    crowd x = {.world = w, .f = f, .ctx = ctx};
    sk_status st = sk_ranks_start(&tmp, w->heaps, n, processes, be_rank, &x, &ranks);
    sk_ranks_end(&ranks, grace_s);
    if (!st) st = sk_heaps_failure(w->heaps);
    if (st == SK_EBUG) st = sk_fail(SK_EUSAGE, "%s", sk_error_line()); /* calls differ */
    leave_world(w);
    sk_arena_end(&tmp);
    return (int)st;
}

static sk_status join(sk_world *w, int64_t bytes)
{
    sk_boot *b = &w->boot;
    SK_TRY(sk_boot_detect(&w->arena, b));
    if (b->n_ranks < 2) { /* nobody else started us */
        b->rank = 0;
        return sk_heaps_open(w->n = 1, &bytes, false, 0, &w->heaps);
    }
    SK_TRY(sk_boot_join(b, w->timeout_s));
    w->joined = true;
    w->n = b->n_ranks;
    w->host_of = b->n_hosts > 1 ? b->host_of : NULL;
    int64_t *each = sk_many(&w->arena, int64_t, w->n);
    SK_TRY(sk_boot_bcast(b, &bytes, sizeof bytes)); /* rank 0's word */
    for (int r = 0; r < w->n; r++) each[r] = bytes;
    return sk_boot_heaps(b, each, (sk_heap_aliases){0}, 64, &w->heaps);
}

int skein_comm_join(int64_t bytes, double timeout_s, skein_comm **out)
{
    SK_NEED(out);
    SK_TELL(good_size(__func__, &bytes, &timeout_s));
    sk_world *w = new_world(1, timeout_s);
    sk_status st = join(w, bytes);
    if (st) w->joined = false; /* after a failure nobody leaves together */
    if (!st) st = open_end(w, w->boot.rank, out);
    leave_world(w);
    return (int)(st ? sk_trail(st, SK_HERE) : SK_OK);
}
