/* split_rows.c - instructions in chunks along the batch.
 *
 * The batch is the first dim, so a chunk of it is a contiguous part of each buffer.  An op runs on
 * the parts of all operands that have the batch; what it sums over the batch is added to from chunk
 * to chunk.  A collective that does not touch the batch dim becomes one per chunk, on the same
 * parts of both of its buffers, and the bytes sent stay the same.
 *
 * In a region (sk_chunks.wide) wide results, and resharded copies for readers inside, have a buffer
 * of their own in every chunk; instructions that do not depend on chunks (the gather of a weight)
 * are written once, in the first chunk. */
#include "program/lowering.h"
#include "coll/segment.h"

/* The box of chunk i; returns where it begins, in elements. */
static int64_t cut_box(const sk_chunks *x, int chunk, sk_extent *box)
{
    int per = x->per ? x->per : 1;
    int64_t from, to, at;
    sk_cut(box->size[0], chunk / per, x->n / per, &from, &to);
    at = from * sk_box_count(box, 1, box->n);
    box->at[0] += from;
    box->size[0] = to - from;
    if (per == 1) return at;
    sk_cut(box->size[1], chunk % per, per, &from, &to);
    box->at[1] += from;
    box->size[1] = to - from;
    return at + from * sk_box_count(box, 2, box->n);
}

static int find_part(const sk_chunks *x, int whole, int chunk)
{
    for (int k = x->parts.n - 1; k >= 0; k--)
        if (x->parts.v[k].whole == whole && x->parts.v[k].chunk == chunk) return x->parts.v[k].buf;
    return -1;
}

/* A buffer of its own, or a part of the whole. */
static int make_part(sk_lowering *e, const sk_chunks *x, int whole, int chunk, bool own)
{
    sk_buffer w = e->p->bufs.v[whole];
    int64_t at = cut_box(x, chunk, &w.box) * (int64_t)sk_dtype_size(w.type);
    int part = sk_lower_buffer(e, w.name, w.tensor, w.kind, w.type, w.box);
    if (own) return part;
    e->p->bufs.v[part].within = whole;
    e->p->bufs.v[part].part_at = at;
    return part;
}

static int keep_part(sk_lowering *e, sk_chunks *x, int whole, int chunk, bool own)
{
    int part = find_part(x, whole, chunk);
    if (part >= 0) return part;
    part = make_part(e, x, whole, chunk, own);
    *sk_push(e->tmp, &x->parts) = (sk_part){whole, chunk, part};
    return part;
}

int sk_rows_part(sk_lowering *e, sk_chunks *x, int whole, int chunk)
{
    return keep_part(e, x, whole, chunk, false);
}

/* What chunks write is read as the same part.  For buffers written elsewhere, readers in a region
 * share one part, and readers in a run of overlap chunks have one each. */
static int read_part(sk_lowering *e, sk_chunks *x, int whole, int chunk)
{
    int part = find_part(x, whole, chunk);
    if (part >= 0) return part;
    return x->wide ? keep_part(e, x, whole, chunk, false) : make_part(e, x, whole, chunk, false);
}

static void split_op(sk_lowering *e, sk_chunks *x, sk_inst *in, int chunk, int step)
{
    const sk_node *n = in->node;
    char batch = e->g->batch;
    for (int i = 0; i < n->n_in; i++)
        if (n->letters_in[i][0] == batch) in->in[i] = read_part(e, x, in->in[i], chunk);
    for (int o = 0; o < n->n_out; o++) {
        bool own = x->wide && x->wide[n->out[o]->id];
        if (n->letters_out[o][0] == batch) in->out[o] = keep_part(e, x, in->out[o], chunk, own);
        else if (step) in->add |= 1u << o;
    }
    in->part = step;
    in->parts = x->n;
}

/* The same collective on parts: fewer rows in front of the dims that it splits. */
static int split_call(sk_lowering *e, sk_chunks *x, int call, int chunk)
{
    sk_program *p = e->p;
    sk_call_plan c = p->calls.v[call];
    sk_call_seg s = c.segs[0];
    sk_assert(c.n_segs == 1 && !c.n_then);
    int64_t *rows = c.kind == SK_ALLREDUCE ? &s.n : &s.outer;
    sk_extent whole = p->bufs.v[s.src].box;
    s.src = read_part(e, x, s.src, chunk);
    s.dst = keep_part(e, x, s.dst, chunk, x->wide != NULL);
    const sk_extent *part = &p->bufs.v[s.src].box;
    for (int d = 0; d < 2 && d < whole.n; d++)
        if (part->size[d] != whole.size[d]) *rows = *rows / whole.size[d] * part->size[d];
    c.segs = sk_new(p->arena, sk_call_seg);
    *c.segs = s;
    sk_seg shape = sk_call_shape(&s);
    c.elements = s.swap ? sk_seg_whole(&shape) / p->groups[c.group].n : s.outer * s.n * s.inner;
    c.flies = x->flies;
    *sk_push(e->tmp, &p->calls) = c;
    return p->calls.n - 1;
}

/* Does it move a buffer that chunks have written? */
static bool moves_part(const sk_lowering *e, const sk_chunks *x, const sk_inst *in, int chunk)
{
    if (in->act != SK_DO_START && in->act != SK_DO_SLICE) return false;
    int src = in->act == SK_DO_START ? e->p->calls.v[in->call].segs[0].src : in->in[0];
    return !x->wide || find_part(x, src, chunk) >= 0;
}

void sk_rows_inst(sk_lowering *e, sk_chunks *x, sk_inst in, int chunk, int step)
{
    if (in.act == SK_DO_OP) split_op(e, x, &in, chunk, step);
    else if (!moves_part(e, x, &in, chunk)) {
        if (step) return;
    } else if (in.act == SK_DO_START) in.call = split_call(e, x, in.call, chunk);
    else {
        in.in[0] = read_part(e, x, in.in[0], chunk);
        in.out[0] = keep_part(e, x, in.out[0], chunk, x->wide != NULL);
    }
    *sk_push(e->tmp, &e->p->insts) = in;
}

void sk_split_rows(sk_lowering *e, sk_chunks *x, const sk_inst *v, int n)
{
    for (int chunk = 0; chunk < x->n; chunk++) {
        if (x->wide) x->parts.n = 0;
        for (int k = 0; k < n; k++) sk_rows_inst(e, x, v[k], chunk, chunk);
    }
}
