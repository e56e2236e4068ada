/* deadline.c - the priced step, and how much longer than that is a hang. */
#include "plan/deadline.h"
#include "base/proc.h"

#include <math.h>

static int64_t operands(const sk_program *p, const sk_inst *in)
{
    int64_t sum = 0;
    for (int i = 0; i < SK_MAX_OPERANDS && in->in[i] >= 0; i++) sum += p->bufs.v[in->in[i]].bytes;
    for (int i = 0; i < SK_MAX_OUT && in->out[i] >= 0; i++) sum += p->bufs.v[in->out[i]].bytes;
    return sum;
}

static double price(const sk_program *p, const sk_machine *m, const sk_inst *in)
{
    if (in->act == SK_DO_WAIT) {
        const sk_call_plan *c = &p->calls.v[in->call];
        const sk_group *g = &p->groups[c->group];
        return sk_machine_coll(m, c->kind, sk_call_bytes(c), sk_machine_reach(m, g->ranks, g->n));
    }
    if (in->act == SK_DO_RECV) return sk_machine_send(m, p->bufs.v[in->out[0]].bytes, true);
    return sk_machine_work(m, in->flops, operands(p, in), p->threads);
}

double sk_priced_step(const sk_program *p, const sk_machine *m)
{
    double sum = 0;
    for (int i = 0; i < p->n_train; i++) sum += price(p, m, &p->insts.v[i]);
    return sum;
}

static double shared_step(const sk_program *p, int cores, int ranks_here)
{
    double turns = (double)ranks_here * p->threads / (cores > 0 ? cores : 1);
    return sk_priced_step(p, &sk_machines[0]) * fmax(1, turns);
}

double sk_deadline(const sk_program *p, int cores, int ranks_here)
{
    double saved = (double)(p->kind_bytes[SK_WEIGHTS] + p->kind_bytes[SK_OPTIM]) * p->n_ranks;
    return SK_TIMEOUT_LEAST_S + SK_TIMEOUT_TIMES * shared_step(p, cores, ranks_here) +
           saved / SK_SLOW_DISK;
}

/* All ranks of this host share its cores. */
double sk_timeout(double asked, const sk_program *p, const sk_heaps *h)
{
    int here = 0;
    for (int k = 0; k < p->n_ranks; k++) here += sk_heap_base(h, k) != NULL;
    return asked > 0 ? asked : sk_deadline(p, sk_proc_cores(), here);
}
