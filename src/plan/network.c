/* network.c - loads of links, and the machine as calls and messages meet it. */
#include "plan/network.h"
#include "plan/routes.h"
#include "base/hash.h"
#include "program/class_program.h"

#include <math.h>
#include <string.h>

enum { MOST_DISTANCES = 64 };

typedef struct sk_network_shift { /* messages to the rank that is so far away in the mesh */
    int by;                       /* the rank there of the first rank of the mesh */
    int *of;                      /* by rank that sends: which case */
} sk_network_shift;

typedef struct opening {
    const sk_network_in *in;
    sk_network *out;
    sk_arena *arena;
    sk_routes routes;
    sk_path path;
    double *load; /* by link: bytes per byte of a call */
    int *ranks;
} opening;

/* What a group's ways are like. */
typedef struct ways {
    double worst, alpha; /* seconds per byte of the fullest link; seconds more, of all ways */
    int n;
} ways;

int sk_network_members(const sk_program *p, int rank, int group, int *ranks)
{
    const sk_mesh *m = &p->layout.mesh;
    int mine[SK_MAX_AXES], coord[SK_MAX_AXES], n = 0;
    const sk_group *g = &p->groups[group];
    bool near = group == p->near && group;
    int axis = sk_group_axis(p, group);
    if (group == p->world) {
        for (n = 0; n < p->n_ranks; n++) ranks[n] = n;
        return n;
    }
    if (g->me < 0) return 0;
    sk_mesh_coords(m, rank, mine);
    for (n = 0; n < g->n; n++) {
        sk_mesh_coords(m, g->ranks[n], coord);
        int here = near ? mine[axis] / g->n * g->n + n : coord[axis];
        memcpy(coord, mine, sizeof coord);
        coord[axis] = here;
        ranks[n] = sk_mesh_rank(m, coord);
    }
    return n;
}

/* --- ways through the network --- */

/* Some bytes go from one rank to another: with `w` the way is looked at, without it is loaded. */
static void flow(opening *o, int from, int to, double bytes, ways *w)
{
    sk_routes_find(&o->routes, from, to, &o->path);
    if (w) w->alpha += o->path.alpha, w->n++;
    for (int i = 0; i < o->path.n; i++) {
        int link = o->path.v[i].link;
        if (!w) o->load[link] += bytes * o->path.v[i].part;
        else w->worst = fmax(w->worst, o->load[link] / sk_routes_capacity(&o->routes, link));
    }
}

static void both_ways(opening *o, int from, int to, double bytes, ways *w)
{
    bool torus = o->in->machine->topology.torus.n > 0;
    flow(o, from, to, torus ? bytes / 2 : bytes, w);
    if (torus) flow(o, to, from, bytes / 2, w);
}

static int host_of(const opening *o, int rank) { return rank / o->routes.per_host; }

/* From the members of a host to those of another one, each to one on its own rail if there is one.
 */
static void next_host(opening *o, const int *from, int n, const int *to, int m, ways *w)
{
    if (o->in->machine->ring) {
        both_ways(o, from[n - 1], to[0], 1, w);
        return;
    }
    for (int i = 0, k = 0; i < n; i++) {
        int rail = sk_routes_rail(&o->routes, from[i]);
        while (k < m && sk_routes_rail(&o->routes, to[k]) < rail) k++;
        bool own = k < m && sk_routes_rail(&o->routes, to[k]) == rail;
        both_ways(o, from[i], to[own ? k : i % m], 1.0 / n, w);
    }
}

static int end_of_host(const opening *o, const int *ranks, int n, int at)
{
    int end = at;
    while (end < n && host_of(o, ranks[end]) == host_of(o, ranks[at])) end++;
    return end;
}

static void ring(opening *o, const int *ranks, int n, ways *w)
{
    int first = end_of_host(o, ranks, n, 0);
    if (first == n) return; /* one host */
    for (int at = 0, end = first; at < n;) {
        int next = end < n ? end : 0, stop = end < n ? end_of_host(o, ranks, n, end) : first;
        next_host(o, ranks + at, end - at, ranks + next, stop - next, w);
        at = end, end = stop;
    }
}

static void pairs(opening *o, const int *ranks, int n, ways *w)
{
    int step = (n - 2) / MOST_DISTANCES + 1, count = (n - 2) / step + 1;
    for (int i = 0; i < n; i++)
        for (int by = 1; by < n; by += step) {
            int to = ranks[(i + by) % n];
            if (host_of(o, to) != host_of(o, ranks[i])) flow(o, ranks[i], to, 1.0 / count, w);
        }
}

/* --- machines --- */

static void worse(sk_link *l, const sk_link *other)
{
    l->alpha = fmax(l->alpha, other->alpha);
    l->beta = fmax(l->beta, other->beta);
}

static bool has_links(const sk_machine *m, const sk_link *inside, const sk_link *between)
{
    return m->costs.inside.alpha == inside->alpha && m->costs.inside.beta == inside->beta &&
           m->costs.between.alpha == between->alpha && m->costs.between.beta == between->beta;
}

/* The machine with these links between hosts; what was measured between them is no faster than the
 * links, nor, if the links are those of slower hosts, than a part of it. */
static void set_links(sk_machine *m, const sk_link *inside, const sk_link *between, double part)
{
    m->costs.inside = *inside;
    m->costs.between = *between;
    for (int i = 0; i < m->n_between; i++)
        m->between[i].rate = fmin(m->between[i].rate * part, 1 / between->beta);
}

/* For members of a group, or both ends of a message. */
static int case_of(opening *o, const int *ranks, int n, double alpha, double beta)
{
    const sk_machine *base = o->in->machine;
    sk_link inside = base->costs.inside, between = base->costs.between;
    for (int i = 0; i < n && o->in->variants->machines.n > 1; i++) {
        const sk_machine *host = &o->in->variants->machines.v[o->in->variants->of[ranks[i]]];
        worse(&inside, &host->costs.inside);
        worse(&between, &host->costs.between);
    }
    double part = between.beta > 0 ? base->costs.between.beta / between.beta : 1;
    between.alpha += alpha;
    between.beta = fmax(between.beta, beta);
    for (int i = 0; i < o->out->cases.n; i++) {
        const struct sk_network_case *c = &o->out->cases.v[i];
        if (c->part == part && has_links(&c->machine, &inside, &between)) return i;
    }
    struct sk_network_case *c = sk_push(o->arena, &o->out->cases);
    *c = (struct sk_network_case){.machine = *base, .part = part};
    set_links(&c->machine, &inside, &between, part);
    return o->out->cases.n - 1;
}

/* --- loads --- */

typedef void loader(opening *o, const void *what);

/* What the fullest link needs for a byte of the call. */
static double load_all(opening *o, loader *load, const void *what)
{
    double most = 0;
    memset(o->load, 0, sizeof *o->load * (size_t)o->routes.n_links);
    load(o, what);
    for (int i = 0; i < o->routes.n_links; i++)
        most = fmax(most, o->load[i] / sk_routes_capacity(&o->routes, i));
    return most;
}

/* In a dragonfly all go straight, or all go around, whichever is faster. */
static void load_links(opening *o, loader *load, const void *what)
{
    o->routes.around = false;
    double straight = load_all(o, load, what);
    if (!o->in->machine->topology.dragonfly.hosts) return;
    o->routes.around = true;
    if (load_all(o, load, what) < straight) return;
    o->routes.around = false;
    load_all(o, load, what);
}

/* --- groups --- */

static void follow(opening *o, sk_pattern pattern, const int *ranks, int n, ways *w)
{
    if (n < 2) return;
    if (pattern == SK_PATTERN_RING) ring(o, ranks, n, w);
    else pairs(o, ranks, n, w);
}

/* Price formulas divide the bytes of a rank by the members on its host where all of them send. */
static int group_case(opening *o, sk_pattern pattern, const int *ranks, int n)
{
    ways w = {0};
    int most = sk_machine_reach(o->in->machine, ranks, n).most;
    follow(o, pattern, ranks, n, &w);
    return case_of(o, ranks, n, w.n ? w.alpha / w.n : 0,
                   w.worst * (o->in->machine->ring ? 1 : most));
}

typedef struct calls { /* of all groups of a number */
    sk_pattern pattern;
    int group, *of;
} calls;

/* Each group once: loads the links, or looks at what they come to. */
static void visit_groups(opening *o, const calls *c, bool look)
{
    for (int r = 0; r < o->in->n_ranks; r++) c->of[r] = -1;
    for (int r = 0; r < o->in->n_ranks; r++) {
        if (c->of[r] >= 0) continue;
        int n = sk_network_members(o->in->programs[o->in->shape_of[r]], r, c->group, o->ranks);
        c->of[r] = 0;
        if (!look) follow(o, c->pattern, o->ranks, n, NULL);
        int which = look && n > 1 ? group_case(o, c->pattern, o->ranks, n) : 0;
        for (int i = 0; i < n; i++) c->of[o->ranks[i]] = which;
    }
}

static void load_groups(opening *o, const void *c) { visit_groups(o, c, false); }

static void open_group(opening *o, sk_pattern pattern, int group)
{
    int *of = o->out->groups[pattern][group] = sk_many(o->arena, int, o->in->n_ranks);
    calls c = {.pattern = pattern, .group = group, .of = of};
    load_links(o, load_groups, &c);
    visit_groups(o, &c, true);
}

static sk_pattern pattern_of(sk_coll_kind kind)
{
    return kind == SK_ALLTOALL || kind == SK_ALLTOALLV ? SK_PATTERN_PAIRS : SK_PATTERN_RING;
}

static int count_shapes(const sk_network_in *in)
{
    int n = 0;
    for (int r = 0; r < in->n_ranks; r++)
        if (in->shape_of[r] >= n) n = in->shape_of[r] + 1;
    return n;
}

/* Of which pattern calls in the group are: bits. */
static unsigned patterns_of(const sk_network_in *in, int shapes, int group)
{
    unsigned seen = 0;
    for (int s = 0; s < shapes; s++)
        for (int i = 0; i < in->programs[s]->calls.n; i++) {
            const sk_call_plan *c = &in->programs[s]->calls.v[i];
            if (c->group == group) seen |= 1U << pattern_of(c->kind);
        }
    return seen;
}

static void open_groups(opening *o, int shapes)
{
    int groups = o->out->n_groups = o->in->programs[0]->n_groups;
    for (int i = 0; i < SK_N_PATTERNS; i++) o->out->groups[i] = sk_many(o->arena, int *, groups);
    for (int g = 0; g < groups; g++) {
        unsigned seen = patterns_of(o->in, shapes, g);
        for (int i = 0; i < SK_N_PATTERNS; i++)
            if (seen >> i & 1) open_group(o, (sk_pattern)i, g);
    }
}

/* --- messages --- */

/* How far `to` is from `from`, as the rank that is so far from rank 0. */
static int distance(const sk_mesh *m, int from, int to)
{
    int a[SK_MAX_AXES], b[SK_MAX_AXES];
    sk_mesh_coords(m, from, a);
    sk_mesh_coords(m, to, b);
    for (int i = 0; i < m->n; i++) b[i] = (b[i] - a[i] + m->size[i]) % m->size[i];
    return sk_mesh_rank(m, b);
}

static int shifted(const sk_mesh *m, int from, int by)
{
    int a[SK_MAX_AXES], b[SK_MAX_AXES];
    sk_mesh_coords(m, from, a);
    sk_mesh_coords(m, by, b);
    for (int i = 0; i < m->n; i++) b[i] = (b[i] + a[i]) % m->size[i];
    return sk_mesh_rank(m, b);
}

typedef struct sends { /* of the ranks of a stage; -1: of all */
    const sk_network_shift *shift;
    int stage;
} sends;

static void visit_sends(opening *o, const sends *s, bool look)
{
    const sk_layout *l = &o->in->programs[0]->layout;
    int coord[SK_MAX_AXES];
    for (int r = 0; r < o->in->n_ranks; r++) {
        ways w = {0};
        int ends[] = {r, shifted(&l->mesh, r, s->shift->by)};
        sk_mesh_coords(&l->mesh, r, coord);
        if (s->stage >= 0 && coord[l->stage_axis] != s->stage) continue;
        flow(o, ends[0], ends[1], 1, look ? &w : NULL);
        if (look) s->shift->of[r] = case_of(o, ends, 2, w.alpha, w.worst);
    }
}

static void load_sends(opening *o, const void *s) { visit_sends(o, s, false); }

/* Ranks of one stage send together; along other axes all ranks do. */
static void open_shift(opening *o, int by)
{
    const sk_layout *l = &o->in->programs[0]->layout;
    int coord[SK_MAX_AXES], stages = 0;
    for (int i = 0; i < o->out->shifts.n; i++)
        if (o->out->shifts.v[i].by == by) return;
    sk_network_shift *shift = sk_push(o->arena, &o->out->shifts);
    *shift = (sk_network_shift){.by = by, .of = sk_many(o->arena, int, o->in->n_ranks)};
    sk_mesh_coords(&l->mesh, by, coord);
    if (l->stage_axis >= 0 && coord[l->stage_axis]) stages = l->mesh.size[l->stage_axis];
    for (int stage = stages ? 0 : -1; stage < stages; stage++) {
        sends s = {shift, stage};
        load_links(o, load_sends, &s);
        visit_sends(o, &s, true);
    }
}

static void open_shifts(opening *o, int shapes)
{
    for (int s = 0; s < shapes; s++) {
        const sk_program *p = o->in->programs[s];
        for (int i = 0; i < p->insts.n; i++)
            if (p->insts.v[i].act == SK_DO_SEND)
                open_shift(o, distance(&p->layout.mesh, p->rank, p->insts.v[i].peer));
    }
}

/* --- all --- */

/* Hosts that are unlike may differ in what they compute alone. */
static bool alike(const sk_network_in *in)
{
    for (int i = 1; i < in->variants->machines.n; i++) {
        const sk_costs *c = &in->variants->machines.v[i].costs;
        if (!has_links(in->machine, &c->inside, &c->between)) return false;
    }
    return true;
}

sk_status sk_network_open(sk_arena *a, const sk_network_in *in, sk_network *out)
{
    opening o = {.in = in, .out = out, .arena = a, .path = {.arena = a}};
    *out = (sk_network){.mesh = &in->programs[0]->layout.mesh};
    SK_TRY(sk_routes_open(in->machine, in->n_ranks, &o.routes));
    *(struct sk_network_case *)sk_push(a, &out->cases) =
        (struct sk_network_case){.machine = *in->machine, .part = 1};
    out->plain = in->machine->unit || (!o.routes.n_links && alike(in));
    if (out->plain) return SK_OK;
    o.load = sk_many(a, double, o.routes.n_links + 1);
    o.ranks = sk_many(a, int, in->n_ranks);
    open_groups(&o, count_shapes(in));
    open_shifts(&o, count_shapes(in));
    return SK_OK;
}

const sk_machine *sk_network_call(const sk_network *n, int group, sk_coll_kind kind, int rank)
{
    if (n->plain) return &n->cases.v[0].machine;
    return &n->cases.v[n->groups[pattern_of(kind)][group][rank]].machine;
}

const sk_machine *sk_network_message(const sk_network *n, int from, int to)
{
    if (n->plain) return &n->cases.v[0].machine;
    int i = 0, by = distance(n->mesh, from, to);
    while (n->shifts.v[i].by != by) i++;
    return &n->cases.v[n->shifts.v[i].of[from]].machine;
}

uint64_t sk_network_mark(const sk_network *n, int rank, uint64_t mark)
{
    if (n->plain) return mark;
    for (int g = 0; g < n->n_groups; g++)
        for (int i = 0; i < SK_N_PATTERNS; i++)
            if (n->groups[i][g]) mark = sk_hash(mark, &n->groups[i][g][rank], sizeof(int));
    for (int i = 0; i < n->shifts.n; i++)
        mark = sk_hash(mark, &n->shifts.v[i].of[rank], sizeof(int));
    return mark;
}
