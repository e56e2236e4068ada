/* op_times.c - where the time of a step goes, op by op. */
#include "plan/op_times.h"
#include "program/acts.h"
#include "base/strings.h"
#include "plan/deadline.h"
#include "plan/step_timing.h"
#include "plan/workers.h"
#include "program/fuse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 3 }; /* steps; on a GPU the first loads kernels, the second is captured */

/* --- bytes --- */

static double inst_bytes(const sk_program *p, int pc)
{
    const sk_inst *in = &p->insts.v[pc];
    if (in->act == SK_DO_OP) return (double)sk_ops_bytes(p, &pc, NULL, 1);
    return (double)(sk_act_row_of(in)->moves ? in->wire : sk_inst_bytes(p, in));
}

/* --- names --- */

static void add_shape(sk_out *o, const sk_program *p, int buf)
{
    const sk_buffer *b = &p->bufs.v[buf];
    for (int i = 0; i < b->box.n; i++)
        sk_out_add(o, "%s%lld", i ? "x" : " ", (long long)b->box.size[i]);
    if (!b->box.n) sk_out_add(o, " 1");
}

static void add_shapes(sk_out *o, const sk_program *p, const sk_inst *first, const sk_inst *last)
{
    sk_out_add(o, " %c", first->phase == SK_FORWARD ? 'F' : 'B');
    for (int i = 0; i < 2 && i < SK_MAX_IN && first->in[i] >= 0; i++) add_shape(o, p, first->in[i]);
    if (last->out[0] >= 0) {
        sk_out_add(o, " ->");
        add_shape(o, p, last->out[0]);
        if (last->add & 1) sk_out_add(o, " +=");
    }
}

static const char *name_of(sk_arena *a, const sk_program *p, int pc, bool shapes)
{
    const sk_inst *in = &p->insts.v[pc];
    const sk_launch_plan *l = sk_launch_of(p, pc), *f = l && l->by ? l : NULL;
    const sk_inst *first = f ? &p->insts.v[f->pcs[0]] : in;
    sk_out o = {.arena = a};
    if (f) sk_out_add(&o, "%s", f->by->name);
    else if (in->act == SK_DO_OP) sk_out_add(&o, "%s", in->node->op->name);
    else if (in->act == SK_DO_UPDATE) sk_out_add(&o, "%s", p->params.v[in->param].optim->name);
    else sk_out_add(&o, "(%s", sk_act_row_of(in)->name);
    if (in->call >= 0) sk_out_add(&o, " %s", sk_coll_names[p->calls.v[in->call].kind]);
    if (!f && in->act != SK_DO_OP && in->act != SK_DO_UPDATE) sk_out_add(&o, ")");
    if (shapes && in->act == SK_DO_OP) add_shapes(&o, p, first, in);
    return o.s;
}

/* --- the sum --- */

static sk_op_time *row_of(sk_op_times *t, const sk_op_time *x)
{
    int i = 0;
    while (i < t->n && (strcmp(t->v[i].name, x->name) || strcmp(t->v[i].kernel, x->kernel))) i++;
    if (i < t->n) return &t->v[i];
    if (t->n == SK_OP_TIMES) return &t->v[t->n - 1];
    if (t->n == SK_OP_TIMES - 1) strcpy(t->v[t->n].name, "(others)");
    else {
        strcpy(t->v[t->n].name, x->name);
        strcpy(t->v[t->n].kernel, x->kernel);
    }
    return &t->v[t->n++];
}

static void add_time(sk_op_times *t, const sk_op_time *x, double by)
{
    sk_op_time *to = row_of(t, x);
    to->launches += by * x->launches;
    to->seconds += by * x->seconds;
    to->flops += by * x->flops;
    to->bytes += by * x->bytes;
}

static void add_inst(sk_arena *a, sk_run *r, int step, int pc, bool shapes, sk_op_times *t)
{
    const sk_program *p = sk_run_program(r);
    const sk_inst *in = &p->insts.v[pc];
    if (!sk_inst_due(in, step, (int64_t)step * p->n_updates)) return;
    const double *times = sk_run_times(r);
    int at = sk_run_launch_at(r, pc);
    const char *kernel = sk_run_kernel_name(r, at);
    const sk_launch_plan *l = sk_launch_of(p, at), *f = l && l->by ? l : NULL;
    sk_op_time x = {.launches = at == pc, .flops = in->flops};
    snprintf(x.name, sizeof x.name, "%s", name_of(a, p, at, shapes));
    if (kernel) snprintf(x.kernel, sizeof x.kernel, "%s", kernel);
    if (at == pc) x.seconds = times[2 * pc + 1] - times[2 * pc];
    if (!f) x.bytes = inst_bytes(p, pc);
    else if (at == pc) x.bytes = (double)sk_launch_bytes(p, f);
    add_time(t, &x, 1);
}

static int by_time(const void *a, const void *b)
{
    double x = ((const sk_op_time *)a)->seconds, y = ((const sk_op_time *)b)->seconds;
    return (x < y) - (x > y);
}

/* --- ranks --- */

typedef struct ops_job {
    const sk_program *const *programs;
    sk_run_opts opts;
    sk_heaps *heaps;
    double lr;
    int steps;
    bool shapes;
    sk_op_times *notes; /* by rank, shared */
} ops_job;

static sk_status traced_steps(const ops_job *j, sk_run *run, sk_op_times *note)
{
    sk_step_out out = {0};
    SK_TRY(sk_run_init(run, j->opts.seed));
    SK_TRY(sk_run_barrier(run));
    for (int s = 0; s < WARM + j->steps; s++) {
        SK_TRY(sk_run_step(run, &(sk_step_in){.step = s, .lr = j->lr}, &out));
        if (s < WARM) continue;
        sk_arena a = {0};
        note->seconds += out.seconds;
        for (int pc = 0; pc < sk_run_program(run)->n_train; pc++)
            add_inst(&a, run, s, pc, j->shapes, note);
        sk_arena_end(&a);
    }
    return SK_OK;
}

static sk_status ops_rank(void *ctx, int rank)
{
    const ops_job *j = ctx;
    sk_arena a = {0};
    sk_run *run = NULL;
    sk_run_opts o = j->opts;
    o.timeout_s = sk_timeout(o.timeout_s, j->programs[rank], j->heaps);
    SK_TRY(sk_run_open(&a, j->programs[rank], j->heaps, &o, &run));
    sk_status st = traced_steps(j, run, &j->notes[rank]);
    sk_run_close(run);
    sk_arena_end(&a);
    return st;
}

static void mean(const ops_job *j, int n_ranks, sk_op_times *out)
{
    double by = 1.0 / n_ranks / j->steps;
    *out = (sk_op_times){0};
    for (int r = 0; r < n_ranks; r++) {
        out->seconds += by * j->notes[r].seconds;
        for (int i = 0; i < j->notes[r].n; i++) add_time(out, &j->notes[r].v[i], by);
    }
    qsort(out->v, (size_t)out->n, sizeof *out->v, by_time);
}

sk_status sk_time_ops(const sk_program *const *programs, const sk_run_opts *o, double lr, int steps,
                      bool shapes, sk_op_times *out)
{
    sk_arena tmp = {0};
    int n = programs[0]->n_ranks;
    int64_t *heap = sk_many(&tmp, int64_t, n);
    ops_job j = {.programs = programs, .opts = *o, .lr = lr, .shapes = shapes};
    j.steps = sk_steps_whole(steps, sk_steps_interval(programs));
    sk_assert(steps > 0);
    j.opts.trace = true;
    sk_heap_aliases aliases = sk_program_shared(&tmp, programs, n, heap);
    size_t notes = sizeof *out * (size_t)n;
    sk_status st = sk_heaps_open_aliased(n, heap, aliases, true, notes, &j.heaps);
    if (!st) {
        j.notes = sk_heaps_extra(j.heaps);
        st = sk_workers_run(j.heaps, n, ops_rank, &j);
        if (!st) mean(&j, n, out);
        sk_heaps_close(j.heaps);
    }
    sk_arena_end(&tmp);
    return st;
}
