/* verify_intervals.c - of P5: what is written in some updates only (inst.every), or in the steps of
 * a synchronisation (inst.sync), is read in these only.  Weights and state of the optimizer are
 * apart: they last until they are written again.  And a call is waited for in the steps in which it
 * is started. */
#include "program/acts.h"

typedef struct book {
    const sk_program *p;
    const sk_inst **writer; /* by root buffer: of those that write it, that of the fewest steps */
    const sk_inst **start;  /* by call */
    int pc;
    sk_status st;
} book;

/* Does the writer run whenever the reader does? */
static bool serves(const sk_inst *writer, const sk_inst *reader)
{
    int w = writer->every > 1 ? writer->every : 1, r = reader->every > 1 ? reader->every : 1;
    bool steps = writer->sync.steps < 2 ||
                 (writer->sync.steps == reader->sync.steps && writer->sync.at == reader->sync.at);
    return r % w == 0 && steps;
}

static bool lasts(const sk_buffer *b)
{
    return b->keep && (b->kind == SK_WEIGHTS || b->kind == SK_OPTIM);
}

static void see_write(void *ctx, int *buf, unsigned how)
{
    const book *x = ctx;
    const sk_inst *in = &x->p->insts.v[x->pc];
    int root = sk_buffer_root(x->p, *buf);
    const sk_inst **most = &x->writer[root];
    if (how & SK_WRITES && !lasts(&x->p->bufs.v[root]) && sk_inst_interval(in) > 1 &&
        (!*most || sk_inst_interval(in) > sk_inst_interval(*most)))
        *most = in;
}

static void see_read(void *ctx, int *buf, unsigned how)
{
    book *x = ctx;
    const sk_inst *in = &x->p->insts.v[x->pc], *by = x->writer[sk_buffer_root(x->p, *buf)];
    if (x->st || !(how & SK_READS) || !by || serves(by, in)) return;
    x->st = sk_fail(SK_EBUG,
                    "P5: rank %d: instruction %d (%s) of every %d updates reads '%s', which is "
                    "written in every %d only",
                    x->p->rank, x->pc, sk_act_row_of(in)->name, sk_inst_interval(in),
                    x->p->bufs.v[*buf].name, sk_inst_interval(by));
}

static void one_inst(book *x)
{
    const sk_inst *in = &x->p->insts.v[x->pc];
    sk_operands(x->p, in, see_read, x);
    if (in->act == SK_DO_START) x->start[in->call] = in;
    const sk_inst *start = in->act == SK_DO_WAIT ? x->start[in->call] : NULL;
    if (start && !sk_insts_due_alike(start, in) && !x->st)
        x->st = sk_fail(SK_EBUG,
                        "P1: rank %d starts '%s' in every %d updates and waits for it in every %d",
                        x->p->rank, x->p->calls.v[in->call].what, sk_inst_interval(start),
                        sk_inst_interval(in));
}

sk_status sk_verify_intervals(const sk_program *p)
{
    sk_arena tmp = {0};
    book x = {p, sk_many(&tmp, const sk_inst *, p->bufs.n + 1),
              sk_many(&tmp, const sk_inst *, p->calls.n + 1), 0, SK_OK};
    for (; x.pc < p->n_train; x.pc++) sk_operands(p, &p->insts.v[x.pc], see_write, &x);
    for (x.pc = 0; x.pc < p->n_train && !x.st; x.pc++) one_inst(&x);
    sk_arena_end(&tmp);
    return x.st;
}
