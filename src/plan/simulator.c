/* simulator.c - simulating programs: which ranks are simulated, who meets whom, the totals. */
#include "plan/simulator.h"
#include "plan/rank_classes.h"
#include "plan/sim_laps.h"
#include "base/hash.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* --- groups --- */

static void set_links(const sk_sim *k, const sk_program *p, const int *ranks, int n,
                      sk_sim_group *out)
{
    out->any_order = p->any_order;
    if (!p->links) return;
    int *own = sk_many(k->arena, int, n);
    memcpy(own, ranks, sizeof *own * (size_t)n);
    out->links = p->links;
    out->ranks = own;
}

/* A group is found by its number and its first simulated rank.  That is unambiguous: no class of
 * ranks is in two kinds of groups along one axis (rank_classes.h). */
static void join(sk_sim *k, int at_rank, int group, int *first, int *ranks, int *seen)
{
    sk_sim_rank *w = &k->w[at_rank];
    int n = sk_network_members(w->p, w->rank, group, ranks), least = k->n, members = 0;
    w->group[group] = -1;
    if (!n) return;
    for (int i = 0; i < n; i++) {
        int o = k->at[ranks[i]];
        if (o < least) least = o;
        members += seen[o] != at_rank + 1;
        seen[o] = at_rank + 1;
    }
    int *slot = &first[group * k->n + least];
    if (!*slot) {
        *slot = ++k->n_groups;
        k->groups[*slot - 1] = (sk_sim_group){.group = group,
                                              .rank = w->rank,
                                              .members = members,
                                              .reach = sk_machine_reach(k->m, ranks, n)};
        set_links(k, w->p, ranks, n, &k->groups[*slot - 1]);
    }
    w->group[group] = *slot - 1;
    k->groups[*slot - 1].places += w->out->ranks;
}

static void join_all(sk_sim *k)
{
    int groups = k->w[0].p->n_groups;
    int *first = sk_many(k->arena, int, (int64_t)groups * k->n);
    int *ranks = sk_many(k->arena, int, k->n_ranks);
    k->groups = sk_many(k->arena, sk_sim_group, (int64_t)groups * k->n);
    for (int g = 0; g < groups; g++) {
        bool world = g == k->w[0].p->world;
        int *seen = sk_many(k->arena, int, k->n);
        for (int i = 0; i < k->n; i++) {
            if (world && i) { /* all ranks are members: do not look for the group again */
                k->w[i].group[g] = k->w[0].group[g];
                k->groups[k->w[0].group[g]].places += k->w[i].out->ranks;
            } else join(k, i, g, first, ranks, seen);
        }
    }
}

/* --- setting up, adding up --- */

static double *prices_of(sk_sim *k, int shape, int variant, int n)
{
    double **slot = &k->prices[shape * k->variants.machines.n + variant];
    if (*slot) return *slot;
    *slot = sk_many(k->lasting, double, n);
    for (int i = 0; i < n; i++) (*slot)[i] = -1;
    return *slot;
}

static void open_rank(sk_sim *k, int i, int rank)
{
    sk_sim_rank *w = &k->w[i];
    int shape = k->in->shape_of ? k->in->shape_of[rank] : rank;
    const sk_program *p = k->in->programs[shape];
    int end = p->n_train ? p->n_train : p->insts.n;
    *w = (sk_sim_rank){.p = p,
                       .m = &k->variants.machines.v[k->variants.of[rank]],
                       .slow = k->variants.slow[rank],
                       .out = &k->out->v[i],
                       .rank = rank,
                       .end = end};
    sk_mesh_coords(&k->l->mesh, rank, w->coord);
    *w->out = (sk_simulated_rank){.program = p, .rank = rank, .stage = p->stage};
    w->seconds = k->in->seconds ? k->in->seconds[shape] : NULL;
    w->prices = prices_of(k, shape, k->variants.of[rank], end);
    w->group = sk_many(k->arena, int, p->n_groups);
    w->posted = sk_many(k->arena, int, p->n_groups);
    w->done = sk_many(k->arena, int, p->n_groups);
    w->copied = sk_many(k->arena, double, 2 * (int64_t)p->n_copies + 1);
    w->charged = sk_many(k->arena, int, SK_N_WORKS *(p->graph->n_layers + 1));
    if (k->n_micro) sk_sim_laps_open(k, w);
    if (!k->in->trace) return;
    w->out->times = sk_many(k->arena, double, 2 * (int64_t)end);
    w->out->moving = sk_many(k->arena, double, 2 * (int64_t)end);
}

static uint64_t *marks(const sk_sim *k)
{
    uint64_t *v = sk_many(k->arena, uint64_t, k->n_ranks);
    for (int r = 0; r < k->n_ranks; r++) {
        v[r] = sk_hash(v[r], &k->variants.of[r], sizeof *k->variants.of);
        v[r] = sk_hash(v[r], &k->variants.slow[r], sizeof *k->variants.slow);
        v[r] = sk_network_mark(&k->network, r, v[r]);
    }
    return v;
}

/* What each rank computes on and sends over, and its class. */
static sk_status place_ranks(sk_sim *k)
{
    int *shape_of = sk_many(k->arena, int, k->n_ranks), shapes = 0;
    k->at = sk_many(k->arena, int, k->n_ranks);
    for (int r = 0; r < k->n_ranks; r++) {
        k->at[r] = r;
        shape_of[r] = k->in->shape_of ? k->in->shape_of[r] : r;
    }
    SK_TRY(sk_variants_make(k->arena, k->m, k->n_ranks, &k->variants));
    sk_network_in net = {.machine = k->m,
                         .variants = &k->variants,
                         .programs = k->in->programs,
                         .shape_of = shape_of,
                         .n_ranks = k->n_ranks};
    SK_TRY(sk_network_open(k->arena, &net, &k->network));
    for (int r = 0; r < k->n_ranks; r++)
        if (shape_of[r] >= shapes) shapes = shape_of[r] + 1;
    k->prices = sk_many(k->arena, double *, (int64_t)shapes * k->variants.machines.n);
    sk_ranks_in ranks = {
        .programs = k->in->programs, .shape_of = shape_of, .machine = k->m, .marks = marks(k)};
    k->n = k->in->by_class ? sk_rank_classes(&ranks, k->at) : k->n_ranks;
    return SK_OK;
}

static void open_ranks(sk_sim *k)
{
    int opened = 0;
    k->w = sk_many(k->arena, sk_sim_rank, k->n);
    k->out->v = sk_many(k->arena, sk_simulated_rank, k->n);
    k->out->n = k->n;
    k->out->at = k->at;
    for (int r = 0; r < k->n_ranks; r++) {
        if (k->at[r] == opened) open_rank(k, opened++, r);
        k->out->v[k->at[r]].ranks++;
    }
    for (int i = 0; i < k->n && k->factors; i++) k->w[i].slow *= k->factors[i];
    join_all(k);
}

/* The compiler refuses this too, but not every machine tells it the hosts. */
static sk_status check_replica(const sk_sim *k)
{
    for (int i = 0; k->l->replica && i < k->n_groups; i++) {
        const sk_sim_group *c = &k->groups[i];
        if (c->group == k->l->shard_axis && c->reach.hosts > 1)
            return sk_fail(SK_ECONF,
                           "layout: replica: the %d ranks along '%s' would sit on %d hosts of %s, "
                           "and only ranks of one host can keep one copy of the weights",
                           c->reach.n, k->l->mesh.name[c->group], c->reach.hosts, k->m->name);
    }
    return SK_OK;
}

/* Where ranks (or threads) outnumber the cores of a host they take turns: a step is no shorter than
 * all their work and all their copies divided by the cores.  Only machines that run skein's own
 * collectives (`chosen`) say how many cores they have. */
static double shared_cores(const sk_sim *k)
{
    double work = 0, between = 0;
    int64_t each = k->m->ranks_per_host, hosts = (k->n_ranks + each - 1) / each;
    if (!k->m->chosen || k->m->costs.cores < 1) return 0;
    for (int r = 0; r < k->n_ranks; r++) { /* in this order, so that classes change no bit */
        const sk_sim_rank *w = &k->w[k->at[r]];
        work += w->out->busy * w->p->threads + w->core;
        between += w->between / k->n_ranks;
    }
    int64_t here = k->n_ranks < each ? k->n_ranks : each;
    if (k->m->crowd > 0 && here * k->w[0].p->threads > k->m->costs.cores) work *= k->m->crowd;
    return work / (double)(hosts * k->m->costs.cores) + between;
}

/* Whole bytes once all fragments and intervals of an axis are together, and all axes. */
static void add_wire(const sk_sim *k, sk_simulation *o)
{
    double axis[SK_MAX_AXES] = {0}, world = 0, near = 0, all = (double)o->wire_sends;
    const sk_program *p = k->w[0].p;
    for (int i = 0; i < k->n_groups; i++) {
        const sk_sim_group *c = &k->groups[i];
        double wire = c->wire * (double)(c->places / c->reach.n);
        all += wire;
        if (c->group == p->world) world += wire;
        else if (p->near && c->group == p->near) near += wire;
        else axis[sk_group_axis(p, c->group)] += wire;
    }
    for (int a = 0; a < SK_MAX_AXES; a++) all += (double)o->wire_axis[a];
    o->wire = llround(all);
    o->wire_world += llround(world);
    o->wire_near += llround(near);
    for (int a = 0; a < SK_MAX_AXES; a++) o->wire_axis[a] += llround(axis[a]);
}

static void add_up(sk_sim *k)
{
    sk_simulation *o = k->out;
    for (int i = 0; i < k->n; i++) o->seconds = fmax(o->seconds, k->w[i].now);
    o->seconds = fmax(o->seconds, shared_cores(k)) + (k->m->unit ? 0 : k->m->step);
    for (int i = 0; i < k->n; i++) {
        sk_simulated_rank *r = &o->v[i];
        r->bubble = o->seconds - r->busy - r->exposed;
        if (r->bubble < 1e-12 * o->seconds) r->bubble = 0; /* rounding must not show */
        double share = (double)r->ranks / k->n_ranks;
        o->busy += r->busy * share;
        o->exposed += r->exposed * share;
        o->bubble += r->bubble * share;
        for (int e = 0; e < SK_N_EXPOSED; e++) o->exposed_by[e] += r->exposed_by[e] * share;
        o->copied += r->copied * share;
        o->uncovered += r->uncovered * share;
        o->flops += r->flops * r->ranks;
        r->wire = llround(k->w[i].wire);
    }
    add_wire(k, o);
}

/* Adds what as many phases like x take; traces stay those of `o`, the last one. */
static void add_phases(sk_simulation *o, const sk_simulation *x, int n)
{
    o->seconds += n * x->seconds;
    o->busy += n * x->busy;
    o->exposed += n * x->exposed;
    o->bubble += n * x->bubble;
    o->copied += n * x->copied;
    o->uncovered += n * x->uncovered;
    o->flops += n * x->flops;
    o->wire += n * x->wire;
    o->wire_world += n * x->wire_world;
    o->wire_near += n * x->wire_near;
    o->wire_sends += n * x->wire_sends;
    for (int i = 0; i < SK_MAX_AXES; i++) o->wire_axis[i] += n * x->wire_axis[i];
    for (int i = 0; i < SK_N_EXPOSED; i++) o->exposed_by[i] += n * x->exposed_by[i];
    for (int i = 0; i < o->n; i++) {
        sk_simulated_rank *r = &o->v[i];
        const sk_simulated_rank *q = &x->v[i];
        r->busy += n * q->busy;
        r->exposed += n * q->exposed;
        r->bubble += n * q->bubble;
        r->copied += n * q->copied;
        r->uncovered += n * q->uncovered;
        r->flops += n * q->flops;
        for (int e = 0; e < SK_N_EXPOSED; e++) r->exposed_by[e] += n * q->exposed_by[e];
        r->wire += n * q->wire;
    }
}

const char *sk_exposed_name(const sk_mesh *m, int i)
{
    if (i == SK_EXPOSED_WORLD) return "world";
    if (i == SK_EXPOSED_MEMORY) return "memory";
    return i < m->n && m->size[i] > 1 ? m->name[i] : NULL;
}

sk_status sk_sim_place(sk_arena *a, const sk_simulate_in *in, sk_simulation *out, sk_sim *k)
{
    const sk_program *p = in->programs[0];
    *k = (sk_sim){.arena = a,
                  .lasting = a,
                  .in = in,
                  .m = in->machine,
                  .l = &p->layout,
                  .n_ranks = p->n_ranks,
                  .out = out};
    return place_ranks(k);
}

/* Of `n_micro` micro-batches, and of all others if that tells (sim_laps.h). */
static sk_status walk(sk_sim *k, int n_micro, bool *told)
{
    *k->out = (sk_simulation){0};
    k->n_micro = n_micro;
    k->n_groups = 0;
    open_ranks(k);
    SK_TRY(check_replica(k));
    SK_TRY(sk_sim_execute(k));
    *told = !k->n_micro || sk_sim_laps_end(k);
    return SK_OK;
}

static sk_status simulate_phase(sk_sim *k, bool early)
{
    const sk_program *p = k->in->programs[0];
    bool told = false;
    k->early = early;
    for (int some = sk_sim_laps_first(k); !told; some *= 2)
        SK_TRY(walk(k, some < p->n_micro ? some : p->n_micro, &told));
    add_up(k);
    return SK_OK;
}

sk_status sk_sim_step(sk_sim *k)
{
    int phases = k->in->programs[0]->phases;
    sk_simulation *out = k->out, early;
    SK_TRY(simulate_phase(k, false));
    if (phases < 2) return SK_OK;
    k->out = &early;
    sk_status st = simulate_phase(k, true);
    k->out = out;
    if (!st) add_phases(out, &early, phases - 1);
    return st;
}

sk_status sk_simulate(sk_arena *a, const sk_simulate_in *in, sk_simulation *out)
{
    sk_sim k;
    *out = (sk_simulation){0};
    SK_TRY(sk_sim_place(a, in, out, &k));
    return sk_sim_step(&k);
}

/* The programs of all shapes, in order of their first rank. */
static sk_status compile_all(sk_arena *a, const sk_graph *g, const sk_layout *l,
                             const sk_compile_opts *o, const int *shape_of, int n, sk_program **p)
{
    int ranks = sk_mesh_ranks(&l->mesh), made = 0;
    for (int r = 0; r < ranks && made < n; r++) {
        if (shape_of[r] != made) continue; /* shapes are numbered as they appear */
        SK_TRY(sk_compile(a, g, l, o, r, &p[made]));
        made++;
    }
    return SK_OK;
}

/* `most`: the first shapes only. */
static sk_status compile_shapes(sk_arena *a, const sk_graph *g, const sk_layout *l,
                                const sk_compile_opts *o, int most, sk_program ***programs,
                                int *shape_of, int *n)
{
    sk_compile_opts shared = *o;
    if (!o->plan) SK_TRY(sk_plan_graph(a, g, l, o, &shared.plan));
    *n = sk_shapes(shared.plan, shape_of);
    if (*n > most) *n = most;
    sk_program **p = *programs = sk_many(a, sk_program *, *n < 0 ? 1 : *n);
    if (*n >= 0) return compile_all(a, g, l, &shared, shape_of, *n, p);
    SK_TRY(sk_compile(a, g, l, &shared, 0, p)); /* its error message may say more */
    return sk_too_many_shapes(shared.plan);
}

static sk_status compile_some(sk_arena *a, const sk_graph *g, const sk_layout *l,
                              const sk_compile_opts *o, int most, sk_program ***p, int **shape_of)
{
    sk_compile_opts opts = *o;
    int n = 0;
    *shape_of = sk_many(a, int, sk_mesh_ranks(&l->mesh));
    opts.listed = o->listed && sk_repeats_can(g, l, o);
    SK_TRY(compile_shapes(a, g, l, &opts, most, p, *shape_of, &n));
    /* Of programs of few micro-batches also the bytes of all of them are known, or all are
     * compiled. */
    if (!opts.listed || sk_repeats_memory(*p, n)) return SK_OK;
    opts.listed = false;
    return compile_shapes(a, g, l, &opts, most, p, *shape_of, &n);
}

sk_status sk_simulate_compile(sk_arena *a, const sk_graph *g, const sk_layout *l,
                              const sk_compile_opts *o, const sk_program *const **programs,
                              int **shape_of)
{
    sk_program **p = NULL;
    SK_TRY(compile_some(a, g, l, o, INT_MAX, &p, shape_of));
    *programs = (const sk_program *const *)p;
    return SK_OK;
}

sk_status sk_simulate_compile_first(sk_arena *a, const sk_graph *g, const sk_layout *l,
                                    const sk_compile_opts *o, const sk_program **program)
{
    sk_program **p = NULL;
    int *shape_of = NULL;
    SK_TRY(compile_some(a, g, l, o, 1, &p, &shape_of));
    *program = p[0];
    return SK_OK;
}
