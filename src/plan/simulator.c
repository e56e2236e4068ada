/* paper.c - running programs on paper.
 *
 * Every rank (or every class of equal ranks) is a walker with a clock.  Members
 * of a group meet in a circle; its k-th call is complete when every walker in it
 * has announced its k-th.  Whoever cannot go on is passed over and tried again;
 * since what a walker waits for is fixed by order and not by time, the result does
 * not depend on who is tried first. */
#include "plan/simulator.h"
#include "program/acts.h"
#include "base/strings.h"
#include "plan/rank_classes.h"

#include <math.h>
#include <string.h>

typedef struct meeting { /* one call of a group */
    int announced;       /* walkers */
    double ready;        /* when the last of them came */
    double begin, end;   /* when the bytes moved, if they move by themselves */
    double cost;
} meeting;

typedef struct circle { /* a group, or all groups alike */
    int group, walkers;
    int64_t places; /* ranks in all of them */
    sk_reach reach;
    double free; /* when the newest complete call was over */
    int64_t wire;
    struct {
        meeting *v;
        int n, cap;
    } calls;
} circle;

typedef struct message {
    double sent, arrived, taken;
} message;

typedef struct mail { /* from a walker to another */
    message *v;
    int n, cap, taken, to;
} mail;

typedef struct walker {
    const sk_program *p;
    sk_simulated_rank *out;
    int rank, pc, end;
    int coord[SK_MAX_AXES];
    double now;
    int *circle;        /* by group; -1: not in it */
    int *posted, *done; /* by group: calls announced and finished */
    struct {
        mail *v;
        int n, cap;
    } mails;
    const double *seconds; /* by instruction; NULL: priced */
    double core, away;     /* of calls: a core's work; time on links between hosts */
    double aside;          /* when the newest update beside the rank is over */
    double copying;        /* when the newest copy between memories is over */
    double *copied;        /* by copy: when it is */
    int *charged; /* unit machine: [SK_N_WORKS * layer + work] -> 1 + micro last paid for */
} walker;

typedef struct walk {
    sk_arena *arena;
    const sk_simulate_in *in;
    const sk_machine *m;
    const sk_layout *l;
    int n, n_ranks;
    walker *w;
    int *at; /* by rank: walker */
    circle *circles;
    int n_circles;
    sk_simulation *out;
} walk;

/* --- who meets whom --- */

/* The ranks of a walker's group, ascending.  Programs may be of another rank of the same shape, so
 * only their coordinates count. */
static int members(const walk *k, const walker *w, int group, int *ranks)
{
    const sk_mesh *m = &k->l->mesh;
    int coord[SK_MAX_AXES], n = 0;
    const sk_group *g = &w->p->groups[group];
    bool near = group == w->p->near && group;
    int axis = group < m->n ? group : near ? k->l->shard_axis : k->l->stage_axis;
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

/* Circles are known by their group and the first walker in them: a class never sits in two kinds
 * of groups along one axis, that is what folding made sure of. */
static void join(walk *k, int walker_at, int group, int *first, int *ranks, int *seen)
{
    walker *w = &k->w[walker_at];
    int n = members(k, w, group, ranks), least = k->n, walkers = 0;
    w->circle[group] = -1;
    if (!n) return;
    for (int i = 0; i < n; i++) {
        int o = k->at[ranks[i]];
        if (o < least) least = o;
        walkers += seen[o] != walker_at + 1;
        seen[o] = walker_at + 1;
    }
    int *slot = &first[group * k->n + least];
    if (!*slot) {
        *slot = ++k->n_circles;
        k->circles[*slot - 1] =
            (circle){.group = group, .walkers = walkers, .reach = sk_machine_reach(k->m, ranks, n)};
    }
    w->circle[group] = *slot - 1;
    k->circles[*slot - 1].places += w->out->ranks;
}

static void join_all(walk *k)
{
    int groups = k->w[0].p->n_groups;
    int *first = sk_many(k->arena, int, (int64_t)groups * k->n);
    int *ranks = sk_many(k->arena, int, k->n_ranks);
    k->circles = sk_many(k->arena, circle, (int64_t)groups * k->n);
    for (int g = 0; g < groups; g++) {
        bool world = g == k->w[0].p->world;
        int *seen = sk_many(k->arena, int, k->n);
        for (int i = 0; i < k->n; i++) {
            if (world && i) { /* all are in the one circle: do not look for it again */
                k->w[i].circle[g] = k->w[0].circle[g];
                k->circles[k->w[0].circle[g]].places += k->w[i].out->ranks;
            } else join(k, i, g, first, ranks, seen);
        }
    }
}

/* The rank that a message goes to or comes from: as far from this walker as `peer` is from the rank
 * whose program it is. */
static int partner(const walk *k, const walker *w, int peer)
{
    const sk_mesh *m = &k->l->mesh;
    int coord[SK_MAX_AXES];
    sk_mesh_coords(m, peer, coord);
    for (int a = 0; a < m->n; a++)
        coord[a] = (coord[a] - w->p->coord[a] + w->coord[a] + m->size[a]) % m->size[a];
    return sk_mesh_rank(m, coord);
}

static mail *mail_between(walk *k, walker *from, int to)
{
    for (int i = 0; i < from->mails.n; i++)
        if (from->mails.v[i].to == to) return &from->mails.v[i];
    mail *q = sk_push(k->arena, &from->mails);
    *q = (mail){.to = to};
    return q;
}

/* --- what instructions take --- */

/* The unit machine: the first op of a block pays for all of it. */
static double unit_cost(walker *w, const sk_inst *in)
{
    int last = w->p->graph->n_layers - 1;
    if (in->act != SK_DO_OP || in->layer < 1 || in->layer >= last) return 0;
    int *paid = &w->charged[SK_N_WORKS * in->layer + (int)in->work];
    if (*paid == in->micro + 1) return 0;
    *paid = in->micro + 1;
    return in->work == SK_WORK_B ? 2 : 1;
}

static double cost(const walk *k, walker *w, const sk_inst *in)
{
    if (k->m->unit) return unit_cost(w, in);
    if (w->seconds) return w->seconds[w->pc];
    const sk_launch_plan *l = sk_launch_of(w->p, w->pc);
    if (l && l->at != w->pc) return 0; /* paid for where the launch stands */
    if (l)
        return sk_machine_work(k->m, sk_launch_flops(w->p, l), sk_launch_bytes(w->p, l),
                               w->p->threads);
    if (in->in[0] >= 0 && w->p->bufs.v[in->in[0]].tier == SK_HOST)
        return sk_machine_host(k->m, sk_inst_bytes(w->p, in));
    return sk_machine_work(k->m, in->flops, sk_inst_bytes(w->p, in), w->p->threads);
}

/* --- walking --- */

static void work(walk *k, walker *w, const sk_inst *in)
{
    double c = cost(k, w, in);
    w->out->flops += in->flops;
    if (in->beside) {
        w->aside = fmax(w->aside, w->now) + c;
        return;
    }
    w->now += c;
    w->out->busy += c;
}

/* Time passes for a walker until `end`; others came at `ready`, the bytes moved from then on. */
static void wait_for(walker *w, double ready, double end)
{
    double skew = fmin(fmax(ready - w->now, 0), fmax(end - w->now, 0));
    if (end <= w->now) return;
    w->out->exposed += end - w->now - skew;
    w->now = end;
}

static void note_moving(walker *w, double begin, double end)
{
    if (!w->out->moving) return;
    w->out->moving[2 * w->pc] = begin;
    w->out->moving[2 * w->pc + 1] = end;
}

/* What a list is asked for by the members of a circle, who are in order of their hosts. */
static sk_coll_ask ask_of(const circle *c, const sk_call_plan *plan)
{
    sk_coll_ask ask = {.kind = plan->kind, .n = c->reach.n, .root = plan->root};
    if (c->reach.hosts < 2 || c->reach.n != c->reach.hosts * c->reach.most) return ask;
    ask.n_axes = 2;
    ask.axes[0] = c->reach.hosts;
    ask.axes[1] = c->reach.most;
    return ask;
}

/* By the algorithm that the compiler froze.  Programs may be of another rank of the same shape,
 * whose group sits otherwise on its hosts: where its algorithm does not fit, what would. */
static double call_cost(const walk *k, const circle *c, const sk_call_plan *plan, int64_t bytes)
{
    double seconds = INFINITY;
    sk_coll_ask ask = ask_of(c, plan);
    if (k->in->calls && plan->algorithm < 0 && !plan->common && c->reach.hosts < 2)
        seconds = sk_call_seconds(k->in->calls, plan->kind, c->reach.n, bytes);
    if (seconds >= 0 && isfinite(seconds)) return seconds;
    seconds = INFINITY;
    if (k->m->unit || !k->m->chosen || plan->algorithm < 0)
        return sk_machine_coll(k->m, plan->kind, bytes, c->reach);
    if (sk_coll_can(sk_coll_parts[plan->algorithm], &ask))
        seconds = sk_call_price(&k->m->costs, plan->algorithm, &ask, c->reach.hosts, bytes);
    else sk_choose(&k->m->costs, &ask, c->reach.hosts, plan->reduce, bytes, &seconds);
    return isfinite(seconds) ? seconds : sk_machine_coll(k->m, plan->kind, bytes, c->reach);
}

/* The last walker to announce a call settles when its bytes move. */
static void announce(walk *k, walker *w, const sk_inst *in)
{
    const sk_call_plan *plan = &w->p->calls.v[in->call];
    circle *c = &k->circles[w->circle[plan->group]];
    int seq = w->posted[plan->group]++;
    work(k, w, in);
    while (c->calls.n <= seq) (void)sk_push(k->arena, &c->calls);
    meeting *m = &c->calls.v[seq];
    m->ready = fmax(m->ready, w->now);
    if (++m->announced < c->walkers) return;
    m->cost = call_cost(k, c, plan, sk_call_bytes(plan));
    m->begin = fmax(m->ready, c->free);
    m->end = c->free = m->begin + m->cost;
    c->wire += sk_call_wire(plan, c->reach.n);
}

/* A call in the heaps is work of its members' cores; if they are more than the cores, its price is
 * what those need for all of them. */
static void use_core(const walk *k, walker *w, int n, bool here, double price)
{
    double cores = (double)k->m->costs.cores;
    if (here) w->core += price * fmin(1, cores / n);
    else w->away += price;
}

static bool finish(walk *k, walker *w, const sk_inst *in)
{
    int group = w->p->calls.v[in->call].group;
    circle *c = &k->circles[w->circle[group]];
    int seq = w->done[group];
    sk_assert(seq < w->posted[group]);
    meeting *m = &c->calls.v[seq];
    if (m->announced < c->walkers) return false;
    w->done[group]++;
    double begin = m->begin, end = m->end;
    if (!k->m->overlap) {
        begin = fmax(m->ready, w->now);
        end = begin + m->cost;
    }
    note_moving(w, begin, end);
    wait_for(w, m->ready, end);
    use_core(k, w, c->reach.n, c->reach.hosts < 2, m->cost);
    return true;
}

static void send(walk *k, walker *w, const sk_inst *in)
{
    int to = partner(k, w, in->peer);
    mail *q = mail_between(k, w, k->at[to]);
    bool one_host = w->rank / k->m->ranks_per_host == to / k->m->ranks_per_host;
    work(k, w, in);
    double free = q->n ? fmax(w->now, q->v[q->n - 1].arrived) : w->now;
    double took = sk_machine_send(k->m, w->p->bufs.v[in->in[0]].bytes, one_host);
    *(message *)sk_push(k->arena, q) = (message){.sent = w->now, .arrived = free + took};
    k->out->wire_sends += in->wire * w->out->ranks;
}

static bool receive(walk *k, walker *w, const sk_inst *in)
{
    int from = partner(k, w, in->peer);
    mail *q = mail_between(k, &k->w[k->at[from]], (int)(w - k->w));
    bool one_host = w->rank / k->m->ranks_per_host == from / k->m->ranks_per_host;
    if (q->taken == q->n) return false;
    message *m = &q->v[q->taken++];
    double took = sk_machine_send(k->m, w->p->bufs.v[in->out[0]].bytes, one_host);
    double end = k->m->overlap ? m->arrived : fmax(m->sent, w->now) + took;
    note_moving(w, end - took, end);
    wait_for(w, m->sent, end);
    use_core(k, w, 1, one_host, took);
    m->taken = w->now;
    return true;
}

static bool sent(walk *k, walker *w, const sk_inst *in)
{
    mail *q = mail_between(k, w, k->at[partner(k, w, in->peer)]);
    if (q->taken < in->sent) return false;
    if (in->sent) wait_for(w, INFINITY, q->v[in->sent - 1].taken);
    return true;
}

/* Copies between memories go one after the other, beside everything else. */
static void begin_copy(const walk *k, walker *w, const sk_inst *in)
{
    const sk_buffer *from = &w->p->bufs.v[in->in[0]], *to = &w->p->bufs.v[in->out[0]];
    bool file = from->tier == SK_FILE || to->tier == SK_FILE;
    double took = sk_machine_copy(k->m, from->bytes, file);
    w->copying = fmax(w->copying, w->now) + took;
    w->copied[2 * in->copy] = w->copying - took;
    w->copied[2 * in->copy + 1] = w->copying;
    w->out->copied += took;
}

static void end_copy(walker *w, const sk_inst *in)
{
    const double *at = &w->copied[2 * in->copy];
    double before = w->now;
    note_moving(w, at[0], at[1]);
    wait_for(w, w->now, at[1]);
    w->out->uncovered += w->now - before;
}

/* False: somebody else must come first. */
static bool step(walk *k, walker *w)
{
    const sk_inst *in = &w->p->insts.v[w->pc];
    double before = w->now;
    bool went = true;
    switch (in->act) {
    case SK_DO_START:
        announce(k, w, in);
        break;
    case SK_DO_WAIT:
        went = finish(k, w, in);
        break;
    case SK_DO_SEND:
        send(k, w, in);
        break;
    case SK_DO_RECV:
        went = receive(k, w, in);
        break;
    case SK_DO_SENT:
        went = sent(k, w, in);
        break;
    case SK_DO_JOIN:
        wait_for(w, w->now, w->aside);
        break;
    case SK_DO_COPY:
        begin_copy(k, w, in);
        break;
    case SK_DO_COPIED:
        end_copy(w, in);
        break;
    default:
        work(k, w, in);
    }
    if (!went) return false;
    if (w->out->times) {
        w->out->times[2 * w->pc] = before;
        w->out->times[2 * w->pc + 1] = w->now;
    }
    w->out->wire += in->wire;
    w->pc++;
    return true;
}

static sk_status walk_all(walk *k)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < k->n; i++)
            while (k->w[i].pc < k->w[i].end && step(k, &k->w[i])) moved = true;
    }
    for (int i = 0; i < k->n; i++) {
        const walker *w = &k->w[i];
        if (w->pc < w->end)
            return sk_fail(SK_EBUG, "P3: rank %d waits for ever at%s", w->rank,
                           sk_inst_print(w->p, w->pc, k->arena));
    }
    return SK_OK;
}

/* --- setting up, adding up --- */

static void open_walker(walk *k, int i, int rank)
{
    walker *w = &k->w[i];
    int shape = k->in->shape_of ? k->in->shape_of[rank] : rank;
    const sk_program *p = k->in->programs[shape];
    int end = p->n_train ? p->n_train : p->insts.n;
    *w = (walker){.p = p, .out = &k->out->v[i], .rank = rank, .end = end};
    sk_mesh_coords(&k->l->mesh, rank, w->coord);
    *w->out = (sk_simulated_rank){.program = p, .rank = rank, .stage = p->stage};
    w->seconds = k->in->seconds ? k->in->seconds[shape] : NULL;
    w->circle = sk_many(k->arena, int, p->n_groups);
    w->posted = sk_many(k->arena, int, p->n_groups);
    w->done = sk_many(k->arena, int, p->n_groups);
    w->copied = sk_many(k->arena, double, 2 * (int64_t)p->n_copies + 1);
    w->charged = sk_many(k->arena, int, SK_N_WORKS *(p->graph->n_layers + 1));
    if (!k->in->trace) return;
    w->out->times = sk_many(k->arena, double, 2 * (int64_t)end);
    w->out->moving = sk_many(k->arena, double, 2 * (int64_t)end);
}

static void open_walk(walk *k)
{
    int *shape_of = sk_many(k->arena, int, k->n_ranks), opened = 0;
    k->at = sk_many(k->arena, int, k->n_ranks);
    for (int r = 0; r < k->n_ranks; r++) {
        k->at[r] = r;
        shape_of[r] = k->in->shape_of ? k->in->shape_of[r] : r;
    }
    k->n = k->in->fold ? sk_rank_classes(k->l, shape_of, k->m, k->at) : k->n_ranks;
    k->w = sk_many(k->arena, walker, k->n);
    k->out->v = sk_many(k->arena, sk_simulated_rank, k->n);
    k->out->n = k->n;
    k->out->at = k->at;
    for (int r = 0; r < k->n_ranks; r++) {
        if (k->at[r] == opened) open_walker(k, opened++, r);
        k->out->v[k->at[r]].ranks++;
    }
    join_all(k);
}

/* The compiler refuses this where it knows the hosts; not every machine tells it. */
static sk_status one_memory(const walk *k)
{
    for (int i = 0; k->l->replica && i < k->n_circles; i++) {
        const circle *c = &k->circles[i];
        if (c->group == k->l->shard_axis && c->reach.hosts > 1)
            return sk_fail(SK_ECONF,
                           "layout: replica: the %d ranks along '%s' would sit on %d hosts of %s, "
                           "and only ranks of one host can keep one copy of the weights",
                           c->reach.n, k->l->mesh.name[c->group], c->reach.hosts, k->m->name);
    }
    return SK_OK;
}

/* More ranks (or threads) on a host than cores: they take turns, and the step is no shorter than
 * all their work and all their copies on those cores.  Only machines that run skein's own engine
 * tell their cores. */
static double in_turns(const walk *k)
{
    double work = 0, away = 0;
    int64_t each = k->m->ranks_per_host, hosts = (k->n_ranks + each - 1) / each;
    if (!k->m->chosen || k->m->costs.cores < 1) return 0;
    for (int i = 0; i < k->n; i++) {
        const sk_simulated_rank *r = &k->out->v[i];
        work += (r->busy * k->w[i].p->threads + k->w[i].core) * r->ranks;
        away += k->w[i].away * r->ranks / k->n_ranks;
    }
    return work / (double)(hosts * k->m->costs.cores) + away;
}

static void add_up(walk *k)
{
    sk_simulation *o = k->out;
    for (int i = 0; i < k->n; i++) o->seconds = fmax(o->seconds, k->w[i].now);
    o->seconds = fmax(o->seconds, in_turns(k));
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
    for (int i = 0; i < k->n_circles; i++) {
        const circle *c = &k->circles[i];
        int64_t wire = c->wire * (c->places / c->reach.n);
        if (c->group < k->l->mesh.n) o->wire_axis[c->group] += wire;
        else if (c->group == k->l->mesh.n) o->wire_world += wire;
        else if (c->group == k->w[0].p->near) o->wire_near += wire;
        else o->wire_axis[k->l->stage_axis] += wire;
    }
    o->wire = o->wire_world + o->wire_near + o->wire_sends;
    for (int a = 0; a < k->l->mesh.n; a++) o->wire += o->wire_axis[a];
}

sk_status sk_simulate(sk_arena *a, const sk_simulate_in *in, sk_simulation *out)
{
    const sk_program *p = in->programs[0];
    *out = (sk_simulation){0};
    walk k = {
        .arena = a, .in = in, .m = in->machine, .l = &p->layout, .n_ranks = p->n_ranks, .out = out};
    open_walk(&k);
    SK_TRY(one_memory(&k));
    SK_TRY(walk_all(&k));
    add_up(&k);
    return SK_OK;
}

sk_status sk_simulate_compile(sk_arena *a, const sk_graph *g, const sk_layout *l,
                              const sk_compile_opts *o, const sk_program *const **programs,
                              int **shape_of)
{
    int ranks = sk_mesh_ranks(&l->mesh), made = 0;
    int n_micro = o->n_micro ? o->n_micro : l->n_micro ? l->n_micro : 1;
    *shape_of = sk_many(a, int, ranks);
    int n = sk_shapes(g, l, n_micro, *shape_of);
    sk_program **p = sk_many(a, sk_program *, n < 0 ? 1 : n);
    if (n < 0) {
        SK_TRY(sk_compile(a, g, l, o, 0, p)); /* it may know a better story */
        return sk_fail(SK_ECONF, "layout: the ranks have too many different programs");
    }
    for (int r = 0; r < ranks && made < n; r++) {
        if ((*shape_of)[r] != made) continue; /* shapes are numbered as they appear */
        SK_TRY(sk_compile(a, g, l, o, r, &p[made]));
        made++;
    }
    *programs = (const sk_program *const *)p;
    return SK_OK;
}
