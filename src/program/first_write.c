/* first_write.c - the pass that finds the first contribution to every sum.
 *
 * Passes before it let every node add to gradients, to the sums of the graph and to the gradients
 * of a task.  The first instruction of a section that writes a place of such a buffer does not add:
 * it sets the place, so that nothing has to be zeroed.  (Empty buffers are left out.) */
#include "program/lowering.h"

#include <string.h>

typedef struct first {
    sk_program *p;
    sk_arena *tmp;
    struct written { /* places of one root buffer that were written in this section */
        int64_t *v;  /* pairs: begin, end */
        int n, cap;
    } * of;
} first;

/* Was some of this range written before?  Marks all of it as written. */
static bool written(first *x, int buf)
{
    struct written *w = &x->of[sk_buffer_root(x->p, buf)];
    int64_t from = sk_buffer_begin(x->p, buf), to = from + x->p->bufs.v[buf].bytes;
    for (int i = 0; i < w->n; i += 2)
        if (from < w->v[i + 1] && w->v[i] < to) return true;
    *sk_push(x->tmp, w) = from;
    *sk_push(x->tmp, w) = to;
    return false;
}

/* An update consumes a gradient: the next contribution starts a new sum. */
static sk_status one_inst(first *x, sk_inst *in)
{
    if (in->act == SK_DO_UPDATE) x->of[sk_buffer_root(x->p, in->in[0])].n = 0;
    for (int o = 0; in->act == SK_DO_OP && o < in->node->n_out; o++) {
        if (!in->node->into[o]) continue;
        bool adds = in->add >> o & 1, again = written(x, in->out[o]);
        if (adds && !again) in->add &= ~(1u << o);
        if (adds && again && !(in->node->op->flags & SK_OP_ADDS))
            return sk_fail(SK_EBUG, "op '%s' must add to '%s' and cannot", in->node->op->name,
                           in->node->into[o]->name);
    }
    return SK_OK;
}

sk_status sk_find_first_writes(sk_lowering *e)
{
    first x = {e->p, e->tmp, sk_many(e->tmp, struct written, e->p->bufs.n + 1)};
    for (int pc = 0; pc < e->p->insts.n; pc++) {
        if (pc == e->p->n_train) memset(x.of, 0, sizeof *x.of * (size_t)e->p->bufs.n);
        SK_TRY(one_inst(&x, &e->p->insts.v[pc]));
    }
    return SK_OK;
}
