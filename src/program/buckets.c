/* buckets.c - the pass that reduces gradients in buckets, while the backward pass goes on.
 *
 * A gradient is complete behind the last instruction of the step that writes it; instructions of
 * the same unit (inst.unit: a run of overlap chunks, a region, the messages of a node's results)
 * stay together.  Complete gradients wait until a bucket is full, then they are reduced together;
 * the calls stay in flight until the tasks end (waits.c).  Gradients that are summed over other
 * axes have buckets of their own: under sequence parallelism norms are summed over two, and the
 * second call would wait, amid the backward pass, for matrices that went in the first.  Gradients
 * that are reduced in every task (grad_targets.c) are not handled here. */
#include "program/acts.h"
#include "program/lowering.h"

#include <string.h>

typedef struct bucket { /* gradients that are complete and not reduced yet */
    sk_grad_at *v;
    int n, cap;
    unsigned axes; /* over which they are summed */
    int64_t bytes;
} bucket;

typedef struct buckets {
    sk_lowering *e;
    int *param_of; /* by buffer: whose gradient it is, or -1 */
    int *last;     /* by parameter: the instruction that writes its gradient last, or -1 */
    int pc;
    struct {
        bucket *v;
        int n, cap;
    } all; /* by axes */
} buckets;

/* --- last writes --- */

static void see_write(void *ctx, int *buf, unsigned how)
{
    const buckets *x = ctx;
    int param = how & SK_WRITES ? x->param_of[sk_buffer_root(x->e->p, *buf)] : -1;
    if (param >= 0) x->last[param] = x->pc;
}

static void find_last_writes(buckets *x, int from, int to)
{
    sk_program *p = x->e->p;
    x->param_of = sk_many(x->e->tmp, int, p->bufs.n + 1);
    x->last = sk_many(x->e->tmp, int, sk_n_grads(p) + 1);
    memset(x->param_of, -1, sizeof *x->param_of * (size_t)p->bufs.n);
    memset(x->last, -1, sizeof *x->last * (size_t)sk_n_grads(p));
    for (int i = 0; i < sk_n_grads(p); i++)
        if (p->params.v[i].grad >= 0) x->param_of[p->params.v[i].grad] = i;
    for (x->pc = from; x->pc < to; x->pc++)
        if (p->insts.v[x->pc].task >= 0) sk_operands(p, &p->insts.v[x->pc], see_write, x);
}

/* --- buckets --- */

static void flush(buckets *x, bucket *b)
{
    sk_reduce_grads(x->e, b->v, b->n, SK_FLIES_ON);
    b->n = 0;
    b->bytes = 0;
}

static bucket *bucket_of(buckets *x, const sk_param_plan *q)
{
    const sk_state *made = &x->e->plan.grad_made[q->tensor->id];
    unsigned axes = 0;
    for (int a = 0; a < x->e->l->mesh.n; a++)
        axes |= (unsigned)(made->how[a] == SK_PARTIAL && x->e->l->mesh.size[a] > 1) << a;
    for (int i = 0; i < x->all.n; i++)
        if (x->all.v[i].axes == axes) return &x->all.v[i];
    bucket *b = sk_push(x->e->tmp, &x->all);
    *b = (bucket){.axes = axes};
    return b;
}

static void complete(buckets *x, int param)
{
    const sk_param_plan *q = &x->e->p->params.v[param];
    bucket *b = bucket_of(x, q);
    *sk_push(x->e->tmp, b) = (sk_grad_at){param, q->grad, q->grad_shard};
    b->bytes += sk_lower_logical(x->e, q->tensor);
    if (b->bytes >= sk_lower_bucket(x->e)) flush(x, b);
}

/* Where the tasks end: those of one axis first, which nothing waits for before the others. */
static void flush_all(buckets *x)
{
    for (int chains = 0; chains < 2; chains++)
        for (int i = 0; i < x->all.n; i++) {
            bucket *b = &x->all.v[i];
            bool chain = b->axes & (b->axes - 1);
            if (b->n && chain == chains) flush(x, b);
        }
}

typedef struct writer { /* gradients that an instruction completes, in the order of its results */
    buckets *x;
    int pc;
} writer;

static void see_complete(void *ctx, int *buf, unsigned how)
{
    const writer *w = ctx;
    buckets *x = w->x;
    int param = how & SK_WRITES ? x->param_of[sk_buffer_root(x->e->p, *buf)] : -1;
    if (param < 0 || x->last[param] != w->pc) return;
    x->last[param] = -1;
    complete(x, param);
}

/* All instructions of a unit are written: [from, to) of the old list. */
static void end_unit(buckets *x, const sk_inst *old, int from, int to)
{
    sk_lower_stand_at(x->e, &old[to - 1]);
    for (int pc = from; pc < to; pc++) {
        writer w = {x, pc};
        sk_operands(x->e->p, &old[pc], see_complete, &w);
    }
}

static int unit_end(const sk_inst *old, int pc, int to)
{
    int end = pc + 1;
    while (end < to && old[end].task == old[pc].task && old[end].unit == old[pc].unit) end++;
    return end;
}

static void train_section(buckets *x, const sk_inst *old, int to)
{
    sk_lowering *e = x->e;
    bool inside = false;
    int n_tasks = e->plan.tasks[true] ? e->plan.tasks[true][e->p->stage].n : 0;
    for (int pc = 0, end; pc < to; pc = end) {
        end = unit_end(old, pc, to);
        if (inside && old[pc].task < 0) { /* where the tasks end */
            sk_lower_stand_at(e, &e->p->insts.v[e->p->insts.n - 1]);
            e->at.task = n_tasks;
            flush_all(x);
        }
        inside = old[pc].task >= 0;
        for (int i = pc; i < end; i++) *sk_push(e->tmp, &e->p->insts) = old[i];
        if (inside) end_unit(x, old, pc, end);
    }
}

sk_status sk_fill_buckets(sk_lowering *e)
{
    sk_program *p = e->p;
    int n = p->insts.n, n_train = p->n_train;
    buckets x = {.e = e};
    if (!e->opts->optim || sk_lower_per_task(e)) return SK_OK;
    find_last_writes(&x, 0, n_train);
    sk_inst *old = sk_grow(e->tmp, NULL, 0, sizeof *old * (size_t)(n + 1));
    memcpy(old, p->insts.v, sizeof *old * (size_t)n);
    p->insts.n = 0;
    train_section(&x, old, n_train);
    p->n_train = p->insts.n;
    for (int pc = n_train; pc < n; pc++) *sk_push(e->tmp, &p->insts) = old[pc];
    return SK_OK;
}
