/* budget.c - options to run a layout in less memory, each compiled and simulated. */
#include "plan/budget.h"
#include "plan/simulator.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPTIONS = 512, MOST_CHUNKS = 16 };

typedef struct list {
    sk_budget_option *v;
    int n;
} list;

static void add(list *l, const sk_layout *layout, const char *again, int blocks)
{
    if (l->n == MOST_OPTIONS) return;
    sk_budget_option *w = &l->v[l->n++];
    w->layout = *layout;
    snprintf(w->layout.recompute, sizeof w->layout.recompute, "%s", again);
    w->layout.recompute_blocks = blocks;
}

/* Blocks of the fullest stage. */
static int blocks_of(const sk_budget_in *in)
{
    const sk_layout *l = in->layout;
    int stages = l->stage_axis < 0 ? 1 : l->mesh.size[l->stage_axis];
    return (in->graph->n_layers - 2 + stages - 1) / stages;
}

static void add_recomputation(list *l, const sk_budget_in *in, const sk_layout *layout)
{
    if (layout->recompute_said) { /* the user said it */
        add(l, layout, layout->recompute, layout->recompute_blocks);
        return;
    }
    add(l, layout, "", 0);
    add(l, layout, "selective", 0);
    for (int k = 1; k < blocks_of(in); k *= 2) add(l, layout, "full", k);
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

/* Wide results whole, or in slices; what the layout says is not changed, nor is
 * order=canonical. */
static void add_slices(list *l, const sk_budget_in *in, const sk_layout *layout)
{
    static const int slices[] = {1, 4, MOST_CHUNKS};
    bool free = !layout->slices && !layout->canonical;
    for (int i = 0; i < (free ? 3 : 1); i++) {
        sk_layout sliced = *layout;
        if (free && i) sliced.slices = slices[i];
        add_recomputation(l, in, &sliced);
    }
}

/* What can be offloaded, one kind after the other, each with the first and the last option of the
 * other lists.  The memory of the host is taken to be large enough. */
static void add_offload(list *l, const sk_layout *layout)
{
    static const sk_offload_kind order[] = {SK_STATE, SK_GRAD, SK_KEPT, SK_PARAMS};
    sk_layout with = *layout;
    for (int i = 0; i < SK_N_OFFLOAD_KINDS; i++) {
        with.home[order[i]] = SK_HOST;
        for (int k = 0; k < 4; k++) {
            sk_layout w = with;
            if (k & 1 && !w.slices && !w.canonical) w.slices = MOST_CHUNKS;
            bool again = k & 2 && !w.recompute_said;
            add(l, &w, again ? "full" : w.recompute, again ? 0 : w.recompute_blocks);
        }
    }
}

/* Every level of sharding from the layout's own on: with all that can be given up on the device,
 * or, `offload`, with what can be moved to the host. */
static list all_options(sk_arena *a, const sk_budget_in *in, bool offload)
{
    list l = {.v = sk_many(a, sk_budget_option, MOST_OPTIONS)};
    sk_layout layout = *in->layout;
    int axis = shard_axis(&layout, in->graph->batch);
    for (int level = (int)layout.shard; level <= (axis < 0 ? (int)layout.shard : 3); level++) {
        layout.shard = (sk_shard)level;
        layout.shard_axis = level ? axis : in->layout->shard_axis;
        if (layout.replica && level > 2) continue; /* no rank keeps whole weights then */
        if (!offload) add_slices(&l, in, &layout);
        else if (in->may_offload) add_offload(&l, &layout);
    }
    return l;
}

/* Weights, gradients and optimizer state that live from step to step. */
static int64_t kept_by(const sk_program *p)
{
    return p->kind_bytes[SK_WEIGHTS] + p->kind_bytes[SK_GRADS] + p->kind_bytes[SK_OPTIM];
}

static int64_t larger(int64_t x, int64_t y) { return x > y ? x : y; }

/* Compiles an option: its bytes; if it fits simulates it: its seconds. */
static sk_status weigh(sk_arena *tmp, const sk_budget_in *in, sk_budget_option *w)
{
    const sk_program *const *programs = NULL;
    int *shape_of = NULL;
    sk_simulation out;
    SK_TRY(sk_simulate_compile(tmp, in->graph, &w->layout, in->opts, &programs, &shape_of));
    *w = (sk_budget_option){.layout = w->layout, .seconds = INFINITY};
    for (int r = 0; r < sk_mesh_ranks(&in->layout->mesh); r++) {
        w->bytes = larger(w->bytes, sk_device_bytes(programs[shape_of[r]]));
        w->kept = larger(w->kept, kept_by(programs[shape_of[r]]));
    }
    sk_assert(w->kept <= w->bytes);
    if (w->bytes > in->bytes) return SK_OK;
    sk_simulate_in sim = {
        .machine = in->machine, .programs = programs, .shape_of = shape_of, .by_class = true};
    SK_TRY(sk_simulate(tmp, &sim, &out));
    w->seconds = out.seconds;
    return SK_OK;
}

/* Do two options keep the same from step to step? */
static bool keep_alike(const sk_layout *x, const sk_layout *y)
{
    return x->shard == y->shard && x->shard_axis == y->shard_axis &&
           !memcmp(x->home, y->home, sizeof x->home);
}

/* Is it known of an option that it does not fit? */
static bool is_known(const sk_budget_in *in, const list *weighed, sk_budget_option *w)
{
    for (int i = 0; i < weighed->n; i++) {
        const sk_budget_option *o = &weighed->v[i];
        if (o->kept <= in->bytes || !keep_alike(&o->layout, &w->layout)) continue;
        w->bytes = w->kept = o->kept;
        w->at_least = true;
        w->seconds = INFINITY;
        return true;
    }
    return false;
}

static int by_time(const void *x, const void *y)
{
    const sk_budget_option *a = x, *b = y;
    if (a->seconds != b->seconds) return a->seconds < b->seconds ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static bool any_fits(const list *l, int64_t bytes)
{
    for (int i = 0; i < l->n; i++)
        if (l->v[i].bytes <= bytes) return true;
    return false;
}

/* SK_ECONF: a schedule or an optimizer refuses it. */
static sk_status weigh_one(const sk_budget_in *in, sk_budget_option *w)
{
    sk_arena tmp = {0};
    sk_status st = weigh(&tmp, in, w);
    sk_arena_end(&tmp);
    return st;
}

/* Options that are refused are left out; the first, the layout as it is, must compile. */
static sk_status weigh_all(const sk_budget_in *in, const list *from, list *to)
{
    for (int i = 0; i < from->n && to->n < MOST_OPTIONS; i++) {
        sk_budget_option w = from->v[i];
        sk_status st = is_known(in, to, &w) ? SK_OK : weigh_one(in, &w);
        if (st && !(st == SK_ECONF && to->n)) return sk_trail(st, SK_HERE);
        if (!st) to->v[to->n++] = w;
    }
    return SK_OK;
}

sk_status sk_budget_options(sk_arena *a, const sk_budget_in *in, sk_budget_option **out, int *n)
{
    list here = all_options(a, in, false);
    list l = {.v = sk_many(a, sk_budget_option, MOST_OPTIONS)};
    SK_TRY(weigh_all(in, &here, &l));
    if (!any_fits(&l, in->bytes)) {
        list offload = all_options(a, in, true);
        SK_TRY(weigh_all(in, &offload, &l));
    }
    qsort(l.v, (size_t)l.n, sizeof *l.v, by_time);
    *out = l.v;
    *n = l.n;
    return SK_OK;
}

sk_status sk_budget_least(const sk_budget_in *in, sk_budget_option *v, int n,
                          const sk_budget_option **least)
{
    *least = NULL;
    for (int i = 0; i < n; i++)
        if (!v[i].at_least && (!*least || v[i].bytes < (*least)->bytes)) *least = &v[i];
    for (int i = 0; i < n; i++) {
        sk_budget_option *w = &v[i];
        if (!w->at_least || w->bytes >= (*least)->bytes) continue;
        sk_status st = weigh_one(in, w);
        if (st && st != SK_ECONF) return sk_trail(st, SK_HERE);
        if (!st && w->bytes < (*least)->bytes) *least = w;
    }
    return SK_OK;
}
