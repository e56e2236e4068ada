/* budget.c - the fastest way to run a job that fits. */
#include "plan/budget.h"
#include "base/strings.h"
#include "plan/simulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WAYS = 512, MOST_SLICES = 16 };

typedef struct list {
    sk_way *v;
    int n;
} list;

static void add(list *l, const sk_layout *layout, const char *again, int blocks)
{
    if (l->n == MOST_WAYS) return;
    sk_way *w = &l->v[l->n++];
    w->layout = *layout;
    snprintf(w->layout.again, sizeof w->layout.again, "%s", again);
    w->layout.again_blocks = blocks;
}

/* Blocks of the fullest stage. */
static int blocks_of(const sk_setup *s)
{
    int stages = s->layout.stage_axis < 0 ? 1 : s->layout.mesh.size[s->layout.stage_axis];
    return (s->graph.n_layers - 2 + stages - 1) / stages;
}

static void add_recomputation(list *l, const sk_setup *s, const sk_layout *layout)
{
    if (layout->again_said) { /* the user's word */
        add(l, layout, layout->again, layout->again_blocks);
        return;
    }
    add(l, layout, "", 0);
    add(l, layout, "selective", 0);
    for (int k = 1; k < blocks_of(s); k *= 2) add(l, layout, "full", k);
    add(l, layout, "full", 0);
}

/* The axis that can shard: the layout's own, or the largest that splits the batch and nothing else.
 */
static int shard_axis(const sk_layout *l, char batch)
{
    int best = l->shard_axis;
    for (int a = 0; l->shard_axis < 0 && a < l->mesh.n; a++)
        if (l->split[a][0] == batch && !l->split[a][1] && l->mesh.size[a] > 1 &&
            (best < 0 || l->mesh.size[a] > l->mesh.size[best]))
            best = a;
    return best;
}

/* Wide results whole, or in slices; what the layout says is not changed, nor is a fixed order. */
static void add_slices(list *l, const sk_setup *s, const sk_layout *layout)
{
    static const int slices[] = {1, 4, MOST_SLICES};
    bool free = !layout->slices && !layout->canonical;
    for (int i = 0; i < (free ? 3 : 1); i++) {
        sk_layout sliced = *layout;
        if (free && i) sliced.slices = slices[i];
        add_recomputation(l, s, &sliced);
    }
}

/* What a device can be rid of, in steps, each with the ends of the other lists alone; the host's
 * memory is taken for large enough. */
static void add_homes(list *l, const sk_layout *layout)
{
    static const sk_offload_kind order[] = {SK_STATE, SK_GRAD, SK_KEPT, SK_PARAMS};
    sk_layout with = *layout;
    for (int i = 0; i < SK_N_OFFLOAD_KINDS; i++) {
        with.home[order[i]] = SK_HOST;
        for (int k = 0; k < 4; k++) {
            sk_layout w = with;
            if (k & 1 && !w.slices && !w.canonical) w.slices = MOST_SLICES;
            bool again = k & 2 && !w.again_said;
            add(l, &w, again ? "full" : w.again, again ? 0 : w.again_blocks);
        }
    }
}

/* A run that changes its program has all in the device's memory. */
static bool may_go_away(const sk_setup *s)
{
    const sk_layout *l = &s->layout;
    return !l->home_said && !l->replica && !sk_layout_may_fill(l) && !*s->job->relayout &&
           !s->job->stays_here;
}

/* Every level of sharding from the layout's own on, with all that can be given up on the device;
 * or, `away`, with what can live outside of it. */
static list all_ways(sk_setup *s, bool away)
{
    list l = {.v = sk_many(s->arena, sk_way, MOST_WAYS)};
    sk_layout layout = s->layout;
    int axis = shard_axis(&layout, s->graph.batch);
    for (int level = (int)layout.shard; level <= (axis < 0 ? (int)layout.shard : 3); level++) {
        layout.shard = (sk_shard)level;
        layout.shard_axis = level ? axis : s->layout.shard_axis;
        if (layout.replica && level > 2) continue; /* shards that nobody keeps whole */
        if (!away) add_slices(&l, s, &layout);
        else if (may_go_away(s)) add_homes(&l, &layout);
    }
    return l;
}

static sk_status weigh(sk_setup *s, const sk_machine *m, sk_arena *tmp, sk_way *w)
{
    const sk_program *const *programs = NULL;
    int *shape_of = NULL;
    sk_simulation paper;
    sk_compile_opts o = sk_setup_opts(s);
    SK_TRY(sk_simulate_compile(tmp, &s->graph, &w->layout, &o, &programs, &shape_of));
    for (int r = 0; r < s->n_ranks; r++)
        if (sk_device_bytes(programs[shape_of[r]]) > w->bytes)
            w->bytes = sk_device_bytes(programs[shape_of[r]]);
    sk_simulate_in in = {.machine = m, .programs = programs, .shape_of = shape_of, .fold = true};
    SK_TRY(sk_simulate(tmp, &in, &paper));
    w->seconds = paper.seconds;
    return SK_OK;
}

static int by_time(const void *x, const void *y)
{
    const sk_way *a = x, *b = y;
    if (a->seconds != b->seconds) return a->seconds < b->seconds ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static bool any_fits(const list *l, int64_t bytes)
{
    for (int i = 0; i < l->n; i++)
        if (l->v[i].bytes <= bytes) return true;
    return false;
}

/* Ways that a schedule or an optimizer cannot go are left out; the layout as it is must be able. */
static sk_status weigh_all(sk_setup *s, const sk_machine *m, const list *from, list *to)
{
    for (int i = 0; i < from->n && to->n < MOST_WAYS; i++) {
        sk_arena tmp = {0};
        sk_way w = from->v[i];
        sk_status st = weigh(s, m, &tmp, &w);
        sk_arena_end(&tmp);
        if (st && !(st == SK_ECONF && to->n)) return sk_trail(st, SK_HERE);
        if (!st) to->v[to->n++] = w;
    }
    return SK_OK;
}

sk_status sk_budget_ways(sk_setup *s, const sk_machine *m, int64_t bytes, sk_way **ways, int *n)
{
    list here = all_ways(s, false), l = {.v = sk_many(s->arena, sk_way, MOST_WAYS)};
    SK_TRY(weigh_all(s, m, &here, &l));
    if (!any_fits(&l, bytes)) {
        list away = all_ways(s, true);
        SK_TRY(weigh_all(s, m, &away, &l));
    }
    qsort(l.v, (size_t)l.n, sizeof *l.v, by_time);
    *ways = l.v;
    *n = l.n;
    return SK_OK;
}

static sk_status nothing_fits(const sk_setup *s, const sk_way *ways, int n)
{
    const sk_way *least = ways;
    for (int i = 1; i < n; i++)
        if (ways[i].bytes < least->bytes) least = &ways[i];
    return sk_fail(
        SK_ECONF,
        "budget is %s per rank, and the smallest of %d options needs %s (%s); more ranks, more "
        "micro-batches or a smaller train.batch would help",
        sk_bytes(s->arena, s->job->budget), n, sk_bytes(s->arena, least->bytes),
        sk_layout_short(s->arena, &least->layout));
}

/* A dropless run has a fallback program of the same layout (fallback.h), which needs more memory:
 * the layout is chosen for that one. */
static sk_status choose_for_fallback(sk_setup *s)
{
    sk_job *job = sk_new(s->arena, sk_job);
    sk_setup *fallback = sk_new(s->arena, sk_setup);
    *job = *s->job;
    job->hyper.capacity_factor = 0;
    job->dropless = 0;
    job->stays_here = true;
    SK_TRY(sk_setup_layout(s->arena, job, fallback));
    s->layout = fallback->layout;
    return SK_OK;
}

sk_status sk_budget_choose(sk_setup *s)
{
    if (s->job->dropless) return choose_for_fallback(s);
    sk_machine m;
    sk_way *ways = NULL;
    int n = 0;
    SK_TRY(sk_machine_read(s->arena, "cpu", &m)); /* on all hosts alike, as the choice must be */
    if (s->job->costs) m.costs = *s->job->costs;
    SK_TRY(sk_budget_ways(s, &m, s->job->budget, &ways, &n));
    for (int i = 0; i < n; i++)
        if (ways[i].bytes <= s->job->budget) {
            s->layout = ways[i].layout;
            return SK_OK;
        }
    return nothing_fits(s, ways, n);
}
