/* sim_execute.c - the ranks of a simulation execute their instructions, each by its own clock.
 *
 * An instruction of every n-th update (inst.every) costs an n-th of its time and bytes: a step is
 * one on average.
 *
 * A rank that cannot go on is passed over and tried again.  What it waits for is fixed by order and
 * not by time, so the result does not depend on which rank is tried first. */
#include "plan/engine_calls.h"
#include "plan/launch_kind.h"
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

static double compute(const sk_machine *m, const sk_program *p, int pc, sk_kernel_kind *kind)
{
    const sk_inst *in = &p->insts.v[pc];
    if (in->shape.kind > *kind) *kind = in->shape.kind;
    return sk_machine_compute(m, &in->shape, sk_inst_work(p, in), p->threads);
}

/* Products and attention of a calibrated machine were measured with the bytes that they move. */
static double kernel(const sk_machine *m, double seconds, int64_t bytes, sk_kernel_kind kind)
{
    if (kind >= SK_KERNEL_PRODUCT && m->kernels.n_ops) bytes = 0;
    return sk_machine_kernel(m, seconds, bytes, kind);
}

/* Of a kernel that executes all instructions of a launch. */
static double launch_cost(const sk_machine *m, const sk_program *p, const sk_launch_plan *l)
{
    double sum = 0;
    sk_kernel_kind kind = SK_KERNEL_STREAM;
    for (int i = 0; i < l->n; i++) sum += compute(m, p, l->by ? l->pcs[i] : l->at + i, &kind);
    return kernel(m, sum, sk_launch_bytes(p, l), kind);
}

/* Of adding a gradient to that of the micro-batches before, where the product does not do it. */
static double accumulate_cost(const sk_machine *m, const sk_program *p, const sk_inst *in)
{
    const sk_buffer *to = in->out[0] >= 0 ? &p->bufs.v[in->out[0]] : NULL;
    if (in->act != SK_DO_OP || !(in->add & 1) || !to || to->kind != SK_GRADS) return 0;
    return sk_machine_accumulate(m, to->bytes / (int64_t)sk_dtype_size(to->type));
}

/* A launch without products and attention, by what such were measured to take; below 0: none was.
 */
static double measured(const sk_machine *m, const sk_program *p, int pc)
{
    sk_launch_kind of;
    if (!m->kernels.n_ops || sk_act_row_of(&p->insts.v[pc])->moves) return -1;
    if (!sk_launch_kind_of(p, pc, &of) || of.n_shaped || !of.bytes) return -1;
    return sk_machine_op(m, of.name, of.type, of.bytes, p->threads);
}

static double price(const sk_machine *m, const sk_program *p, int pc)
{
    const sk_inst *in = &p->insts.v[pc];
    const sk_launch_plan *l = sk_launch_of(p, pc);
    sk_kernel_kind kind = SK_KERNEL_STREAM;
    if (l && l->at != pc) return 0; /* paid for where the launch stands */
    if (!l && in->in[0] >= 0 && p->bufs.v[in->in[0]].placement == SK_HOST)
        return sk_machine_host(m, sk_inst_bytes(p, in));
    double was = measured(m, p, pc);
    if (was >= 0) return sk_inst_share(in) * was;
    if (l) return sk_inst_share(in) * launch_cost(m, p, l); /* all are of the same updates */
    double seconds = compute(m, p, pc, &kind);
    seconds = kernel(m, seconds, sk_inst_bytes(p, in), kind) + accumulate_cost(m, p, in) +
              sk_engine_passes(m, p, in);
    return sk_inst_share(in) * sk_engine_times(m, p, pc) * seconds;
}

static double cost(sk_sim_rank *w, const sk_inst *in)
{
    if (w->m->unit) return w->slow * unit_cost(w, in);
    if (w->seconds) return w->slow * sk_inst_share(in) * w->seconds[w->pc];
    if (w->prices[w->pc] < 0) w->prices[w->pc] = price(w->m, w->p, w->pc);
    return w->slow * w->prices[w->pc];
}

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

/* --- instructions --- */

static void work(sk_sim_rank *w, const sk_inst *in)
{
    double c = cost(w, in);
    w->out->flops += in->flops * sk_inst_share(in);
    if (in->background) {
        w->updating = fmax(w->updating, w->now) + c;
        return;
    }
    begin(w, c);
    w->now += c;
    w->out->busy += c;
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
static double call_cost(const sk_sim *k, const sk_sim_group *c, const sk_program *p,
                        const sk_inst *in)
{
    double seconds = INFINITY;
    const sk_call_plan *plan = &p->calls.v[in->call];
    int64_t bytes = sk_call_bytes(plan);
    sk_coll_ask ask = ask_of(c, plan);
    const sk_machine *m = sk_network_call(&k->network, c->group, plan->kind, c->rank);
    if (k->in->calls && plan->algorithm < 0 && !plan->common && c->reach.hosts < 2)
        seconds = sk_call_seconds(k->in->calls, plan->kind, c->reach.n, bytes);
    if (seconds >= 0 && isfinite(seconds)) return seconds;
    seconds = INFINITY;
    if (m->unit || !m->chosen || plan->algorithm < 0) return sk_engine_call(m, p, in, c->reach);
    int how = plan->algorithm;
    if (!sk_coll_can(sk_coll_parts[how], &ask))
        how = sk_choose(&m->costs, &ask, c->reach.hosts, plan->reduce, bytes, NULL);
    if (how != SK_NO_CHOICE) seconds = sk_call_price(&m->costs, how, &ask, c->reach.hosts, bytes);
    return isfinite(seconds) ? seconds : sk_machine_coll(m, plan->kind, bytes, c->reach);
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
    m->cost = sk_inst_share(in) * call_cost(k, c, w->p, in) * sk_engine_times(k->m, w->p, w->pc);
    m->begin = fmax(m->ready, c->free);
    m->end = c->free = m->begin + m->cost;
    c->wire += sk_inst_average(in, sk_call_wire(plan, c->reach.n));
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
    bool one_host = w->rank / k->m->ranks_per_host == to / k->m->ranks_per_host;
    work(w, in);
    double free = q->n ? fmax(w->now, q->v[q->n - 1].arrived) : w->now;
    const sk_machine *m = sk_network_message(&k->network, w->rank, to);
    double took = sk_machine_send(m, w->p->bufs.v[in->in[0]].bytes, one_host);
    *(sk_sim_message *)sk_push(k->arena, q) =
        (sk_sim_message){.sent = w->now, .arrived = free + took};
    k->out->wire_sends += in->wire * w->out->ranks;
}

static bool receive(sk_sim *k, sk_sim_rank *w, const sk_inst *in)
{
    int from = partner(w, in->peer);
    sk_sim_channel *q = channel_to(k, &k->w[k->at[from]], (int)(w - k->w));
    bool one_host = w->rank / k->m->ranks_per_host == from / k->m->ranks_per_host;
    if (q->taken == q->n) return false;
    sk_sim_message *m = &q->v[q->taken++];
    const sk_machine *met = sk_network_message(&k->network, from, w->rank);
    double took = sk_machine_send(met, w->p->bufs.v[in->out[0]].bytes, one_host);
    double end = k->m->overlap ? m->arrived : fmax(m->sent, w->now) + took;
    note_moving(w, end - took, end);
    wait_for(w, axis_to(w, from), m->sent, end);
    if (k->m->engine.host_waits) w->host = fmax(w->host, w->now);
    use_core(k, w, 1, one_host, took);
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

static void next(sk_sim_rank *w)
{
    w->pc++;
    if (w->laps) sk_sim_laps_go(w);
}

/* False: another rank must go on first. */
static bool step(sk_sim *k, sk_sim_rank *w)
{
    const sk_inst *in = &w->p->insts.v[w->pc];
    double before = w->now;
    bool went = true;
    if (k->early && sk_inst_once(in)) {
        next(w);
        return true;
    }
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
        wait_for(w, SK_EXPOSED_MEMORY, w->now, w->updating);
        break;
    case SK_DO_COPY:
        begin_copy(w, in);
        break;
    case SK_DO_COPIED:
        end_copy(w, in);
        break;
    case SK_DO_LOAD:
        if (w->m->engine.host_waits) w->host = fmax(w->host, w->now);
        work(w, in);
        break;
    case SK_DO_STATS:
        wait_for_sums(k, w);
        work(w, in);
        break;
    default:
        work(w, in);
    }
    if (!went) return false;
    if (w->out->times) {
        w->out->times[2 * w->pc] = before;
        w->out->times[2 * w->pc + 1] = w->now;
    }
    w->wire += sk_inst_average(in, in->wire);
    if (sk_layout_timed(&w->p->layout) && in->call < 0)
        k->out->wire_axis[sk_timed_axis(&w->p->layout)] += in->wire * w->out->ranks;
    next(w);
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
