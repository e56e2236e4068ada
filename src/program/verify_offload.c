/* verify_offload.c - P10: offloaded buffers and their copies. */
#include "program/program.h"
#include "program/acts.h"

#include <string.h>

static sk_status wrong(const sk_program *p, int pc, int buf, const char *what)
{
    return sk_fail(SK_EBUG,
                   "P10: rank %d: instruction %d (%s) %s '%s', which lies in the %s's memory",
                   p->rank, pc, sk_act_row_of(&p->insts.v[pc])->name, what, p->bufs.v[buf].name,
                   sk_placement_names[p->bufs.v[buf].placement]);
}

static bool lies(const sk_program *p, int buf, sk_placement placement)
{
    return buf < 0 || sk_buffer_own(p, buf) || p->bufs.v[buf].placement == placement;
}

typedef struct eye {
    const sk_program *p;
    int pc;
    sk_placement placement;
    sk_status st;
} eye;

static void look(void *ctx, int *buf, unsigned how)
{
    eye *e = ctx;
    if (e->st || how & SK_FREES || !how || lies(e->p, *buf, e->placement)) return;
    e->st = wrong(e->p, e->pc, *buf, how & SK_WRITES ? "writes" : "reads");
}

/* Only the optimizer and its sums may work in the host's memory instead of the device's. */
static sk_status one_memory(const sk_program *p, int pc)
{
    const sk_inst *in = &p->insts.v[pc];
    eye e = {p, pc, sk_inst_memory(p, in), SK_OK};
    sk_operands(p, in, look, &e);
    return e.st;
}

typedef struct watch {
    int *begun; /* by copy: 1 + the instruction that began it; 0: none */
    int under_way;
} watch;

static sk_status one_copy(const sk_program *p, watch *w, int pc)
{
    const sk_inst *in = &p->insts.v[pc];
    const sk_buffer *from = &p->bufs.v[in->in[0]], *to = &p->bufs.v[in->out[0]];
    bool begins = in->act == SK_DO_COPY;
    if (from->placement == to->placement || from->bytes != to->bytes)
        return wrong(p, pc, in->in[0], "copies within a memory, or to another size,");
    if (begins == (w->begun[in->copy] > 0))
        return wrong(p, pc, in->in[0], begins ? "copies again" : "waits for nothing of");
    if (!begins) {
        const sk_inst *b = &p->insts.v[w->begun[in->copy] - 1];
        if (b->in[0] != in->in[0] || b->out[0] != in->out[0])
            return wrong(p, pc, in->in[0], "waits for another copy than that of");
    }
    w->begun[in->copy] = begins ? pc + 1 : 0;
    w->under_way += begins ? 1 : -1;
    return SK_OK;
}

static sk_status all_home(const sk_program *p, const watch *w, int pc)
{
    if (!w->under_way) return SK_OK;
    return sk_fail(SK_EBUG,
                   "P10: rank %d: %d copies are still under way at instruction %d, where a "
                   "section ends",
                   p->rank, w->under_way, pc);
}

sk_status sk_verify_offload(const sk_program *p)
{
    sk_arena tmp = {0};
    watch w = {.begun = sk_many(&tmp, int, p->n_copies + 1)};
    sk_status st = SK_OK;
    for (int pc = 0; pc < p->insts.n && !st; pc++) {
        if (pc == p->n_train) st = all_home(p, &w, pc);
        if (!st) st = p->insts.v[pc].copy >= 0 ? one_copy(p, &w, pc) : one_memory(p, pc);
    }
    if (!st) st = all_home(p, &w, p->insts.n);
    sk_arena_end(&tmp);
    return st;
}
