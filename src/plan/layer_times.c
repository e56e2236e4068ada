/* layer_times.c - the traced instructions of a rank, added up by layer. */
#include "plan/layer_times.h"

#include <math.h>
#include <string.h>

static bool is_layers(const sk_inst *in)
{
    if (in->task < 0 || in->work == SK_WORK_U) return false;
    return in->act != SK_DO_SEND && in->act != SK_DO_RECV && in->act != SK_DO_SENT;
}

/* A wait begins to count when the bytes move: before that it is for other ranks. */
static double took(const sk_simulated_rank *r, int pc)
{
    double begin = r->times[2 * pc], end = r->times[2 * pc + 1];
    if (r->program->insts.v[pc].act == SK_DO_WAIT) begin = fmax(begin, r->moving[2 * pc]);
    return fmax(end - begin, 0);
}

/* Programs that list few micro-batches have these alone. */
static int listed(const sk_program *p)
{
    int most = 0;
    for (int pc = 0; pc < p->n_train; pc++)
        if (is_layers(&p->insts.v[pc]) && p->insts.v[pc].micro > most) most = p->insts.v[pc].micro;
    return most + 1;
}

void sk_layer_times(const sk_simulation *sim, double *seconds)
{
    sk_arena tmp = {0};
    int n = sim->v[0].program->graph->n_layers;
    double *own = sk_many(&tmp, double, n);
    memset(seconds, 0, sizeof *seconds * (size_t)n);
    for (int i = 0; i < sim->n; i++) {
        const sk_simulated_rank *r = &sim->v[i];
        const sk_program *p = r->program;
        memset(own, 0, sizeof *own * (size_t)n);
        for (int pc = 0; pc < p->n_train; pc++)
            if (is_layers(&p->insts.v[pc])) own[p->insts.v[pc].layer] += took(r, pc);
        for (int l = 0; l < n; l++) seconds[l] = fmax(seconds[l], own[l] / listed(p));
    }
    sk_arena_end(&tmp);
}
