/* split_rows.c - instructions in chunks along the batch.
 *
 * The batch is the first dim, so a chunk of it is a part of each buffer that lies in line.  An op
 * runs on the parts of all operands that have the batch; what it sums over the batch is added to
 * from chunk to chunk.  A collective that leaves the batch alone becomes one a chunk, on like parts
 * of both of its buffers, and no byte more is sent. */
#include "program/emit.h"

static int find_part(const sk_chunks *x, int whole, int chunk)
{
    for (int k = 0; k < x->parts.n; k++)
        if (x->parts.v[k].whole == whole) return x->parts.v[k].first + chunk;
    return -1;
}

/* What chunks write is read as the same parts (verify counts on that); what others wrote has parts
 * of its own for each reader. */
static int read_part(sk_emit *e, const sk_chunks *x, int whole, int chunk)
{
    int part = find_part(x, whole, chunk);
    return part >= 0 ? part : sk_emit_part(e, whole, chunk, x->n);
}

static int write_part(sk_emit *e, sk_chunks *x, int whole, int chunk)
{
    if (find_part(x, whole, chunk) < 0) {
        *sk_push(e->tmp, &x->parts) = (sk_cuts){whole, e->p->bufs.n, x->n};
        for (int k = 0; k < x->n; k++) sk_emit_part(e, whole, k, x->n);
    }
    return find_part(x, whole, chunk);
}

static void split_op(sk_emit *e, sk_chunks *x, sk_inst *in, int chunk)
{
    const sk_node *n = in->node;
    char batch = e->g->batch;
    for (int i = 0; i < n->n_in; i++)
        if (n->letters_in[i][0] == batch) in->in[i] = read_part(e, x, in->in[i], chunk);
    for (int o = 0; o < n->n_out; o++) {
        if (n->letters_out[o][0] == batch) in->out[o] = write_part(e, x, in->out[o], chunk);
        else if (chunk) in->add |= 1u << o;
    }
    in->turn = chunk;
    in->turns = x->n;
}

/* The same collective on parts: fewer rows in front of the dim that it cuts. */
static int split_call(sk_emit *e, sk_chunks *x, int call, int chunk)
{
    sk_program *p = e->p;
    sk_call_plan c = p->calls.v[call];
    sk_call_seg s = c.segs[0];
    sk_assert(c.by_rows && c.n_segs == 1 && !c.n_then);
    int64_t *rows = c.kind == SK_ALLREDUCE ? &s.n : &s.outer;
    int64_t whole = p->bufs.v[s.src].box.size[0];
    s.dst = write_part(e, x, s.dst, chunk);
    s.src = read_part(e, x, s.src, chunk);
    *rows = *rows / whole * p->bufs.v[s.src].box.size[0];
    c.segs = sk_new(p->arena, sk_call_seg);
    *c.segs = s;
    c.elements = s.outer * s.n * s.inner;
    c.flies = x->flies;
    *sk_push(e->tmp, &p->calls) = c;
    return p->calls.n - 1;
}

static void split_inst(sk_emit *e, sk_chunks *x, sk_inst in, int chunk)
{
    if (in.act == SK_DO_OP) split_op(e, x, &in, chunk);
    else if (in.act == SK_DO_START) in.call = split_call(e, x, in.call, chunk);
    else {
        sk_assert(in.act == SK_DO_SLICE);
        in.in[0] = read_part(e, x, in.in[0], chunk);
        in.out[0] = write_part(e, x, in.out[0], chunk);
    }
    *sk_push(e->tmp, &e->p->insts) = in;
}

void sk_split_rows(sk_emit *e, sk_chunks *x, const sk_inst *v, int n)
{
    for (int chunk = 0; chunk < x->n; chunk++)
        for (int k = 0; k < n; k++) split_inst(e, x, v[k], chunk);
}
