/* print.c - a program as text: what `skein explain` shows and golden tests compare. */
#include "base/strings.h"
#include "program/acts.h"
#include "program/fuse.h"

#include <inttypes.h>
#include <string.h>

static void body(sk_out *o, const sk_program *p, const sk_inst *in)
{
    const sk_act_row *row = sk_act_row_of(in);
    if (row->print) {
        row->print(o, p, in);
        return;
    }
    sk_print_operands(o, p, in->out, SK_MAX_OUT);
    if (in->in[0] >= 0) sk_out_add(o, " <- ");
    sk_print_operands(o, p, in->in, SK_MAX_OPERANDS);
}

char *sk_inst_print(const sk_program *p, int pc, sk_arena *a)
{
    sk_out o = {.arena = a};
    if (pc < 0 || pc >= p->insts.n) return sk_print(a, "(before the first instruction)");
    const sk_inst *in = &p->insts.v[pc];
    sk_out_add(&o, "%5d ", pc);
    if (in->micro >= 0) sk_out_add(&o, "%c%-2d", in->phase == SK_FORWARD ? 'F' : 'B', in->micro);
    else sk_out_add(&o, "   ");
    sk_out_add(&o, " %-6s ", sk_act_row_of(in)->name);
    body(&o, p, in);
    return o.s;
}

char *sk_program_memory(const sk_program *p, sk_arena *a)
{
    sk_out o = {.arena = a};
    for (int k = 0; k < SK_HOSTED; k++)
        sk_out_add(&o, "memory %-12s %14" PRId64 "\n", sk_kind_names[k], p->kind_bytes[k]);
    sk_out_add(&o, "memory %-12s %14" PRId64 "\n", "total", sk_device_bytes(p));
    if (p->kind_bytes[SK_HOSTED])
        sk_out_add(&o, "memory %-12s %14" PRId64 "\n", "host", p->kind_bytes[SK_HOSTED]);
    if (p->file_bytes) sk_out_add(&o, "memory %-12s %14" PRId64 "\n", "file", p->file_bytes);
    if (p->shares_with != p->rank)
        sk_out_add(&o, "memory %-12s %14" PRId64 " of weights with rank %d\n", "shared",
                   p->shared_bytes, p->shares_with);
    return o.s;
}

/* Which launch of a GPU it is part of. */
static void print_launch(sk_out *o, const sk_program *p, int pc)
{
    const sk_launch_plan *l = sk_launch_of(p, pc);
    if (!l) return;
    if (pc != l->at) {
        sk_out_add(o, "  in launch %d", l->at);
        return;
    }
    sk_out_add(o, "  launch %s of %d", l->by ? l->by->name : "updates", l->n);
}

static void tail(sk_out *o, const sk_program *p, int pc)
{
    const sk_inst *in = &p->insts.v[pc];
    print_launch(o, p, pc);
    if (in->workspace >= 0) {
        const sk_buffer *b = &p->bufs.v[in->workspace];
        sk_out_add(o, "  workspace[%" PRId64 "]", b->bytes);
        if (p->heap_bytes) sk_out_add(o, "@%" PRIx64, b->offset);
    }
    if (in->every > 1) sk_out_add(o, "  every %d updates", in->every);
    if (in->sync.steps > 1)
        sk_out_add(o, "  in steps %d, %d, ..", in->sync.at + 1, in->sync.at + 1 + in->sync.steps);
    if (in->sync.from) sk_out_add(o, "  after step %" PRId64, in->sync.from);
    if (in->sync.until) sk_out_add(o, "  up to step %" PRId64, in->sync.until);
    static const char *const kinds[] = {"dense", "sent", "local"};
    for (int k = 0; in->sync.by && k < SK_STEP_KINDS; k++)
        if (in->sync.kinds >> k & 1) sk_out_add(o, "  in %s steps", kinds[k]);
    if (in->flops > 0) sk_out_add(o, "  %.3g flop", in->flops);
    if (in->wire > 0) sk_out_add(o, "  %" PRId64 " B", in->wire);
    if (in->act == SK_DO_OP) sk_out_add(o, "  %s", in->node->where);
}

/* The attributes that passes exchange: the table in program.h. */
static void marks(sk_out *o, const sk_program *p, const sk_inst *in)
{
    static const char *const flight[] = {"none", "task", "step"};
    if (in->task >= 0) sk_out_add(o, "  task=%d unit=%d", in->task, in->unit);
    if (in->parts > 1) sk_out_add(o, " part=%d/%d", in->part, in->parts);
    if (in->ring >= 0) sk_out_add(o, " ring=%s", p->layout.mesh.name[in->ring]);
    if (in->region) sk_out_add(o, " region=%d", in->region);
    if (in->node && sk_node_is_clone(p, in->node)) sk_out_add(o, " clone");
    if (in->act != SK_DO_START) return;
    const sk_call_plan *c = &p->calls.v[in->call];
    sk_out_add(o, " flight=%s%s", flight[c->flies], c->by_rows ? " by-rows" : "");
    if (c->param_set) sk_out_add(o, " param-set=%d", c->param_set);
    if (c->n_then) sk_out_add(o, " then=%d", c->n_then);
}

static char *print(const sk_program *p, sk_arena *a, bool with_marks)
{
    sk_out o = {.arena = a};
    sk_arena tmp = {0};
    sk_out_add(&o, "rank %d of %d", p->rank, p->n_ranks);
    for (int i = 0; i < p->layout.mesh.n; i++)
        sk_out_add(&o, "  %s %d/%d", p->layout.mesh.name[i], p->coord[i], p->layout.mesh.size[i]);
    sk_out_add(&o, "  %d micro-batch%s  %d instructions\n", p->n_micro, p->n_micro == 1 ? "" : "es",
               p->n_train);
    if (p->heap_bytes) sk_out_add(&o, "%s", sk_program_memory(p, &tmp)); /* from `memory` on */
    if (p->matrices && p->n_ranks > 1) sk_out_add(&o, "%s", sk_program_matrix_work(p, &tmp));
    for (int pc = 0; pc < p->insts.n; pc++) {
        if (pc == p->n_train) sk_out_add(&o, p->n_train ? "-- validation\n" : "-- forward\n");
        sk_out_add(&o, "%s", sk_inst_print(p, pc, &tmp));
        tail(&o, p, pc);
        if (with_marks) marks(&o, p, &p->insts.v[pc]);
        sk_out_add(&o, "\n");
    }
    sk_arena_end(&tmp);
    return o.s;
}

char *sk_program_print(const sk_program *p, sk_arena *a) { return print(p, a, false); }
char *sk_program_print_marks(const sk_program *p, sk_arena *a) { return print(p, a, true); }
