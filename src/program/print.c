/* print.c - a program as text: what `skein explain` shows and golden tests compare. */
#include "base/text.h"
#include "program/program.h"

#include <inttypes.h>
#include <string.h>

const char *const sk_act_names[SK_N_ACTS] = {
    [SK_DO_LOAD] = "load",       [SK_DO_OP] = "op",         [SK_DO_SLICE] = "slice",
    [SK_DO_PASTE] = "paste",     [SK_DO_ADD] = "add",       [SK_DO_ZERO] = "zero",
    [SK_DO_START] = "start",     [SK_DO_WAIT] = "wait",     [SK_DO_SEND] = "send",
    [SK_DO_RECV] = "recv",       [SK_DO_SENT] = "sent",     [SK_DO_STATS] = "stats",
    [SK_DO_CLIP] = "clip",       [SK_DO_UPDATE] = "update", [SK_DO_AHEAD] = "ahead",
    [SK_DO_JOIN] = "join",       [SK_DO_NARROW] = "narrow", [SK_DO_PEND] = "pend",
    [SK_DO_SQUARES] = "squares", [SK_DO_COPY] = "copy",     [SK_DO_COPIED] = "copied",
    [SK_DO_PACK] = "pack",       [SK_DO_UNPACK] = "unpack", [SK_DO_ENCODE] = "encode",
    [SK_DO_DECODE] = "decode",
};
static const char *const coll_names[SK_N_COLLS] = {"all-reduce", "reduce-scatter", "all-gather",
                                                   "broadcast",  "reduce",         "gather",
                                                   "scatter",    "all-to-all",     "all-to-all-v"};

static void shape(sk_out *o, const sk_program *p, int buf)
{
    const sk_buffer *b = &p->bufs.v[buf];
    sk_out_add(o, "%s[", b->name);
    for (int i = 0; i < b->box.n; i++) sk_out_add(o, "%s%" PRId64, i ? "," : "", b->box.size[i]);
    sk_out_add(o, "]@%" PRIx64, (uint64_t)b->offset);
}

static void operands(sk_out *o, const sk_program *p, const int *v, int n)
{
    for (int i = 0; i < n && v[i] >= 0; i++) {
        sk_out_add(o, i ? ", " : "");
        shape(o, p, v[i]);
    }
}

static void call(sk_out *o, const sk_program *p, const sk_inst *in)
{
    const sk_call_plan *c = &p->calls.v[in->call];
    const char *group = c->group < p->layout.mesh.n ? p->layout.mesh.name[c->group]
                        : c->group == p->world      ? "all"
                        : c->group == p->near       ? "those near"
                                                    : "tied stages";
    sk_out_add(o, "#%d %s%s over %s: %s", in->call, coll_names[c->kind],
               c->reduce == SK_MAXIMUM ? " max" : "", group, c->what);
    if (c->n_segs > 1) sk_out_add(o, " (%d tensors)", c->n_segs);
    sk_out_add(o, ", %" PRId64 " x %s", c->elements, sk_dtype_name(c->type));
    if (c->common) sk_out_add(o, " in one memory");
    if (c->algorithm >= 0) sk_out_add(o, " by %s", sk_algorithm_name(c->algorithm));
}

static void body(sk_out *o, const sk_program *p, const sk_inst *in)
{
    switch (in->act) {
    case SK_DO_OP:
        operands(o, p, in->out, SK_MAX_OUT);
        sk_out_add(o, in->add ? " += %s(" : " = %s(", in->node->op->name);
        operands(o, p, in->in, SK_MAX_IN);
        sk_out_add(o, ") \"%s\"", in->node->dims);
        return;
    case SK_DO_START:
    case SK_DO_WAIT:
        call(o, p, in);
        return;
    case SK_DO_SEND:
        operands(o, p, in->in, 1);
        sk_out_add(o, " to rank %d", in->peer);
        return;
    case SK_DO_RECV:
        operands(o, p, in->out, 1);
        sk_out_add(o, " from rank %d", in->peer);
        return;
    case SK_DO_SENT:
        sk_out_add(o, "%" PRId64 " to rank %d", in->count, in->peer);
        return;
    case SK_DO_COPY:
    case SK_DO_COPIED:
        sk_out_add(o, "#%d ", in->copy);
        operands(o, p, in->in, 1);
        sk_out_add(o, " to the %s", sk_tier_names[p->bufs.v[in->out[0]].tier]);
        return;
    case SK_DO_UPDATE:
        if (p->params.v[in->param].tensor->nudge != 0) sk_out_add(o, "nudge ");
        else sk_out_add(o, "%s pass %d ", p->optim->name, in->pass);
        if (in->beside) sk_out_add(o, "beside the step, ");
        operands(o, p, in->beside ? &in->out[2] : in->out, 1);
        if (p->n_updates > 1) sk_out_add(o, ", %" PRId64 " late", in->count);
        return;
    case SK_DO_ENCODE:
    case SK_DO_DECODE:
        operands(o, p, in->out, 1);
        sk_out_add(o, " <- ");
        if (in->count > 1) sk_out_add(o, "sum of %" PRId64 " in ", in->count);
        operands(o, p, in->in, 1);
        if (in->in[1] >= 0) sk_out_add(o, in->pass ? ", loss to " : ", with loss of ");
        operands(o, p, in->in + 1, 1);
        return;
    default:
        operands(o, p, in->out, SK_MAX_OUT);
        if (in->in[0] >= 0) sk_out_add(o, " <- ");
        operands(o, p, in->in, SK_MAX_IN);
    }
}

char *sk_inst_print(const sk_program *p, int pc, sk_arena *a)
{
    sk_out o = {.arena = a};
    if (pc < 0 || pc >= p->insts.n) return sk_print(a, "(before the first instruction)");
    const sk_inst *in = &p->insts.v[pc];
    sk_out_add(&o, "%5d ", pc);
    if (in->micro >= 0) sk_out_add(&o, "%c%-2d", in->phase == SK_FORWARD ? 'F' : 'B', in->micro);
    else sk_out_add(&o, "   ");
    sk_out_add(&o, " %-6s ", sk_act_names[in->act]);
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
    if (p->twin != p->rank)
        sk_out_add(&o, "memory %-12s %14" PRId64 " of weights with rank %d\n", "shared",
                   p->twin_bytes, p->twin);
    return o.s;
}

static void tail(sk_out *o, const sk_program *p, const sk_inst *in)
{
    if (in->room >= 0)
        sk_out_add(o, "  room[%" PRId64 "]@%" PRIx64, p->bufs.v[in->room].bytes,
                   p->bufs.v[in->room].offset);
    if (in->flops > 0) sk_out_add(o, "  %.3g flop", in->flops);
    if (in->wire > 0) sk_out_add(o, "  %" PRId64 " B", in->wire);
    if (in->act == SK_DO_OP) sk_out_add(o, "  %s", in->node->where);
    sk_out_add(o, "\n");
}

char *sk_program_print(const sk_program *p, sk_arena *a)
{
    sk_out o = {.arena = a};
    sk_arena tmp = {0};
    sk_out_add(&o, "rank %d of %d", p->rank, p->n_ranks);
    for (int i = 0; i < p->layout.mesh.n; i++)
        sk_out_add(&o, "  %s %d/%d", p->layout.mesh.name[i], p->coord[i], p->layout.mesh.size[i]);
    sk_out_add(&o, "  %d micro-batches  %d instructions\n", p->n_micro, p->n_train);
    sk_out_add(&o, "%s", sk_program_memory(p, &tmp));
    for (int pc = 0; pc < p->insts.n; pc++) {
        if (pc == p->n_train) sk_out_add(&o, p->n_train ? "-- validation\n" : "-- forward\n");
        sk_out_add(&o, "%s", sk_inst_print(p, pc, &tmp));
        tail(&o, p, &p->insts.v[pc]);
    }
    sk_arena_end(&tmp);
    return o.s;
}
