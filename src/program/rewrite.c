/* rewrite.c - the list of instructions, rewritten by a pass. */
#include "program/lowering.h"

#include <string.h>

sk_status sk_rewrite(sk_lowering *e, sk_rewriter *write, void *ctx)
{
    sk_program *p = e->p;
    int n = p->insts.n, n_train = p->n_train;
    sk_inst *old = sk_grow(e->tmp, NULL, 0, sizeof *old * (size_t)(n + 1));
    if (n) memcpy(old, p->insts.v, sizeof *old * (size_t)n);
    p->insts.n = 0;
    for (int pc = 0; pc < n;) {
        if (pc == n_train) p->n_train = p->insts.n;
        pc = write(ctx, old, pc);
        SK_TRY(sk_lower_short(e));
    }
    if (n == n_train) p->n_train = p->insts.n;
    return SK_OK;
}
