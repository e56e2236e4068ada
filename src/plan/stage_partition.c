/* stage_partition.c - two passes of dynamic programming: how fast the slowest stage can be; and
 * with that as a limit, the stages that are most alike. */
#include "plan/stage_partition.h"
#include "base/strings.h"

#include <math.h>
#include <stddef.h>

static const double ROUNDING = 1e-12; /* relative, of sums in another order */

typedef struct cell { /* the best of the layers from one on, on so many ranks */
    double value;     /* INFINITY: there is none */
    int end, ranks;   /* of its first stage */
} cell;

typedef struct table {
    const sk_partition_in *in;
    int level, units, end; /* of the layers before `end`, on so many units of this level */
    double rate, limit;    /* limit: of any stage or message, in the second pass; else 0 */
    const double *inner;   /* [from * (n + 1) + end]: seconds of a unit; NULL: sums of layers */
    const double *seconds, *weights, *stored, *saved; /* sums of the layers before each */
    cell *v;                                          /* [from * (units + 1) + units left] */
} table;

static double *sums(sk_arena *a, const sk_partition_in *in, size_t member)
{
    double *to = sk_many(a, double, in->n + 1);
    for (int i = 0; i < in->n; i++)
        to[i + 1] = to[i] + *(const double *)((const char *)&in->layers[i] + member);
    return to;
}

static table open_table(sk_arena *a, const sk_partition_in *in)
{
    return (table){.in = in,
                   .seconds = sums(a, in, offsetof(sk_chain_layer, seconds)),
                   .weights = sums(a, in, offsetof(sk_chain_layer, weights)),
                   .stored = sums(a, in, offsetof(sk_chain_layer, stored)),
                   .saved = sums(a, in, offsetof(sk_chain_layer, saved))};
}

static cell *at(const table *t, int from, int left) { return &t->v[from * (t->units + 1) + left]; }

/* --- costs --- */

/* The first stage of those that have `left` units. */
static double stage(const table *t, int from, int end, int left, int r)
{
    const double *extra = t->in->extra_seconds;
    double work =
        t->inner ? t->inner[from * (t->in->n + 1) + end] : t->seconds[end] - t->seconds[from];
    double bytes = 2.0 * (r - 1) / r * (t->weights[end] - t->weights[from]);
    if (t->rate > 0) work = fmax(work, bytes / t->rate);
    return work / r + (extra ? extra[t->units - left] : 0);
}

/* Behind the layers before `end`; none follows the last. */
static double message(const table *t, int end)
{
    if (!end || end == t->end || t->rate <= 0) return 0;
    return 2 * t->in->layers[end - 1].passed / t->rate;
}

static bool keeps(const table *t, int from, int end, int left, int r)
{
    const sk_partition_in *in = t->in;
    int of = t->units - left, flight = (left + r - 1) / r;
    if (in->memory <= 0) return true;
    if (in->n_micro && flight > in->n_micro) flight = in->n_micro;
    double bytes = t->stored[end] - t->stored[from] + (in->extra_bytes ? in->extra_bytes[of] : 0);
    double each = t->saved[end] - t->saved[from];
    return bytes + each * (in->flight ? in->flight[of] : flight) <= in->memory;
}

/* --- one pass --- */

/* The first stage, and the rest behind it; false: longer stages are no better. */
static bool try_stage(const table *t, int from, int left, int end, int r)
{
    cell *best = at(t, from, left);
    double here = stage(t, from, end, left, r), slower = fmax(here, message(t, end));
    double rest = at(t, end, left - r)->value;
    if (t->limit > 0 ? here > t->limit : here >= best->value) return false;
    if (!keeps(t, from, end, left, r)) return false;
    if (t->limit > 0 && slower > t->limit) return true;
    double value = t->limit > 0 ? here * here * r + rest : fmax(slower, rest);
    if (value < best->value) *best = (cell){value, end, r};
    return true;
}

static void fill_cell(const table *t, int from, int left)
{
    int least = from + t->in->replicate;
    *at(t, from, left) = (cell){INFINITY, 0, 0};
    for (int r = 1; r <= (t->in->replicate ? left : 1); r++)
        for (int end = least; end <= t->end; end++)
            if (!try_stage(t, from, left, end, r) && !t->inner) break;
}

static void fill(const table *t)
{
    for (int left = 0; left <= t->units; left++)
        for (int from = t->end; from >= 0; from--) {
            if (left) fill_cell(t, from, left);
            else *at(t, from, 0) = (cell){from == t->end ? 0 : INFINITY, from, 0};
        }
}

/* --- levels --- */

static void use_level(sk_arena *a, table *t, int level, const double *inner)
{
    t->level = level;
    t->units = t->in->level[level].n;
    t->rate = t->in->level[level].rate;
    t->inner = inner;
    t->limit = 0;
    t->v = sk_many(a, cell, (int64_t)(t->in->n + 1) * (t->units + 1));
}

/* What all units of a level take for any layers: those of one unit of the next. */
static double *whole_level(sk_arena *a, const table *t)
{
    int n = t->in->n;
    double *to = sk_many(a, double, (int64_t)(n + 1) * (n + 1));
    for (int end = 0; end <= n; end++) {
        table one = *t;
        one.end = end;
        fill(&one);
        for (int from = 0; from < end; from++)
            to[from * (n + 1) + end] = at(&one, from, one.units)->value;
    }
    return to;
}

/* The stages of layers [from, end) on all units of a level; those of lower levels in their place.
 */
static void trace(sk_arena *a, const table *levels, int level, sk_partition_stage of,
                  sk_partition *out)
{
    table t = levels[level];
    t.end = of.end;
    fill(&t);
    t.limit = at(&t, of.from, t.units)->value * (1 + ROUNDING);
    if (t.limit > 0) fill(&t);
    for (int from = of.from, left = t.units; left;) {
        const cell *c = at(&t, from, left);
        sk_partition_stage stage = {from, c->end, of.ranks * c->ranks};
        if (level) trace(a, levels, level - 1, stage, out);
        else out->v[out->n++] = stage;
        left -= c->ranks;
        from = c->end;
    }
}

static int all_ranks(const sk_partition_in *in)
{
    int ranks = 1;
    for (int l = 0; l < in->n_levels; l++) ranks *= in->level[l].n;
    return ranks;
}

sk_status sk_stage_partition(sk_arena *a, const sk_partition_in *in, sk_partition *out)
{
    sk_arena tmp = {0};
    table levels[SK_PARTITION_LEVELS];
    const double *inner = NULL;
    int top = in->n_levels - 1;
    sk_assert(in->n > 0 && top >= 0 && (!top || (in->replicate && in->memory <= 0)));
    *out = (sk_partition){.v = sk_many(a, sk_partition_stage, all_ranks(in))};
    for (int l = 0; l <= top; l++) {
        levels[l] = open_table(&tmp, in);
        use_level(&tmp, &levels[l], l, inner);
        if (l < top) inner = whole_level(&tmp, &levels[l]);
    }
    levels[top].end = in->n;
    fill(&levels[top]);
    out->seconds = at(&levels[top], 0, levels[top].units)->value;
    bool any = isfinite(out->seconds);
    if (any) trace(&tmp, levels, top, (sk_partition_stage){0, in->n, 1}, out);
    sk_arena_end(&tmp);
    if (any) return SK_OK;
    if (in->memory <= 0)
        return sk_fail(SK_ECONF, "stages: %d layers cannot be dealt to %d ranks", in->n,
                       all_ranks(in));
    return sk_fail(SK_ECONF,
                   "stages: however %d layers are dealt to %d stages, one needs more than %.1f MiB "
                   "a rank; more stages, or recomputed activations, would help",
                   in->n, all_ranks(in), in->memory / 0x1p20);
}
