/* sim_prices.c - what instructions and collectives of a simulated rank take. */
#include "plan/engine_calls.h"
#include "plan/launch_kind.h"
#include "plan/sim_state.h"
#include "program/acts.h"
#include "program/class_program.h"

#include <math.h>

/* --- instructions --- */

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

/* A launch without products and attention, by measured ones; below 0: none was measured. */
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

double sk_sim_inst_cost(sk_sim_rank *w, const sk_inst *in)
{
    if (w->m->unit) return w->slow * unit_cost(w, in);
    if (w->seconds) return w->slow * sk_inst_share(in) * w->seconds[w->pc];
    if (w->prices[w->pc] < 0) w->prices[w->pc] = price(w->m, w->p, w->pc);
    return w->slow * w->prices[w->pc];
}

/* --- collectives --- */

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

/* As measured; below 0: it was not. */
static double measured_call(const sk_sim *k, const sk_sim_group *c, const sk_call_plan *plan,
                            int64_t bytes)
{
    if (!k->in->calls || plan->algorithm >= 0 || plan->common || c->reach.hosts > 1) return -1;
    double seconds = sk_call_seconds(k->in->calls, plan->kind, c->reach.n, bytes);
    return isfinite(seconds) ? seconds : -1;
}

/* By the algorithm that the compiler chose.  The program may be that of another rank of the same
 * shape, whose group is spread otherwise over hosts: where its algorithm does not fit, the one that
 * would be chosen here. */
double sk_sim_call_cost(const sk_sim *k, const sk_sim_group *c, const sk_program *p,
                        const sk_inst *in)
{
    const sk_call_plan *plan = &p->calls.v[in->call];
    int64_t bytes = sk_call_bytes(plan);
    const sk_machine *m = sk_network_call(&k->network, c->group, plan->kind, c->rank);
    double seconds = measured_call(k, c, plan, bytes);
    if (seconds >= 0) return seconds;
    if (m->unit || !m->chosen || plan->algorithm < 0) return sk_engine_call(m, p, in, c->reach);
    sk_coll_ask ask = ask_of(c, plan);
    int how = plan->algorithm;
    if (!sk_coll_can(sk_coll_parts[how], &ask))
        how = sk_choose(&m->costs, &ask, c->reach.hosts, plan->reduce, bytes, NULL);
    if (how == SK_NO_CHOICE) return sk_machine_coll(m, plan->kind, bytes, c->reach);
    seconds = sk_call_price(&m->costs, how, &ask, c->reach.hosts, bytes);
    return isfinite(seconds) ? seconds : sk_machine_coll(m, plan->kind, bytes, c->reach);
}
