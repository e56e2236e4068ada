/* call_times.c - timing the collectives of a job. */
#include "plan/call_times.h"
#include "plan/coll_timing.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_SIZES = 12, MOST_MEMBERS = 64, MOST_BYTES = 1 << 28 };

static int by_size(const void *x, const void *y)
{
    const sk_timed_call *a = x, *b = y;
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static bool alike(const sk_timed_call *a, const sk_timed_call *b)
{
    return a->n == b->n && a->kind == b->kind;
}

/* The kind, sizes and members of every call, each once, in order. */
static void list(sk_arena *a, const sk_program *const *programs, int n, sk_call_times *out)
{
    sk_call_times all = {0};
    for (int i = 0; i < n; i++)
        for (int c = 0; c < programs[i]->calls.n; c++) {
            const sk_call_plan *plan = &programs[i]->calls.v[c];
            int members = programs[i]->groups[plan->group].n;
            int64_t bytes = sk_call_bytes(plan) / 4 * 4;
            if (plan->algorithm >= 0 || members < 2 || members > MOST_MEMBERS) continue;
            if (bytes < 4 || bytes > MOST_BYTES) continue;
            *sk_push(a, &all) = (sk_timed_call){plan->kind, members, bytes, 0};
        }
    if (all.n) qsort(all.v, (size_t)all.n, sizeof *all.v, by_size);
    for (int i = 0; i < all.n; i++)
        if (!i || by_size(&all.v[i - 1], &all.v[i])) *sk_push(a, out) = all.v[i];
}

/* Of each kind a few sizes, the first and the last among them. */
static void thin(sk_call_times *t)
{
    int kept = 0;
    for (int i = 0, end; i < t->n; i = end) {
        for (end = i; end < t->n && alike(&t->v[i], &t->v[end]);) end++;
        int n = end - i, few = n < MOST_SIZES ? n : MOST_SIZES;
        for (int k = 0; k < few; k++)
            t->v[kept++] = t->v[i + (few > 1 ? (int)((int64_t)k * (n - 1) / (few - 1)) : 0)];
    }
    t->n = kept;
}

/* Those of one group size, by one set of processes. */
static sk_status time_some(sk_arena *a, sk_timed_call *v, int n)
{
    sk_coll_spec *specs = sk_many(a, sk_coll_spec, n);
    sk_coll_timing *times = sk_many(a, sk_coll_timing, n);
    for (int i = 0; i < n; i++)
        specs[i] = (sk_coll_spec){.kind = v[i].kind,
                                  .reduce = SK_SUM,
                                  .type = SK_F32,
                                  .bytes = v[i].bytes,
                                  .n_ranks = v[i].n,
                                  .algorithm = -1,
                                  .fresh = true,
                                  .seconds = 0.05};
    SK_TRY(sk_time_colls(specs, n, times));
    for (int i = 0; i < n; i++) v[i].seconds = times[i].median;
    return SK_OK;
}

sk_status sk_time_calls(sk_arena *a, const sk_program *const *programs, int n, sk_call_times *out)
{
    *out = (sk_call_times){0};
    list(a, programs, n, out);
    thin(out);
    for (int i = 0, end; i < out->n; i = end) {
        for (end = i; end < out->n && out->v[end].n == out->v[i].n;) end++;
        SK_TRY(time_some(a, &out->v[i], end - i));
    }
    return SK_OK;
}

/* Between two timed sizes interpolated by logarithms; beyond the largest proportional to bytes. */
static double between(const sk_timed_call *x, const sk_timed_call *y, int64_t bytes)
{
    if (!x) return y->seconds;
    if (!y) return x->seconds * (double)bytes / (double)x->bytes;
    double share = log((double)bytes / (double)x->bytes) / log((double)y->bytes / (double)x->bytes);
    return x->seconds * pow(y->seconds / x->seconds, share);
}

double sk_call_seconds(const sk_call_times *t, sk_coll_kind kind, int n, int64_t bytes)
{
    const sk_timed_call *below = NULL, *above = NULL;
    for (int i = 0; i < t->n; i++) {
        const sk_timed_call *c = &t->v[i];
        if (c->kind != kind || c->n != n) continue;
        if (c->bytes == bytes / 4 * 4) return c->seconds;
        if (c->bytes < bytes) below = c;
        else if (!above) above = c;
    }
    return below || above ? between(below, above, bytes) : -1;
}
