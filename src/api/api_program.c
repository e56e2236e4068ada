/* api_program.c - plans and programs: what ranks will do and keep. */
#include "api/handles.h"
#include "plan/machine.h"
#include "plan/simulator.h"

#include <stdio.h>
#include <string.h>

/* --- making them --- */

static sk_status make(skein_program *p, const skein_layout *l, bool all)
{
    p->job = p->from->job;
    p->job.all_told = true;
    p->all = all;
    if (l && strlen(l->text) >= sizeof p->job.layout)
        return sk_fail(SK_ECONF, "layout: its long form has %zu bytes, at most %zu are possible",
                       strlen(l->text), sizeof p->job.layout - 1);
    if (l) {
        memset(p->job.layout, 0, sizeof p->job.layout);
        memcpy(p->job.layout, l->text, strlen(l->text));
        p->job.ranks = 0;
    }
    return sk_setup_program(&p->arena, &p->job, all, &p->setup);
}

static sk_status open_program(skein_job *job, const skein_layout *l, bool all, skein_program **out)
{
    SK_ENTER;
    sk_arena a = {0};
    skein_program *p = sk_new(&a, skein_program);
    p->arena = a;
    p->from = job;
    atomic_store(&p->refs, 1);
    sk_job_hold(job);
    sk_status st = make(p, l, all);
    if (st) skein_program_close(p);
    else *out = p;
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}

int skein_plan(skein_job *job, const skein_layout *layout, skein_program **out)
{
    SK_NEED(job);
    SK_NEED(out);
    return (int)open_program(job, layout, false, out);
}

int skein_compile(skein_job *job, const skein_layout *layout, skein_program **out)
{
    SK_NEED(job);
    SK_NEED(out);
    return (int)open_program(job, layout, true, out);
}

void sk_program_hold(skein_program *p) { atomic_fetch_add(&p->refs, 1); }

void skein_program_close(skein_program *p)
{
    if (!p || atomic_fetch_sub(&p->refs, 1) > 1) return;
    skein_job_close(p->from);
    sk_arena a = p->arena; /* p itself lies in it */
    sk_arena_end(&a);
}

/* --- asking them --- */

int skein_program_ranks(const skein_program *p) { return p ? p->setup.n_ranks : 0; }
int64_t skein_program_params(const skein_program *p) { return p ? p->setup.n_params : 0; }
double skein_program_flops(const skein_program *p) { return p ? p->setup.flops : 0; }

static sk_status good_rank(const char *who, const skein_program *p, int rank)
{
    if (rank >= 0 && rank < p->setup.n_ranks) return SK_OK;
    return sk_fail(SK_EUSAGE, "%s: rank %d; there are %d", who, rank, p->setup.n_ranks);
}

int skein_program_memory(const skein_program *p, int rank, skein_memory *out)
{
    SK_NEED(p);
    SK_NEED(out);
    SK_TELL(good_rank(__func__, p, rank));
    const sk_program *q = sk_setup_program_of(&p->setup, rank);
    const int64_t *bytes = q->kind_bytes;
    skein_memory m = {.total = sk_device_bytes(q),
                      .weights = bytes[SK_WEIGHTS],
                      .grads = bytes[SK_GRADS],
                      .optimizer = bytes[SK_OPTIM],
                      .activations = bytes[SK_ACTS],
                      .wire = bytes[SK_WIRE],
                      .scratch = bytes[SK_SCRATCH],
                      .host = bytes[SK_HOSTED],
                      .file = q->file_bytes};
    return (int)sk_struct_to_caller(__func__, out, &m, sizeof m);
}

int skein_program_text(skein_program *p, int rank, const char **out)
{
    SK_ENTER;
    SK_NEED(p);
    SK_NEED(out);
    SK_TELL(good_rank(__func__, p, rank));
    *out = sk_program_print(sk_setup_program_of(&p->setup, rank), &p->arena);
    return SK_OK;
}

/* The programs that this machine would get, its hosts and its costs being others than ours. */
static sk_status walk(sk_arena *a, const sk_setup *s, const char *machine, skein_simulation *out)
{
    sk_machine m;
    sk_simulation simulated = {0};
    const sk_program *const *programs = NULL;
    int *shape_of = NULL;
    SK_TRY(sk_machine_read(a, machine, &m));
    sk_compile_opts o = sk_setup_opts(s);
    o.validate = false;
    o.host_of = sk_machine_hosts(a, &m, &s->layout, s->n_ranks);
    o.costs = &m.costs;
    SK_TRY(sk_simulate_compile(a, &s->graph, &s->layout, &o, &programs, &shape_of));
    sk_simulate_in in = {
        .machine = &m, .programs = programs, .shape_of = shape_of, .by_class = true};
    SK_TRY(sk_simulate(a, &in, &simulated));
    *out = (skein_simulation){.seconds = simulated.seconds,
                              .busy = simulated.busy,
                              .exposed = simulated.exposed,
                              .bubble = simulated.bubble,
                              .flops = simulated.flops,
                              .wire = simulated.wire,
                              .memory = m.memory};
    return SK_OK;
}

int skein_program_simulate(const skein_program *p, const char *machine, skein_simulation *out)
{
    SK_ENTER;
    SK_NEED(p);
    SK_NEED(machine);
    SK_NEED(out);
    sk_arena tmp = {0};
    skein_simulation price = {0};
    sk_status st = walk(&tmp, &p->setup, machine, &price);
    sk_arena_end(&tmp);
    return (int)(st ? sk_trail(st, SK_HERE)
                    : sk_struct_to_caller(__func__, out, &price, sizeof price));
}
