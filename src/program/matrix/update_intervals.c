/* update_intervals.c - the pass that finds what only instructions of some updates read
 * (inst.every).
 *
 * Kronecker factors of every n-th update (packed_factors.c) are made of copies, reshards and
 * recomputed activations that may have no other reader.  These run in the same updates then.  One
 * look from the end of a training step to its beginning finds them: an instruction runs as often as
 * its readers together, in every g-th update, where g is the greatest common divisor of theirs.
 *
 * The update itself is left as it is written: there ranks have different instructions for the same
 * call (distributed_update.c), and all must agree about calls. */
#include "program/acts.h"
#include "program/lowering.h"

typedef struct readers {
    const sk_program *p;
    int *every; /* by root buffer, of all that read it: 0: none so far, 1: every update */
    int reads;  /* of the instruction at hand; 1: every update */
    int wants;  /* of who reads what it writes; 0: nobody */
} readers;

static int together(int a, int b)
{
    while (b) {
        int rest = a % b;
        a = b, b = rest;
    }
    return a;
}

static void see_read(void *ctx, int *buf, unsigned how)
{
    const readers *x = ctx;
    int *every = &x->every[sk_buffer_root(x->p, *buf)];
    if (how & SK_READS) *every = together(*every, x->reads);
}

/* Sums that steps keep are read by others, but for those of extras. */
static void see_write(void *ctx, int *buf, unsigned how)
{
    readers *x = ctx;
    const sk_buffer *b = &x->p->bufs.v[sk_buffer_root(x->p, *buf)];
    bool extra = b->kind == SK_GRADS && b->tensor && b->tensor->role == SK_EXTRA;
    int every = x->every[sk_buffer_root(x->p, *buf)];
    if (how & SK_WRITES) x->wants = together(x->wants, b->keep && !extra ? 1 : every);
}

static bool pure(const sk_inst *in)
{
    if (in->act == SK_DO_OP) return !in->node->op->changes;
    return in->act == SK_DO_START || in->act == SK_DO_SLICE || in->act == SK_DO_PASTE ||
           in->act == SK_DO_ZERO || in->act == SK_DO_UNPACK;
}

static void one_inst(readers *x, sk_inst *in)
{
    x->wants = 0;
    if (in->every < 2 && in->task >= 0 && pure(in)) sk_operands(x->p, in, see_write, x);
    if (x->wants > 1) in->every = x->wants;
    x->reads = in->every > 1 ? in->every : 1;
    sk_operands(x->p, in, see_read, x);
}

sk_status sk_find_intervals(sk_lowering *e)
{
    sk_program *p = e->p;
    bool any = false;
    for (int i = p->params.n; i < sk_n_grads(p); i++) any |= p->params.v[i].every > 1;
    if (!any) return SK_OK;
    readers x = {.p = p, .every = sk_many(e->tmp, int, p->bufs.n + 1)};
    for (int pc = p->n_train - 1; pc >= 0; pc--) one_inst(&x, &p->insts.v[pc]);
    return SK_OK;
}
