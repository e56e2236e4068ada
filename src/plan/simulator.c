/* simulator.c - simulating programs: which ranks are simulated, who meets whom, the totals. */
#include "plan/simulator.h"
#include "plan/rank_classes.h"
#include "plan/sim_laps.h"

#include <math.h>
#include <string.h>

/* --- groups --- */

/* The real ranks of a group of w, ascending.  The program may be that of another rank of the same
 * shape, so only coordinates count. */
static int members(const sk_sim *k, const sk_sim_rank *w, int group, int *ranks)
{
    const sk_mesh *m = &k->l->mesh;
    int coord[SK_MAX_AXES], n = 0;
    const sk_group *g = &w->p->groups[group];
    bool near = group == w->p->near && group;
    int axis = sk_group_axis(w->p, group);
    if (group == w->p->world) {
        for (n = 0; n < k->n_ranks; n++) ranks[n] = n;
        return n;
    }
    if (g->me < 0) return 0;
    for (n = 0; n < g->n; n++) {
        sk_mesh_coords(m, g->ranks[n], coord);
        int here = near ? w->coord[axis] / g->n * g->n + n : coord[axis];
        memcpy(coord, w->coord, sizeof coord);
        coord[axis] = here;
        ranks[n] = sk_mesh_rank(m, coord);
    }
    return n;
}

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
    int n = members(k, w, group, ranks), least = k->n, members = 0;
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
                                              .members = members,
                                              .first = at_rank,
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

static void open_rank(sk_sim *k, int i, int rank)
{
    sk_sim_rank *w = &k->w[i];
    int shape = k->in->shape_of ? k->in->shape_of[rank] : rank;
    const sk_program *p = k->in->programs[shape];
    int end = p->n_train ? p->n_train : p->insts.n;
    *w = (sk_sim_rank){.p = p, .out = &k->out->v[i], .rank = rank, .end = end};
    sk_mesh_coords(&k->l->mesh, rank, w->coord);
    *w->out = (sk_simulated_rank){.program = p, .rank = rank, .stage = p->stage};
    w->seconds = k->in->seconds ? k->in->seconds[shape] : NULL;
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

static void open_ranks(sk_sim *k)
{
    int *shape_of = sk_many(k->arena, int, k->n_ranks), opened = 0;
    k->at = sk_many(k->arena, int, k->n_ranks);
    for (int r = 0; r < k->n_ranks; r++) {
        k->at[r] = r;
        shape_of[r] = k->in->shape_of ? k->in->shape_of[r] : r;
    }
    k->n = k->in->by_class ? sk_rank_classes(k->l, shape_of, k->m, k->at) : k->n_ranks;
    k->w = sk_many(k->arena, sk_sim_rank, k->n);
    k->out->v = sk_many(k->arena, sk_simulated_rank, k->n);
    k->out->n = k->n;
    k->out->at = k->at;
    for (int r = 0; r < k->n_ranks; r++) {
        if (k->at[r] == opened) open_rank(k, opened++, r);
        k->out->v[k->at[r]].ranks++;
    }
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
    for (int i = 0; i < k->n; i++) {
        const sk_simulated_rank *r = &k->out->v[i];
        work += (r->busy * k->w[i].p->threads + k->w[i].core) * r->ranks;
        between += k->w[i].between * r->ranks / k->n_ranks;
    }
    return work / (double)(hosts * k->m->costs.cores) + between;
}

static void add_up(sk_sim *k)
{
    sk_simulation *o = k->out;
    for (int i = 0; i < k->n; i++) o->seconds = fmax(o->seconds, k->w[i].now);
    o->seconds = fmax(o->seconds, shared_cores(k));
    for (int i = 0; i < k->n; i++) {
        sk_simulated_rank *r = &o->v[i];
        r->bubble = o->seconds - r->busy - r->exposed;
        if (r->bubble < 1e-12 * o->seconds) r->bubble = 0; /* rounding must not show */
        double share = (double)r->ranks / k->n_ranks;
        o->busy += r->busy * share;
        o->exposed += r->exposed * share;
        o->bubble += r->bubble * share;
        o->copied += r->copied * share;
        o->uncovered += r->uncovered * share;
        o->flops += r->flops * r->ranks;
    }
    for (int i = 0; i < k->n_groups; i++) {
        const sk_sim_group *c = &k->groups[i];
        int64_t wire = c->wire * (c->places / c->reach.n);
        const sk_program *p = k->w[0].p;
        if (c->group == p->world) o->wire_world += wire;
        else if (p->near && c->group == p->near) o->wire_near += wire;
        else o->wire_axis[sk_group_axis(p, c->group)] += wire;
    }
    o->wire = o->wire_world + o->wire_near + o->wire_sends;
    for (int a = 0; a < k->l->mesh.n; a++) o->wire += o->wire_axis[a];
}

/* A step of several phases does all of it as often; traces are of one. */
static void repeat(sk_simulation *o, int phases)
{
    double *const sums[] = {&o->seconds, &o->busy,      &o->exposed, &o->bubble,
                            &o->copied,  &o->uncovered, &o->flops};
    int64_t *const bytes[] = {&o->wire, &o->wire_world, &o->wire_near, &o->wire_sends};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) *sums[i] *= phases;
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) *bytes[i] *= phases;
    for (int i = 0; i < SK_MAX_AXES; i++) o->wire_axis[i] *= phases;
    for (int i = 0; i < o->n; i++) {
        sk_simulated_rank *r = &o->v[i];
        double *const of_rank[] = {&r->busy,   &r->exposed,   &r->bubble,
                                   &r->copied, &r->uncovered, &r->flops};
        for (size_t k = 0; k < sizeof of_rank / sizeof *of_rank; k++) *of_rank[k] *= phases;
        r->wire *= phases;
    }
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

sk_status sk_simulate(sk_arena *a, const sk_simulate_in *in, sk_simulation *out)
{
    const sk_program *p = in->programs[0];
    bool told = false;
    sk_sim k = {
        .arena = a, .in = in, .m = in->machine, .l = &p->layout, .n_ranks = p->n_ranks, .out = out};
    for (int some = sk_sim_laps_first(&k); !told; some *= 2)
        SK_TRY(walk(&k, some < p->n_micro ? some : p->n_micro, &told));
    add_up(&k);
    if (p->phases > 1) repeat(out, p->phases);
    return SK_OK;
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

/* Are programs of few micro-batches what those of all would be?  Then with the bytes of these. */
static bool all_repeat(sk_program **p, int n)
{
    for (int i = 0; i < n; i++) {
        sk_repeats r;
        if (!sk_repeats_find(p[i], &r) || !sk_repeats_memory(p[i], &r)) return false;
    }
    return true;
}

static sk_status compile_shapes(sk_arena *a, const sk_graph *g, const sk_layout *l,
                                const sk_compile_opts *o, sk_program ***programs, int *shape_of,
                                int *n)
{
    sk_compile_opts shared = *o;
    if (!o->plan) SK_TRY(sk_plan_graph(a, g, l, o, &shared.plan));
    *n = sk_shapes(shared.plan, shape_of);
    sk_program **p = *programs = sk_many(a, sk_program *, *n < 0 ? 1 : *n);
    if (*n >= 0) return compile_all(a, g, l, &shared, shape_of, *n, p);
    SK_TRY(sk_compile(a, g, l, &shared, 0, p)); /* its error message may say more */
    return sk_too_many_shapes(shared.plan);
}

sk_status sk_simulate_compile(sk_arena *a, const sk_graph *g, const sk_layout *l,
                              const sk_compile_opts *o, const sk_program *const **programs,
                              int **shape_of)
{
    sk_compile_opts opts = *o;
    sk_program **p = NULL;
    int n = 0;
    *shape_of = sk_many(a, int, sk_mesh_ranks(&l->mesh));
    opts.listed = o->listed && sk_repeats_can(g, l, o);
    SK_TRY(compile_shapes(a, g, l, &opts, &p, *shape_of, &n));
    if (opts.listed && !all_repeat(p, n)) {
        opts.listed = false;
        SK_TRY(compile_shapes(a, g, l, &opts, &p, *shape_of, &n));
    }
    *programs = (const sk_program *const *)p;
    return SK_OK;
}
