/* fabric_call.c - one collective of a program, as calls of NCCL on a stream.
 *
 * A segment is seen as parts, one for each member, each `outer` runs that lie a step apart in the
 * whole.  Packed, the parts lie one behind the other, dense: part i begins outer * at(i) * inner
 * elements into the workspace, which for outer 1 is also where it begins in the whole, so that one
 * formula serves both. */
#include "coll/segment.h"
#include "program/workspaces.h"
#include "run/gpu/fabric_state.h"

typedef struct job {
    const sk_fabric *f;
    const sk_call_plan *c;
    const sk_fabric_comm *r;
    const sk_launch *l;
    int p, me;
    int64_t size; /* of an element */
} job;

typedef struct part { /* a segment, at its place */
    sk_seg s;
    char *src, *dst;
    char *given, *got; /* where they lie packed, or NULL */
} part;

static sk_nccl_op op_of(sk_reduce r)
{
    return r == SK_MAXIMUM   ? SK_NCCL_MAX
           : r == SK_MINIMUM ? SK_NCCL_MIN
           : r == SK_MEAN    ? SK_NCCL_MEAN
                             : SK_NCCL_SUM;
}

/* `units` blocks of `unit` bytes, each a step behind the one before. */
static sk_status copy(const job *j, char *to, int64_t to_step, const char *from, int64_t from_step,
                      int64_t unit, int64_t units)
{
    bool one = units == 1 || (to_step == unit && from_step == unit);
    if (!unit || !units || (to == from && (one || to_step == from_step))) return SK_OK;
    if (one) return sk_device_copy(j->f->d, to, from, (size_t)(unit * units), j->l->stream);
    return j->f->inst->gather(to, to_step, from, from_step, unit, units, j->l->stream);
}

/* --- parts of the whole: reduce-scatter, all-gather, gather, scatter --- */

/* Bytes of part i; where it begins in what is packed. */
static int64_t part_bytes(const job *j, const sk_seg *s, int i)
{
    return s->outer * sk_seg_rows(s, i, j->p).n * s->inner * j->size;
}
static int64_t part_at(const job *j, const sk_seg *s, int i)
{
    return s->outer * sk_seg_rows(s, i, j->p).at * s->inner * j->size;
}

/* Part i from the whole to where it is dense, or back. */
static sk_status copy_part(const job *j, const sk_seg *s, int i, char *whole, char *dense,
                           bool back)
{
    sk_rows rows = sk_seg_rows(s, i, j->p);
    int64_t row = s->inner * j->size, unit = rows.n * row, step = s->n * row;
    whole += rows.at * row;
    if (back) return copy(j, whole, step, dense, unit, unit, s->outer);
    return copy(j, dense, unit, whole, step, unit, s->outer);
}

/* From the whole to the workspace, or back: all parts but `but`. */
static sk_status copy_parts(const job *j, const sk_seg *s, char *whole, char *packed, int but,
                            bool back)
{
    for (int i = 0; i < j->p; i++)
        if (i != but) SK_TRY(copy_part(j, s, i, whole, packed + part_at(j, s, i), back));
    return SK_OK;
}

static sk_status scatter_sum(const job *j, const part *x)
{
    const sk_nccl *d = j->f->nccl;
    char *from = x->given ? x->given : x->src;
    sk_nccl_op op = op_of(j->c->reduce);
    if (sk_seg_uniform(&x->s, j->p))
        return d->scatter_sum(j->r->handle, from, x->dst, sk_seg_count(&x->s) / j->p, j->c->type,
                              op, j->l->stream);
    for (int i = 0; i < j->p; i++) {
        char *at = from + part_at(j, &x->s, i);
        int64_t n = part_bytes(j, &x->s, i) / j->size;
        if (n)
            SK_TRY(d->sum_to(j->r->handle, at, i == j->me ? x->dst : at, n, j->c->type, op, i,
                             j->l->stream));
    }
    return SK_OK;
}

static sk_status gather_all(const job *j, const part *x)
{
    const sk_nccl *d = j->f->nccl;
    char *to = x->got ? x->got : x->dst;
    if (sk_seg_uniform(&x->s, j->p))
        return d->gather(j->r->handle, x->src, to, sk_seg_count(&x->s) / j->p, j->c->type,
                         j->l->stream);
    for (int i = 0; i < j->p; i++) {
        char *at = to + part_at(j, &x->s, i);
        int64_t n = part_bytes(j, &x->s, i) / j->size;
        if (n)
            SK_TRY(d->spread(j->r->handle, i == j->me ? x->src : at, at, n, j->c->type, i,
                             j->l->stream));
    }
    return SK_OK;
}

static sk_status to_root(const job *j, const part *x)
{
    const sk_nccl *d = j->f->nccl;
    char *to = x->got ? x->got : x->dst;
    if (j->me != j->c->root) {
        int64_t bytes = part_bytes(j, &x->s, j->me);
        return bytes ? d->send(j->r->handle, x->src, bytes, j->c->root, j->l->stream) : SK_OK;
    }
    for (int i = 0; i < j->p; i++) {
        int64_t bytes = part_bytes(j, &x->s, i);
        if (i != j->me && bytes)
            SK_TRY(d->recv(j->r->handle, to + part_at(j, &x->s, i), bytes, i, j->l->stream));
    }
    return SK_OK;
}

static sk_status from_root(const job *j, const part *x)
{
    const sk_nccl *d = j->f->nccl;
    char *from = x->given ? x->given : x->src;
    if (j->me != j->c->root) {
        int64_t bytes = part_bytes(j, &x->s, j->me);
        return bytes ? d->recv(j->r->handle, x->dst, bytes, j->c->root, j->l->stream) : SK_OK;
    }
    for (int i = 0; i < j->p; i++) {
        int64_t bytes = part_bytes(j, &x->s, i);
        if (i != j->me && bytes)
            SK_TRY(d->send(j->r->handle, from + part_at(j, &x->s, i), bytes, i, j->l->stream));
    }
    return SK_OK;
}

/* --- blocks: all-to-all --- */

typedef struct strip { /* bytes */
    int64_t at, unit, units, step;
} strip;

/* One side of a block: either its runs are contiguous, or all are a step apart (coll/segment.h). */
static strip strip_of(const job *j, const sk_block *b, const sk_side *s)
{
    if (s->near == b->run)
        return (strip){s->at * j->size, b->runs * b->run * j->size, b->outer, s->far * j->size};
    return (strip){s->at * j->size, b->run * j->size, b->outer * b->runs, s->near * j->size};
}

/* What goes to every member, packed in their order; also what stays here, if arrivals are packed.
 */
static sk_status pack_blocks(const job *j, const part *x)
{
    char *at = x->given;
    for (int k = 0; k < j->p; k++) {
        sk_block b = sk_seg_block(&x->s, j->me, k, j->p);
        strip s = strip_of(j, &b, &b.src);
        if (k != j->me || x->got)
            SK_TRY(copy(j, at, s.unit, x->src + s.at, s.step, s.unit, s.units));
        at += sk_block_count(&b) * j->size;
    }
    return SK_OK;
}

static sk_status move_blocks(const job *j, const part *x)
{
    const sk_nccl *d = j->f->nccl;
    char *given = x->given, *got = x->got;
    for (int k = 0; k < j->p; k++) {
        sk_block to = sk_seg_block(&x->s, j->me, k, j->p),
                 from = sk_seg_block(&x->s, k, j->me, j->p);
        int64_t out = sk_block_count(&to) * j->size, in = sk_block_count(&from) * j->size;
        char *src = given ? given : x->src + to.src.at * j->size;
        char *dst = got ? got : x->dst + from.dst.at * j->size;
        if (k != j->me && out) SK_TRY(d->send(j->r->handle, src, out, k, j->l->stream));
        if (k != j->me && in) SK_TRY(d->recv(j->r->handle, dst, in, k, j->l->stream));
        given += given ? out : 0;
        got += got ? in : 0;
    }
    return SK_OK;
}

/* The block that stays here.  At least one side of it is dense: if neither is, it was packed with
 * the rest. */
static sk_status keep_block(const job *j, const part *x, const sk_block *b, const char *packed)
{
    strip from = strip_of(j, b, &b->src), to = strip_of(j, b, &b->dst);
    if (x->given && !x->got)
        return copy(j, x->dst + to.at, from.unit, x->src + from.at, from.step, from.unit,
                    from.units);
    return copy(j, x->dst + to.at, to.step, x->given ? packed : x->src + from.at, to.unit, to.unit,
                to.units);
}

static sk_status unpack_blocks(const job *j, const part *x)
{
    char *given = x->given, *got = x->got;
    for (int k = 0; k < j->p; k++) {
        sk_block from = sk_seg_block(&x->s, k, j->me, j->p),
                 to = sk_seg_block(&x->s, j->me, k, j->p);
        strip s = strip_of(j, &from, &from.dst);
        if (k == j->me) SK_TRY(keep_block(j, x, &from, given));
        else if (got) SK_TRY(copy(j, x->dst + s.at, s.step, got, s.unit, s.unit, s.units));
        given += given ? sk_block_count(&to) * j->size : 0;
        got += got ? sk_block_count(&from) * j->size : 0;
    }
    return SK_OK;
}

/* --- sums in the order of coll/call.h's tree: each member adds up a share --- */

static sk_status move_shares(const job *j, const part *x)
{
    const sk_nccl *d = j->f->nccl;
    char *from = x->given ? x->given : x->src;
    int64_t mine = sk_workspace_share(j->c, &x->s, j->me, j->p).n * j->size;
    for (int k = 0; k < j->p; k++) {
        sk_rows his = sk_workspace_share(j->c, &x->s, k, j->p);
        if (k == j->me) continue;
        if (his.n)
            SK_TRY(
                d->send(j->r->handle, from + his.at * j->size, his.n * j->size, k, j->l->stream));
        if (mine)
            SK_TRY(d->recv(j->r->handle, x->got + k * sk_workspace_stride(j->c, &x->s, j->me, j->p),
                           mine, k, j->l->stream));
    }
    return SK_OK;
}

static sk_status add_shares(const job *j, const part *x)
{
    sk_rows mine = sk_workspace_share(j->c, &x->s, j->me, j->p);
    char *from = x->given ? x->given : x->src;
    sk_tree_job t = {.to = x->dst + (j->c->kind == SK_ALLREDUCE ? mine.at * j->size : 0),
                     .mine = from + mine.at * j->size,
                     .terms = x->got,
                     .step = sk_workspace_stride(j->c, &x->s, j->me, j->p),
                     .me = j->me,
                     .members = j->p,
                     .n = mine.n,
                     .type = j->c->type,
                     .mean = j->c->reduce == SK_MEAN};
    return mine.n ? j->f->inst->tree(&t, j->l->stream) : SK_OK;
}

/* Of an all-reduce: the sums of each member go to all. */
static sk_status tell_shares(const job *j, const part *x)
{
    const sk_nccl *d = j->f->nccl;
    sk_rows mine = sk_workspace_share(j->c, &x->s, j->me, j->p);
    for (int k = 0; k < j->p; k++) {
        sk_rows his = sk_workspace_share(j->c, &x->s, k, j->p);
        if (k == j->me) continue;
        if (mine.n)
            SK_TRY(d->send(j->r->handle, x->dst + mine.at * j->size, mine.n * j->size, k,
                           j->l->stream));
        if (his.n)
            SK_TRY(
                d->recv(j->r->handle, x->dst + his.at * j->size, his.n * j->size, k, j->l->stream));
    }
    return SK_OK;
}

/* --- the three phases of a call: pack, move, unpack --- */

static sk_status pack(const job *j, const part *x)
{
    if (!x->given) return SK_OK;
    if (j->c->kind == SK_ALLTOALL) return pack_blocks(j, x);
    if (j->c->kind == SK_SCATTER && j->me != j->c->root) return SK_OK;
    return copy_parts(j, &x->s, x->src, x->given, j->c->kind == SK_SCATTER ? j->me : -1, false);
}

static sk_status move(const job *j, const part *x)
{
    const sk_nccl *d = j->f->nccl;
    const sk_call_plan *c = j->c;
    int64_t n = sk_seg_count(&x->s);
    bool root = j->me == c->root;
    if (!sk_seg_whole(&x->s)) return SK_OK;
    switch (c->kind) {
    case SK_ALLREDUCE:
        return d->sum(j->r->handle, x->src, x->dst, n, c->type, op_of(c->reduce), j->l->stream);
    case SK_REDUCE:
        return d->sum_to(j->r->handle, x->src, root ? x->dst : x->src, n, c->type, op_of(c->reduce),
                         c->root, j->l->stream);
    case SK_BROADCAST:
        return d->spread(j->r->handle, root ? x->src : x->dst, x->dst, n, c->type, c->root,
                         j->l->stream);
    case SK_REDUCE_SCATTER:
        return scatter_sum(j, x);
    case SK_ALLGATHER:
        return gather_all(j, x);
    case SK_GATHER:
        return to_root(j, x);
    case SK_SCATTER:
        return from_root(j, x);
    case SK_ALLTOALL:
        return move_blocks(j, x);
    default:
        return sk_fail(SK_EBUG, "nccl: '%s' is of kind %d", c->what, (int)c->kind);
    }
}

static sk_status unpack(const job *j, const part *x)
{
    sk_coll_kind kind = j->c->kind;
    bool root = j->me == j->c->root;
    if (kind == SK_ALLTOALL) return unpack_blocks(j, x);
    if (kind == SK_ALLGATHER && x->got) return copy_parts(j, &x->s, x->dst, x->got, -1, true);
    if (kind == SK_SCATTER && root) return copy_part(j, &x->s, j->me, x->src, x->dst, false);
    if (kind != SK_GATHER || !root) return SK_OK;
    SK_TRY(copy_part(j, &x->s, j->me, x->dst, x->src, true));
    return x->got ? copy_parts(j, &x->s, x->dst, x->got, j->me, true) : SK_OK;
}

/* One phase over all segments, each with its place in the workspace. */
static sk_status phase(const job *j, char *base, sk_status (*act)(const job *j, const part *x))
{
    const sk_buffer *b = j->f->p->bufs.v;
    char *workspace = j->l->workspace;
    for (int i = 0; i < j->c->n_segs; i++) {
        const sk_call_seg *g = &j->c->segs[i];
        part x = {
            .s = sk_call_shape(g), .src = base + b[g->src].offset, .dst = base + b[g->dst].offset};
        int64_t given = sk_workspace_send(j->c, &x.s, j->me, j->p),
                got = sk_workspace_recv(j->c, &x.s, j->me, j->p);
        if (given) x.given = workspace;
        if (got) x.got = workspace + given;
        SK_TRY(act(j, &x));
        workspace += given + got;
    }
    return SK_OK;
}

/* A group of one rank: the result is the input. */
static sk_status keep(const job *j, const part *x)
{
    int64_t bytes = sk_seg_whole(&x->s) * j->size;
    return copy(j, x->dst, bytes, x->src, bytes, bytes, 1);
}

/* The NCCL group must be ended also after a failure. */
static sk_status move_all(const job *j, char *base, sk_status (*act)(const job *j, const part *x))
{
    SK_TRY(j->f->nccl->begin());
    sk_status st = phase(j, base, act), end = j->f->nccl->end();
    SK_TRY(st);
    SK_TRY(sk_fabric_error(j->r, end, j->c->what));
    return sk_fabric_settle(j->f, j->r, j->c->what);
}

static sk_status sum_in_order(const job *j, char *base)
{
    SK_TRY(move_all(j, base, move_shares));
    SK_TRY(phase(j, base, add_shares));
    return j->c->kind == SK_ALLREDUCE ? move_all(j, base, tell_shares) : SK_OK;
}

static sk_status small_workspace(const job *j, int64_t need)
{
    return sk_fail(SK_EBUG, "nccl: '%s' needs a workspace of %lld bytes, %lld are there",
                   j->c->what, (long long)need, (long long)j->l->workspace_bytes);
}

sk_status sk_fabric_start(sk_fabric *f, int call, char *base, const sk_launch *l)
{
    const sk_call_plan *c = &f->p->calls.v[call];
    const sk_group *g = &f->p->groups[c->group];
    job j = {f, c, NULL, l, g->n, g->me, (int64_t)sk_dtype_size(c->type)};
    sk_assert(!f->gone && g->me >= 0);
    if (g->n == 1) return phase(&j, base, keep);
    j.r = &f->comms.v[f->comm_of[c->group]];
    int64_t need = sk_workspace_member(c, g->me, g->n);
    if (need > (int64_t)l->workspace_bytes) return small_workspace(&j, need);
    SK_TRY(f->nccl->mark(j.r->mark, call + 1, l->stream));
    if (need) SK_TRY(phase(&j, base, pack));
    if (c->ordered) SK_TRY(sum_in_order(&j, base));
    else {
        SK_TRY(move_all(&j, base, move));
        SK_TRY(phase(&j, base, unpack));
    }
    return f->nccl->mark(j.r->mark, -(call + 1), l->stream);
}
