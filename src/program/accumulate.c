/* accumulate.c - the pass that adds up gradients over micro-batches, where tasks reduce them.
 *
 * A task leaves each gradient in a buffer of its own, a leaf, and `lower` adds every leaf to the
 * accumulator of the parameter, by an ADD that names parameter and node (grad_targets.c).  This
 * pass makes the first leaf the accumulator itself and drops its ADD.  Behind an update the sum
 * starts from zero again.
 *
 * In deterministic order (base/reduction_blocks.h) micro-batches are the upper part of a tree of
 * sums, and each node that contributes to a parameter has a sum of its own.  The ADD of a leaf
 * becomes the ADDs of the subtrees that it completes; the sum ends in the leaf of the first
 * micro-batch.  Where the tasks end, and behind what replicas then sum while they are synchronous,
 * the sums of the nodes that share a parameter are added. */
#include "program/lowering.h"

#include <string.h>

typedef struct subtree { /* complete: from the micro-batch that is its index up to `end` */
    int end, buf;
} subtree;

typedef struct sum { /* of the gradient of a parameter; in deterministic order, of one node's */
    int param, node, buf;
    bool begun;
    int next;      /* of the same parameter: 1 + its index; 0: none */
    subtree *done; /* by micro-batch: subtrees that wait for their other half */
} sum;

typedef struct sums {
    sk_lowering *e;
    sk_program *p;
    bool ordered;
    struct {
        sum *v;
        int n, cap;
    } all;
    int *of_param; /* by parameter: 1 + the first of its sums; 0: none */
    int *bind;     /* by buffer: what it becomes */
    char *is_sum;  /* by buffer: a sum ends in it */
} sums;

/* The sum that an ADD belongs to. */
static sum *sum_of(sums *x, const sk_inst *add)
{
    int *link = &x->of_param[add->param];
    for (; *link; link = &x->all.v[*link - 1].next) {
        sum *s = &x->all.v[*link - 1];
        if (!x->ordered || s->node == add->node->id) return s;
    }
    *link = x->all.n + 1; /* before the list may move */
    sum *s = sk_push(x->e->tmp, &x->all);
    *s = (sum){.param = add->param, .node = add->node->id, .buf = -1};
    s->done = x->ordered ? sk_many(x->e->tmp, subtree, x->p->n_micro) : NULL;
    return s;
}

/* The leaf that holds the final sum: the accumulator itself, or, of a parameter's further nodes,
 * added to it where the tasks end. */
static void begin_sum(sums *x, sum *s, int leaf)
{
    bool first = x->of_param[s->param] - 1 == s - x->all.v;
    s->begun = true;
    s->buf = first ? x->p->params.v[s->param].grad_shard : leaf;
    x->bind[leaf] = s->buf;
    x->is_sum[s->buf] = 1;
}

static void put_add(sums *x, const sk_inst *place, int param, int from, int to)
{
    sk_inst in = sk_inst_like(place, SK_DO_ADD);
    in.every = x->p->params.v[param].every;
    in.in[0] = from;
    in.out[0] = to;
    *sk_push(x->e->tmp, &x->p->insts) = in;
}

/* --- deterministic order --- */

/* Of n micro-batches in a tree: the parent of [*lo, *hi) in place; returns where its second half
 * begins. */
static int parent(int n, int *lo, int *hi)
{
    int from = 0, to = n;
    for (;;) {
        int left = 1;
        while (2 * left < to - from) left *= 2;
        int mid = from + left;
        if ((*lo == from && *hi == mid) || (*lo == mid && *hi == to)) {
            *lo = from, *hi = to;
            return mid;
        }
        if (*lo < mid) to = mid;
        else from = mid;
    }
}

/* Adds a leaf to the subtrees that it completes, upwards; a subtree whose other half is not there
 * yet waits. */
static void climb(sums *x, sum *s, const sk_inst *add)
{
    int lo = add->micro, hi = lo + 1, n = x->p->n_micro, buf = add->in[0];
    while (hi - lo < n) {
        int from = lo, to = hi, mid = parent(n, &from, &to), other = lo == from ? mid : from;
        if (s->done[other].end != (other == from ? mid : to)) {
            s->done[lo] = (subtree){hi, buf};
            return;
        }
        int left = other == from ? s->done[other].buf : buf,
            right = other == from ? buf : s->done[other].buf;
        put_add(x, add, s->param, right, left);
        buf = left, lo = from, hi = to;
    }
}

/* What replicas sum before they are on their own (sk_reduce_together): of a parameter with several
 * nodes each sum by itself, as where ranks reduce every leaf. */
static bool is_together(const sk_inst *in) { return in->act == SK_DO_START && in->sync.until; }

static void sum_nodes(sums *x, int call)
{
    int n = x->p->calls.v[call].n_segs;
    for (int i = 0; i < x->all.n; i++) {
        const sum *s = &x->all.v[i];
        int to = x->p->params.v[s->param].grad_shard;
        const sk_extent *box = &x->p->bufs.v[to].box;
        for (int k = 0; k < n && s->buf != to; k++)
            if (x->p->calls.v[call].segs[k].src == to)
                sk_lower_seg(x->e, call, s->buf, s->buf, 1, sk_box_count(box, 0, box->n), 1);
    }
}

/* Adds what several nodes of this stage contributed to one parameter. */
static void join_nodes(sums *x)
{
    sk_inst place = x->p->insts.v[x->p->insts.n - 1];
    place.task = -1;
    for (int i = 0; i < x->all.n; i++) {
        const sum *s = &x->all.v[i];
        int to = x->p->params.v[s->param].grad_shard;
        if (s->buf != to) put_add(x, &place, s->param, s->buf, to);
    }
}

/* --- the list --- */

static void one_inst(sums *x, const sk_inst *in)
{
    if (in->act == SK_DO_UPDATE && in->task >= 0 && x->of_param[in->param])
        x->all.v[x->of_param[in->param] - 1].begun = false;
    if (in->act != SK_DO_ADD || in->param < 0) {
        *sk_push(x->e->tmp, &x->p->insts) = *in;
        return;
    }
    sum *s = sum_of(x, in);
    bool first = x->ordered ? in->micro == 0 : !s->begun;
    if (first) begin_sum(x, s, in->in[0]);
    if (x->ordered) climb(x, s, in);
    else if (!first) put_add(x, in, in->param, in->in[0], in->out[0]);
}

/* --- leaves that are accumulators --- */

static void rebind(const sums *x, int *buf)
{
    if (*buf >= 0) *buf = x->bind[*buf];
}

/* Parts of a leaf are parts of the accumulator that it became, and take its name. */
static void rebind_parts(sums *x)
{
    for (int i = 0; i < x->p->bufs.n; i++) {
        sk_buffer *b = &x->p->bufs.v[i];
        int whole = b->within;
        if (whole < 0 || x->bind[whole] == whole) continue;
        b->within = x->bind[whole];
        b->name = x->p->bufs.v[b->within].name;
    }
}

/* Buffers that a sum or a part of it is encoded to, or decoded from, take its name. */
static void name_code(sums *x, int code, int of, const sk_codec *codec)
{
    if (!x->is_sum[sk_buffer_root(x->p, of)]) return;
    x->p->bufs.v[code].name = sk_print(x->p->arena, "%s.%s", x->p->bufs.v[of].name, codec->name);
}

static void rebind_all(sums *x)
{
    rebind_parts(x);
    for (int pc = 0; pc < x->p->insts.n; pc++) {
        sk_inst *in = &x->p->insts.v[pc];
        for (int i = 0; i < SK_MAX_OPERANDS; i++) rebind(x, &in->in[i]);
        for (int o = 0; o < SK_MAX_OUT; o++) rebind(x, &in->out[o]);
        if (in->act == SK_DO_ENCODE) name_code(x, in->out[0], in->in[0], in->codec);
    }
    for (int i = 0; i < x->p->calls.n; i++) {
        sk_call_plan *c = &x->p->calls.v[i];
        for (int s = 0; s < c->n_segs; s++) {
            rebind(x, &c->segs[s].src);
            rebind(x, &c->segs[s].dst);
        }
        for (int k = 0; k < c->n_then; k++) {
            rebind(x, &c->then[k].from);
            rebind(x, &c->then[k].to);
            if (c->then[k].act == SK_DO_DECODE)
                name_code(x, c->then[k].from, c->then[k].to, c->then[k].codec);
        }
    }
}

sk_status sk_accumulate(sk_lowering *e)
{
    sk_program *p = e->p;
    int n = p->insts.n, n_train = p->n_train;
    if (!sk_lower_per_task(e)) return SK_OK;
    sums x = {.e = e, .p = p, .ordered = e->l->canonical};
    x.of_param = sk_many(e->tmp, int, sk_n_grads(p) + 1);
    x.bind = sk_many(e->tmp, int, p->bufs.n + 1);
    x.is_sum = sk_many(e->tmp, char, p->bufs.n + 1);
    for (int i = 0; i < p->bufs.n; i++) x.bind[i] = i;
    sk_inst *old = sk_grow(e->tmp, NULL, 0, sizeof *old * (size_t)(n + 1));
    memcpy(old, p->insts.v, sizeof *old * (size_t)n);
    p->insts.n = 0;
    bool to_join = false;
    for (int pc = 0; pc < n_train; pc++) {
        to_join |= pc && old[pc].task < 0 && old[pc - 1].task >= 0;
        if (to_join && is_together(&old[pc])) sum_nodes(&x, old[pc].call);
        else if (to_join) join_nodes(&x), to_join = false;
        one_inst(&x, &old[pc]);
    }
    p->n_train = p->insts.n;
    for (int pc = n_train; pc < n; pc++) *sk_push(e->tmp, &p->insts) = old[pc];
    rebind_all(&x);
    return SK_OK;
}
