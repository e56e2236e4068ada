/* sim_execute.c - the ranks of a simulation execute their instructions, each by its own clock.
 *
 * An instruction of every n-th update (inst.every) costs an n-th of its time and bytes: a step is
 * one on average.
 *
 * A rank that cannot go on is passed over and tried again.  What it waits for is fixed by order and
 * not by time, so the result does not depend on which rank is tried first. */
#include "plan/sim_laps.h"
#include "program/acts.h"

#include <math.h>
#include <string.h>

/* The real rank that a message goes to or comes from: it has the same distance from w as `peer` has
 * from the rank whose program this is. */
static int partner(const sk_sim *k, const sk_sim_rank *w, int peer)
{
    const sk_mesh *m = &k->l->mesh;
    int coord[SK_MAX_AXES];
    sk_mesh_coords(m, peer, coord);
    for (int a = 0; a < m->n; a++)
        coord[a] = (coord[a] - w->p->coord[a] + w->coord[a] + m->size[a]) % m->size[a];
    return sk_mesh_rank(m, coord);
}

static sk_sim_channel *channel_to(sk_sim *k, sk_sim_rank *from, int to)
{
    for (int i = 0; i < from->channels.n; i++)
        if (from->channels.v[i].to == to) return &from->channels.v[i];
    sk_sim_channel *q = sk_push(k->arena, &from->channels);
    *q = (sk_sim_channel){.to = to};
    return q;
}

/* --- what instructions take --- */

/* The unit machine: the first op of a block pays for all of it. */
static double unit_cost(sk_sim_rank *w, const sk_inst *in)
{
    int last = w->p->graph->n_layers - 1;
    if (in->act != SK_DO_OP || in->layer < 1 || in->layer >= last) return 0;
    int *paid = &w->charged[SK_N_WORKS * in->layer + (int)in->work];
    if (*paid == w->micros + in->micro + 1) return 0;
    *paid = w->micros + in->micro + 1;
    return in->work == SK_WORK_B ? 2 : 1;
}

static double compute(const sk_sim *k, const sk_program *p, int pc, bool *stream)
{
    const sk_inst *in = &p->insts.v[pc];
    if (in->shape.kind != SK_KERNEL_STREAM) *stream = false;
    return sk_machine_compute(k->m, &in->shape, sk_inst_work(p, in), p->threads);
}

/* Of a kernel that executes all instructions of a launch. */
static double launch_cost(const sk_sim *k, const sk_program *p, const sk_launch_plan *l)
{
    double sum = 0;
    bool stream = true;
    for (int i = 0; i < l->n; i++) sum += compute(k, p, l->by ? l->pcs[i] : l->at + i, &stream);
    return sk_machine_kernel(k->m, sum, sk_launch_bytes(p, l), stream);
}

static double price(const sk_sim *k, sk_sim_rank *w, const sk_inst *in)
{
    bool stream = true;
    if (w->seconds) return sk_inst_share(in) * w->seconds[w->pc];
    const sk_launch_plan *l = sk_launch_of(w->p, w->pc);
    if (l && l->at != w->pc) return 0; /* paid for where the launch stands */
    if (l) return sk_inst_share(in) * launch_cost(k, w->p, l); /* all are of the same updates */
    if (in->in[0] >= 0 && w->p->bufs.v[in->in[0]].placement == SK_HOST)
        return sk_machine_host(k->m, sk_inst_bytes(w->p, in));
    double seconds = compute(k, w->p, w->pc, &stream);
    return sk_inst_share(in) * sk_machine_kernel(k->m, seconds, sk_inst_bytes(w->p, in), stream);
}

static double cost(const sk_sim *k, sk_sim_rank *w, const sk_inst *in)
{
    if (k->m->unit) return unit_cost(w, in);
    if (!w->costs) return price(k, w, in);
    if (w->costs[w->pc] < 0) w->costs[w->pc] = price(k, w, in);
    return w->costs[w->pc];
}

/* A kernel begins when the thread of the host has launched it and the one before is over. */
static void begin(const sk_sim *k, sk_sim_rank *w, double cost)
{
    const sk_engine *e = &k->m->engine;
    double late;
    if (e->host_launch <= 0 || cost <= 0) return;
    w->host += e->host_launch;
    late = fmax(w->host - w->now, 0);
    w->now += late;
    w->out->busy += late;
}

/* --- instructions --- */

static void work(sk_sim *k, sk_sim_rank *w, const sk_inst *in)
{
    double c = cost(k, w, in);
    w->out->flops += in->flops * sk_inst_share(in);
    if (in->background) {
        w->updating = fmax(w->updating, w->now) + c;
        return;
    }
    begin(k, w, c);
    w->now += c;
    w->out->busy += c;
}

/* The clock of w goes on to `end`.  The other members came at `ready`, and bytes moved from then
 * on: only that time is exposed communication, the wait before it is part of the bubble. */
static void wait_for(sk_sim_rank *w, double ready, double end)
{
    double skew = fmin(fmax(ready - w->now, 0), fmax(end - w->now, 0));
    if (end <= w->now) return;
    w->out->exposed += end - w->now - skew;
    w->now = end;
}

static void note_moving(sk_sim_rank *w, double begin, double end)
{
    if (!w->out->moving) return;
    w->out->moving[2 * w->pc] = begin;
    w->out->moving[2 * w->pc + 1] = end;
}

/* The request that the members of a group, which are in the order of their hosts, make to an
 * algorithm. */
static sk_coll_ask ask_of(const sk_sim_group *c, const sk_call_plan *plan)
{
    sk_coll_ask ask = {.kind = plan->kind, .n = c->reach.n, .root = plan->root};
    if (c->links) ask.rate = c->links->rate, ask.ranks = c->ranks, ask.all = c->links->n;
    ask.any_order = c->any_order;
    ask.degrees = plan->degrees;
    sk_call_fill(plan, &ask);
    if (c->reach.hosts < 2 || c->reach.n != c->reach.hosts * c->reach.most) return ask;
    ask.n_axes = 2;
    ask.axes[0] = c->reach.hosts;
    ask.axes[1] = c->reach.most;
    return ask;
}

/* Priced by the algorithm that the compiler chose.  The program may be that of another rank of the
 * same shape, whose group is spread otherwise over hosts: where its algorithm does not fit, the one
 * that would be chosen here. */
static double call_cost(const sk_sim *k, const sk_sim_group *c, const sk_call_plan *plan,
                        int64_t bytes)
{
    double seconds = INFINITY;
    sk_coll_ask ask = ask_of(c, plan);
    if (k->in->calls && plan->algorithm < 0 && !plan->common && c->reach.hosts < 2)
        seconds = sk_call_seconds(k->in->calls, plan->kind, c->reach.n, bytes);
    if (seconds >= 0 && isfinite(seconds)) return seconds;
    seconds = INFINITY;
    if (k->m->unit || !k->m->chosen || plan->algorithm < 0)
        return sk_machine_coll(k->m, plan->kind, bytes, c->reach);
    int how = plan->algorithm;
    if (!sk_coll_can(sk_coll_parts[how], &ask))
        how = sk_choose(&k->m->costs, &ask, c->reach.hosts, plan->reduce, bytes, NULL);
    if (how != SK_NO_CHOICE)
        seconds = sk_call_price(&k->m->costs, how, &ask, c->reach.hosts, bytes);
    return isfinite(seconds) ? seconds : sk_machine_coll(k->m, plan->kind, bytes, c->reach);
}

/* In a step on average, as ranks have it: each member's bytes are whole. */
int64_t sk_sim_wire(const sk_inst *in, const sk_call_plan *plan, int n)
{
    int64_t sum = 0;
    if (sk_inst_share(in) == 1) return sk_call_wire(plan, n);
    for (int i = 0; i < n; i++) sum += sk_inst_average(in, sk_call_wire_of(plan, i, n));
    return sum;
}

/* When the last member announces a call, it is known when its bytes move. */
static void announce(sk_sim *k, sk_sim_rank *w, const sk_inst *in)
{
    const sk_call_plan *plan = &w->p->calls.v[in->call];
    sk_sim_group *c = &k->groups[w->group[plan->group]];
    int seq = w->posted[plan->group]++;
    work(k, w, in);
    while (c->calls.n <= seq) (void)sk_push(k->arena, &c->calls);
    sk_sim_call *m = &c->calls.v[seq];
    m->ready = fmax(m->ready, w->now);
    if (++m->announced < c->members) return;
    m->cost = sk_inst_share(in) * call_cost(k, c, plan, sk_call_bytes(plan));
    m->begin = fmax(m->ready, c->free);
    m->end = c->free = m->begin + m->cost;
    c->wire += sk_sim_wire(in, plan, c->reach.n);
}

/* A call in shared memory is work of its members' cores.  Where members outnumber the cores, its
 * price is what all cores need for all members. */
static void use_core(const sk_sim *k, sk_sim_rank *w, int n, bool here, double price)
{
    double cores = (double)k->m->costs.cores;
    if (here) w->core += price * fmin(1, cores / n);
    else w->between += price;
}

/* While bytes moved, kernels of the collective took a part of the device from those beside them. */
static void share_device(const sk_sim *k, sk_sim_rank *w, double begin, double end)
{
    double beside = fmin(w->now, end) - begin, share = k->m->engine.contention;
    if (beside <= 0 || share <= 0) return;
    w->now += beside * share;
    w->out->busy += beside * share;
}

static bool finish(sk_sim *k, sk_sim_rank *w, const sk_inst *in)
{
    int group = w->p->calls.v[in->call].group;
    sk_sim_group *c = &k->groups[w->group[group]];
    int seq = w->done[group];
    sk_assert(seq < w->posted[group]);
    sk_sim_call *m = &c->calls.v[seq];
    if (m->announced < c->members) return false;
    w->done[group]++;
    double begin = m->begin, end = m->end;
    if (!k->m->overlap) {
        begin = fmax(m->ready, w->now);
        end = begin + m->cost;
    }
    note_moving(w, begin, end);
    if (k->m->overlap) share_device(k, w, begin, end);
    wait_for(w, m->ready, end);
    use_core(k, w, c->reach.n, c->reach.hosts < 2, m->cost);
    return true;
}

static void send(sk_sim *k, sk_sim_rank *w, const sk_inst *in)
{
    int to = partner(k, w, in->peer);
    sk_sim_channel *q = channel_to(k, w, k->at[to]);
    bool one_host = w->rank / k->m->ranks_per_host == to / k->m->ranks_per_host;
    work(k, w, in);
    double free = q->n ? fmax(w->now, q->v[q->n - 1].arrived) : w->now;
    double took = sk_machine_send(k->m, w->p->bufs.v[in->in[0]].bytes, one_host);
    *(sk_sim_message *)sk_push(k->arena, q) =
        (sk_sim_message){.sent = w->now, .arrived = free + took};
    k->out->wire_sends += in->wire * w->out->ranks;
}

static bool receive(sk_sim *k, sk_sim_rank *w, const sk_inst *in)
{
    int from = partner(k, w, in->peer);
    sk_sim_channel *q = channel_to(k, &k->w[k->at[from]], (int)(w - k->w));
    bool one_host = w->rank / k->m->ranks_per_host == from / k->m->ranks_per_host;
    if (q->taken == q->n) return false;
    sk_sim_message *m = &q->v[q->taken++];
    double took = sk_machine_send(k->m, w->p->bufs.v[in->out[0]].bytes, one_host);
    double end = k->m->overlap ? m->arrived : fmax(m->sent, w->now) + took;
    note_moving(w, end - took, end);
    wait_for(w, m->sent, end);
    if (k->m->engine.host_waits) w->host = fmax(w->host, w->now);
    use_core(k, w, 1, one_host, took);
    m->taken = w->now;
    return true;
}

static bool sent(sk_sim *k, sk_sim_rank *w, const sk_inst *in)
{
    sk_sim_channel *q = channel_to(k, w, k->at[partner(k, w, in->peer)]);
    int64_t n = in->sent + q->more;
    if (q->taken < n) return false;
    if (n) wait_for(w, INFINITY, q->v[n - 1].taken);
    return true;
}

/* Copies between memories go one after the other, beside everything else. */
static void begin_copy(const sk_sim *k, sk_sim_rank *w, const sk_inst *in)
{
    const sk_buffer *from = &w->p->bufs.v[in->in[0]], *to = &w->p->bufs.v[in->out[0]];
    bool file = from->placement == SK_FILE || to->placement == SK_FILE;
    double took = sk_machine_copy(k->m, from->bytes, file);
    w->copying = fmax(w->copying, w->now) + took;
    w->copied[2 * in->copy] = w->copying - took;
    w->copied[2 * in->copy + 1] = w->copying;
    w->out->copied += took;
}

static void end_copy(sk_sim_rank *w, const sk_inst *in)
{
    const double *at = &w->copied[2 * in->copy];
    double before = w->now;
    note_moving(w, at[0], at[1]);
    wait_for(w, w->now, at[1]);
    w->out->uncovered += w->now - before;
}

/* False: another rank must go on first. */
static bool step(sk_sim *k, sk_sim_rank *w)
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
        wait_for(w, w->now, w->updating);
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
    w->out->wire += sk_inst_average(in, in->wire);
    if (sk_layout_timed(&w->p->layout) && in->call < 0)
        k->out->wire_axis[sk_timed_axis(&w->p->layout)] += in->wire * w->out->ranks;
    w->pc++;
    if (w->laps) sk_sim_laps_go(w);
    return true;
}

sk_status sk_sim_execute(sk_sim *k)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < k->n; i++)
            while (k->w[i].pc < k->w[i].end && step(k, &k->w[i])) moved = true;
    }
    for (int i = 0; i < k->n; i++) {
        const sk_sim_rank *w = &k->w[i];
        if (w->pc < w->end)
            return sk_fail(SK_EBUG, "P3: rank %d waits for ever at%s", w->rank,
                           sk_inst_print(w->p, w->pc, k->arena));
    }
    return SK_OK;
}
