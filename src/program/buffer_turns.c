/* buffer_turns.c - buffers that are never used in one step: what fragments of streaming DiLoCo send
 * (program/sync.h), each fragment in steps of its own. */
#include "program/acts.h"

#include <stdlib.h>
#include <string.h>

typedef struct seen {
    const sk_program *p;
    const sk_inst *in;
    sk_step_due *due;
    char *used;
} seen;

/* Of parts too: they lie in the memory of the whole. */
static void see(void *ctx, int *buf, unsigned how)
{
    const seen *x = ctx;
    int root = sk_buffer_root(x->p, *buf);
    sk_step_due *due = &x->due[root], now = x->in->sync;
    (void)how;
    if (!x->used[root]) *due = now.steps > 1 && !now.until ? now : (sk_step_due){0};
    else if (due->steps != now.steps || due->at != now.at) *due = (sk_step_due){0};
    x->used[root] = 1;
}

sk_step_due *sk_buffer_turns(const sk_program *p, sk_arena *a)
{
    seen x = {p, NULL, sk_many(a, sk_step_due, p->bufs.n + 1), sk_many(a, char, p->bufs.n + 1)};
    for (int pc = 0; pc < p->insts.n; pc++) {
        x.in = &p->insts.v[pc];
        sk_operands(p, x.in, see, &x);
    }
    return x.due;
}

bool sk_turns_differ(const sk_step_due *x, const sk_step_due *y)
{
    return x->steps > 1 && x->steps == y->steps && x->at != y->at;
}
