/* verify_intervals.c - of P5: what is written in some updates only (inst.every) is read in these
 * only.  State of the optimizer, which KEEP writes, is apart: it lasts until it is written again.
 * And a call is waited for in the updates in which it is started. */
#include "program/acts.h"

typedef struct book {
    const sk_program *p;
    int *every; /* by root buffer: the longest interval of those that write it */
    int *start; /* by call: of its start */
    int pc;
    sk_status st;
} book;

static int every_of(const sk_inst *in) { return in->every > 1 ? in->every : 1; }

static bool lasts(const sk_buffer *b)
{
    return b->keep && (b->kind == SK_WEIGHTS || b->kind == SK_OPTIM);
}

static void see_write(void *ctx, int *buf, unsigned how)
{
    const book *x = ctx;
    int root = sk_buffer_root(x->p, *buf), every = every_of(&x->p->insts.v[x->pc]);
    if (how & SK_WRITES && !lasts(&x->p->bufs.v[root]) && every > x->every[root])
        x->every[root] = every;
}

static void see_read(void *ctx, int *buf, unsigned how)
{
    book *x = ctx;
    int every = x->every[sk_buffer_root(x->p, *buf)];
    const sk_inst *in = &x->p->insts.v[x->pc];
    if (x->st || !(how & SK_READS) || !every || every_of(in) % every == 0) return;
    x->st = sk_fail(SK_EBUG,
                    "P5: rank %d: instruction %d (%s) of every %d updates reads '%s', which is "
                    "written in every %d only",
                    x->p->rank, x->pc, sk_act_row_of(in)->name, every_of(in),
                    x->p->bufs.v[*buf].name, every);
}

static void one_inst(book *x)
{
    const sk_inst *in = &x->p->insts.v[x->pc];
    sk_operands(x->p, in, see_read, x);
    if (in->act == SK_DO_START) x->start[in->call] = every_of(in);
    bool waits = in->act == SK_DO_WAIT && x->start[in->call];
    if (waits && x->start[in->call] != every_of(in) && !x->st)
        x->st = sk_fail(SK_EBUG,
                        "P1: rank %d starts '%s' in every %d updates and waits for it in every %d",
                        x->p->rank, x->p->calls.v[in->call].what, x->start[in->call], every_of(in));
}

sk_status sk_verify_intervals(const sk_program *p)
{
    sk_arena tmp = {0};
    book x = {p, sk_many(&tmp, int, p->bufs.n + 1), sk_many(&tmp, int, p->calls.n + 1), 0, SK_OK};
    for (; x.pc < p->n_train; x.pc++) sk_operands(p, &p->insts.v[x.pc], see_write, &x);
    for (x.pc = 0; x.pc < p->n_train && !x.st; x.pc++) one_inst(&x);
    sk_arena_end(&tmp);
    return x.st;
}
