/* numbering.c - the numbering pass: buffers by their first use, calls and copies by their start.
 *
 * Passes create buffers and calls in an order of their own.  Behind this pass nothing of that order
 * is left: kept buffers come first, in the order in which they were planned; then all others, in
 * the order in which instructions first name them, results before operands; what no instruction
 * names is dropped.  So a pass can be rewritten without changing the program. */
#include "program/acts.h"
#include "program/lowering.h"

#include <string.h>

typedef struct numbering {
    sk_program *p;
    int *buf, *call;         /* old number -> new one, or -1 */
    int *old_buf, *old_call; /* new number -> old one */
    int n_bufs, n_calls;
} numbering;

static void name_buf(numbering *x, int old)
{
    if (old < 0 || x->buf[old] >= 0) return;
    name_buf(x, x->p->bufs.v[old].within);
    x->old_buf[x->n_bufs] = old;
    x->buf[old] = x->n_bufs++;
}

typedef struct naming {
    numbering *x;
    unsigned only; /* only operands with one of these flags; 0: all */
} naming;

static void name_operand(void *ctx, int *buf, unsigned how)
{
    const naming *n = ctx;
    if (!n->only || how & n->only) name_buf(n->x, *buf);
}

static void name_all(numbering *x)
{
    const sk_program *p = x->p;
    for (int i = 0; i < p->bufs.n; i++)
        if (p->bufs.v[i].keep) name_buf(x, i);
    for (int pc = 0; pc < p->insts.n; pc++) {
        const sk_inst *in = &p->insts.v[pc];
        if (in->call >= 0 && x->call[in->call] < 0) {
            x->old_call[x->n_calls] = in->call;
            x->call[in->call] = x->n_calls++;
        }
        sk_operands(p, in, name_operand, &(naming){x, SK_WRITES});
        sk_operands(p, in, name_operand, &(naming){x, 0});
    }
    name_buf(x, p->logits);
}

static void renumber(const numbering *x, int *buf)
{
    if (*buf >= 0) *buf = x->buf[*buf];
}

static void renumber_call(const numbering *x, sk_call_plan *c)
{
    for (int s = 0; s < c->n_segs; s++) {
        renumber(x, &c->segs[s].src);
        renumber(x, &c->segs[s].dst);
    }
    renumber(x, &c->workspace);
}

static void renumber_param(const numbering *x, sk_param_plan *q)
{
    renumber(x, &q->stored);
    renumber(x, &q->shard);
    renumber(x, &q->master);
    renumber(x, &q->grad);
    renumber(x, &q->grad_shard);
    renumber(x, &q->error);
    if (q->factor >= 0) renumber(x, &q->next_factor);
    renumber(x, &q->factor);
    renumber(x, &q->mean);
    renumber(x, &q->anchor);
    renumber(x, &q->outer_momentum);
    renumber(x, &q->change_error);
    renumber(x, &q->ema);
    renumber(x, &q->scalars);
    for (int s = 0; s < q->n_state; s++) renumber(x, &q->state[s]);
    for (int s = 0; s < q->n_matrix_state; s++) renumber(x, &q->matrix_state[s]);
}

static void renumber_insts(const numbering *x, int *copy)
{
    int n_copies = 0;
    for (int pc = 0; pc < x->p->insts.n; pc++) {
        sk_inst *in = &x->p->insts.v[pc];
        for (int i = 0; i < SK_MAX_OPERANDS; i++) renumber(x, &in->in[i]);
        for (int o = 0; o < SK_MAX_OUT; o++) renumber(x, &in->out[o]);
        renumber(x, &in->workspace);
        if (in->call >= 0) in->call = x->call[in->call];
        if (in->act == SK_DO_COPY) copy[in->copy] = n_copies++;
        if (in->copy >= 0) in->copy = copy[in->copy];
    }
}

/* The lists themselves, in their new order. */
static void reorder(const numbering *x, sk_arena *tmp)
{
    sk_program *p = x->p;
    sk_buffer *bufs = sk_many(tmp, sk_buffer, p->bufs.n + 1);
    sk_call_plan *calls = sk_many(tmp, sk_call_plan, p->calls.n + 1);
    memcpy(bufs, p->bufs.v, sizeof *bufs * (size_t)p->bufs.n);
    if (p->calls.n) memcpy(calls, p->calls.v, sizeof *calls * (size_t)p->calls.n);
    for (int i = 0; i < x->n_bufs; i++) {
        p->bufs.v[i] = bufs[x->old_buf[i]];
        renumber(x, &p->bufs.v[i].within);
    }
    for (int i = 0; i < x->n_calls; i++) {
        p->calls.v[i] = calls[x->old_call[i]];
        renumber_call(x, &p->calls.v[i]);
    }
    p->bufs.n = x->n_bufs;
    p->calls.n = x->n_calls;
}

void sk_number(sk_program *p)
{
    sk_arena tmp = {0};
    numbering x = {.p = p};
    x.buf = sk_many(&tmp, int, p->bufs.n + 1);
    x.old_buf = sk_many(&tmp, int, p->bufs.n + 1);
    x.call = sk_many(&tmp, int, p->calls.n + 1);
    x.old_call = sk_many(&tmp, int, p->calls.n + 1);
    memset(x.buf, -1, sizeof *x.buf * (size_t)p->bufs.n);
    memset(x.call, -1, sizeof *x.call * (size_t)p->calls.n);
    name_all(&x);
    reorder(&x, &tmp);
    renumber_insts(&x, sk_many(&tmp, int, p->n_copies + 1));
    for (int i = 0; i < sk_n_grads(p); i++) renumber_param(&x, &p->params.v[i]);
    for (int i = 0; i < p->memories.n; i++) renumber(&x, &p->memories.v[i]);
    for (int w = 0; w < SK_N_SUMS; w++)
        for (int i = 0; i < p->sums[w].n; i++) renumber(&x, &p->sums[w].buf[i]);
    if (p->stats) renumber(&x, &p->stats);
    renumber(&x, &p->logits);
    sk_arena_end(&tmp);
}
