/* sim_execute.c - the ranks of a simulation execute their instructions, each by its own clock.
 *
 * An instruction of every n-th update (inst.every) costs an n-th of its time and bytes: a step is
 * one on average.
 *
 * A rank that cannot go on is passed over and tried again.  What it waits for is fixed by order and
 * not by time, so the result does not depend on which rank is tried first. */
#include "plan/engine_calls.h"
#include "plan/sim_laps.h"
#include "program/acts.h"
#include "program/class_program.h"

#include <math.h>
#include <string.h>

/* The real rank that a message goes to or comes from. */
static int partner(const sk_sim_rank *w, int peer) { return sk_program_peer(w->p, w->rank, peer); }

/* The first axis along which another rank is elsewhere. */
static int axis_to(const sk_sim_rank *w, int other)
{
    int coord[SK_MAX_AXES], axis = 0;
    sk_mesh_coords(&w->p->layout.mesh, other, coord);
    while (axis < w->p->layout.mesh.n - 1 && coord[axis] == w->coord[axis]) axis++;
    return axis;
}

static sk_sim_channel *channel_to(sk_sim *k, sk_sim_rank *from, int to)
{
    for (int i = 0; i < from->channels.n; i++)
        if (from->channels.v[i].to == to) return &from->channels.v[i];
    sk_sim_channel *q = sk_push(k->arena, &from->channels);
    *q = (sk_sim_channel){.to = to};
    return q;
}

static bool one_host(const sk_sim *k, int rank, int other)
{
    return rank / k->m->ranks_per_host == other / k->m->ranks_per_host;
}

static double message_cost(const sk_sim *k, int from, int to, int64_t bytes)
{
    const sk_machine *m = sk_network_message(&k->network, from, to);
    return sk_machine_send(m, bytes, one_host(k, from, to));
}

/* --- the clock of a rank --- */

/* A kernel begins when the thread of the host has launched it and the one before is over.  A GPU's
 * program with copies between memories is no graph: the host launches its kernels one by one. */
static void begin(sk_sim_rank *w, double cost)
{
    double each = w->m->engine.host_launch, late;
    if (each <= 0 && w->p->gpu && w->p->n_copies) each = w->m->issue;
    if (each <= 0 || cost <= 0) return;
    w->host += each;
    late = fmax(w->host - w->now, 0);
    w->now += late;
    w->out->busy += late;
}

/* The clock of w goes on to `end`.  The other members came at `ready`, and bytes moved from then
 * on: only that time is exposed communication, the wait before it is part of the bubble. */
static void wait_for(sk_sim_rank *w, int along, double ready, double end)
{
    double skew = fmin(fmax(ready - w->now, 0), fmax(end - w->now, 0));
    if (end <= w->now) return;
    w->out->exposed += end - w->now - skew;
    w->out->exposed_by[along] += end - w->now - skew;
    w->now = end;
}

static void note_moving(sk_sim_rank *w, double begin, double end)
{
    if (!w->out->moving) return;
    w->out->moving[2 * w->pc] = begin;
    w->out->moving[2 * w->pc + 1] = end;
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

/* Work goes on; the sum before this one has taken its part of the device by now. */
static void sum_late(const sk_sim *k, sk_sim_rank *w, double begin, double end)
{
    share_device(k, w, w->sum_begin, w->sum_end);
    w->sum_begin = begin;
    w->sum_end = end;
}

/* What comes now needs all sums. */
static void wait_for_sums(const sk_sim *k, sk_sim_rank *w)
{
    int axis = w->p->layout.shard_axis;
    double end = w->sum_end;
    if (end <= 0) return;
    sum_late(k, w, 0, 0);
    wait_for(w, axis < 0 ? SK_EXPOSED_WORLD : axis, w->now, end);
}

/* --- instructions --- */

static void work(sk_sim_rank *w, const sk_inst *in)
{
    double c = sk_sim_inst_cost(w, in);
    w->out->flops += in->flops * sk_inst_share(in);
    if (in->background) {
        w->updating = fmax(w->updating, w->now) + c;
        return;
    }
    begin(w, c);
    w->now += c;
    w->out->busy += c;
}

/* When the last member announces a call, it is known when its bytes move. */
static void announce(sk_sim *k, sk_sim_rank *w, const sk_inst *in)
{
    const sk_call_plan *plan = &w->p->calls.v[in->call];
    sk_sim_group *c = &k->groups[w->group[plan->group]];
    int seq = w->posted[plan->group]++;
    work(w, in);
    while (c->calls.n <= seq) (void)sk_push(k->arena, &c->calls);
    sk_sim_call *m = &c->calls.v[seq];
    m->ready = fmax(m->ready, w->now);
    if (++m->announced < c->members) return;
    m->cost =
        sk_inst_share(in) * sk_sim_call_cost(k, c, w->p, in) * sk_engine_times(k->m, w->p, w->pc);
    m->begin = fmax(m->ready, c->free);
    m->end = c->free = m->begin + m->cost;
    c->wire += sk_inst_average(in, sk_call_wire(plan, c->reach.n));
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
    if (sk_engine_sums_late(k->m, w->p, &w->p->calls.v[in->call])) {
        sum_late(k, w, begin, end);
        return true;
    }
    if (k->m->overlap) share_device(k, w, begin, end);
    int axis = sk_group_axis(w->p, group);
    wait_for(w, axis < 0 ? SK_EXPOSED_WORLD : axis, m->ready, end);
    use_core(k, w, c->reach.n, c->reach.hosts < 2, m->cost);
    return true;
}

static void send(sk_sim *k, sk_sim_rank *w, const sk_inst *in)
{
    int to = partner(w, in->peer);
    sk_sim_channel *q = channel_to(k, w, k->at[to]);
    work(w, in);
    double free = q->n ? fmax(w->now, q->v[q->n - 1].arrived) : w->now;
    double took = message_cost(k, w->rank, to, w->p->bufs.v[in->in[0]].bytes);
    *(sk_sim_message *)sk_push(k->arena, q) =
        (sk_sim_message){.sent = w->now, .arrived = free + took};
    k->out->wire_sends += in->wire * w->out->ranks;
}

static bool receive(sk_sim *k, sk_sim_rank *w, const sk_inst *in)
{
    int from = partner(w, in->peer);
    sk_sim_channel *q = channel_to(k, &k->w[k->at[from]], (int)(w - k->w));
    if (q->taken == q->n) return false;
    sk_sim_message *m = &q->v[q->taken++];
    double took = message_cost(k, from, w->rank, w->p->bufs.v[in->out[0]].bytes);
    double end = k->m->overlap ? m->arrived : fmax(m->sent, w->now) + took;
    note_moving(w, end - took, end);
    wait_for(w, axis_to(w, from), m->sent, end);
    if (k->m->engine.host_waits) w->host = fmax(w->host, w->now);
    use_core(k, w, 1, one_host(k, from, w->rank), took);
    m->taken = w->now;
    return true;
}

static bool sent(sk_sim *k, sk_sim_rank *w, const sk_inst *in)
{
    sk_sim_channel *q = channel_to(k, w, k->at[partner(w, in->peer)]);
    int64_t n = in->sent + q->more;
    if (q->taken < n) return false;
    if (n) wait_for(w, SK_EXPOSED_WORLD, INFINITY, q->v[n - 1].taken);
    return true;
}

/* Copies between memories go one after the other, beside everything else. */
static void begin_copy(sk_sim_rank *w, const sk_inst *in)
{
    const sk_buffer *from = &w->p->bufs.v[in->in[0]], *to = &w->p->bufs.v[in->out[0]];
    bool file = from->placement == SK_FILE || to->placement == SK_FILE;
    double took = sk_machine_copy(w->m, from->bytes, file);
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
    wait_for(w, SK_EXPOSED_MEMORY, w->now, at[1]);
    w->out->uncovered += w->now - before;
}

static void load(sk_sim_rank *w, const sk_inst *in)
{
    if (w->m->engine.host_waits) w->host = fmax(w->host, w->now);
    work(w, in);
}

/* False: another rank must go on first, nothing was done. */
static bool execute(sk_sim *k, sk_sim_rank *w, const sk_inst *in)
{
    switch (in->act) {
    case SK_DO_START:
        return announce(k, w, in), true;
    case SK_DO_WAIT:
        return finish(k, w, in);
    case SK_DO_SEND:
        return send(k, w, in), true;
    case SK_DO_RECV:
        return receive(k, w, in);
    case SK_DO_SENT:
        return sent(k, w, in);
    case SK_DO_JOIN:
        return wait_for(w, SK_EXPOSED_MEMORY, w->now, w->updating), true;
    case SK_DO_COPY:
        return begin_copy(w, in), true;
    case SK_DO_COPIED:
        return end_copy(w, in), true;
    case SK_DO_LOAD:
        return load(w, in), true;
    case SK_DO_STATS:
        return wait_for_sums(k, w), work(w, in), true;
    default:
        return work(w, in), true;
    }
}

/* --- all ranks --- */

static void note(sk_sim *k, sk_sim_rank *w, const sk_inst *in, double before)
{
    const sk_layout *l = &w->p->layout;
    w->wire += sk_inst_average(in, in->wire);
    if (sk_layout_timed(l) && in->call < 0)
        k->out->wire_axis[sk_timed_axis(l)] += in->wire * w->out->ranks;
    if (!w->out->times) return;
    w->out->times[2 * w->pc] = before;
    w->out->times[2 * w->pc + 1] = w->now;
}

/* The next instruction of a rank; false: another rank must go on first. */
static bool step(sk_sim *k, sk_sim_rank *w)
{
    const sk_inst *in = &w->p->insts.v[w->pc];
    double before = w->now;
    bool later = k->early && sk_inst_once(in); /* in the last phase of the step */
    if (!later) {
        if (!execute(k, w, in)) return false;
        note(k, w, in, before);
    }
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
