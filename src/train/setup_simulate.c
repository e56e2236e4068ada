/* setup_simulate.c - programs as on the hosts of the machine, chosen by its costs, and their step.
 */
#include "train/setup_simulate.h"

static sk_compile_opts opts_on(sk_arena *a, const sk_setup *s, const sk_machine *m)
{
    sk_compile_opts o = sk_setup_opts(s);
    o.validate = false;
    o.host_of = sk_machine_hosts(a, m, &s->layout, s->n_ranks);
    o.costs = &m->costs;
    o.listed = true;
    return o;
}

sk_status sk_setup_first_bytes(sk_arena *a, const sk_setup *s, const sk_machine *m, int64_t *bytes,
                               int64_t *insts)
{
    const sk_program *p = NULL;
    sk_compile_opts o = opts_on(a, s, m);
    SK_TRY(sk_simulate_compile_first(a, &s->graph, &s->layout, &o, &p));
    *bytes = sk_device_bytes(p);
    *insts += p->insts.n;
    return SK_OK;
}

static sk_status simulate(sk_arena *a, const sk_setup *s, const sk_machine *m, bool trace,
                          sk_simulated_step *out)
{
    sk_compile_opts o = opts_on(a, s, m);
    *out = (sk_simulated_step){0};
    SK_TRY(sk_simulate_compile(a, &s->graph, &s->layout, &o, &out->programs, &out->shape_of));
    sk_simulate_in in = {.machine = m,
                         .programs = out->programs,
                         .shape_of = out->shape_of,
                         .by_class = true,
                         .trace = trace};
    SK_TRY(sk_simulate(a, &in, &out->sim));
    for (int i = 0; i < out->sim.n; i++) {
        int64_t bytes = sk_device_bytes(out->sim.v[i].program);
        if (bytes > out->bytes) out->bytes = bytes;
    }
    return SK_OK;
}

sk_status sk_setup_simulate(sk_arena *a, const sk_setup *s, const sk_machine *m,
                            sk_simulated_step *out)
{
    return simulate(a, s, m, false, out);
}

sk_status sk_setup_trace(sk_arena *a, const sk_setup *s, const sk_machine *m,
                         sk_simulated_step *out)
{
    return simulate(a, s, m, true, out);
}
