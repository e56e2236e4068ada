/* execute_stream.c - lists whose cells are index-value streams: a sparse all-reduce.
 *
 * What a member gives is packed once, at the start, into a stream for each chunk; what it gets is
 * made dense once, in the end.  Between, messages and sums are of streams (coll/sparse_stream.h),
 * so that bytes and work go with the rows that are there, and each sum becomes dense by itself
 * where that is shorter (SparCML, Renggli et al. 2019).  Any list will do. */
#include "coll/execution.h"
#include "coll/sparse_stream.h"
#include "coll/sum_kernels.h"

static int64_t elements(const sk_execution *e, int chunk)
{
    return sk_buffer_layout_span(&e->layout, chunk, 1) / e->layout.size;
}

static int64_t bytes_of(const sk_execution *e, const char *stream, int chunk)
{
    return sk_stream_bytes(e->call->type, stream, elements(e, chunk), e->layout.row);
}

static char *dense_chunk(const sk_comm *c, const sk_execution *e)
{
    return sk_exec_workspace(c->base, e->call) + e->layout.chunk;
}

/* The chunks that are mine of an operand: all, or my part. */
static void mine(const sk_execution *e, sk_space space, int *from, int *to)
{
    bool part = sk_buffer_layout_is_part(e->layout.kind, space);
    *from = part ? e->layout.me : 0;
    *to = part ? e->layout.me + 1 : e->layout.cells;
}

static char *cell_of(const sk_execution *e, sk_space space, int from, int i)
{
    return e->space[space] + (i - from) * e->layout.stride;
}

/* Where a chunk lies, or will, at the caller's; NULL: not in a row. */
static char *place_of(const sk_comm *c, const sk_execution *e, sk_space space, int from, int i)
{
    const sk_buffer_layout *s = &e->layout;
    const sk_seg *g = e->call->segs;
    if (!e->call->n_segs || !(space == SK_SRC ? s->src_row : s->dst_row)) return NULL;
    return c->base + (space == SK_SRC ? g->src : g->dst) + s->at[i] - s->at[from];
}

static sk_status too_many(sk_comm *c, const sk_execution *e)
{
    return sk_comm_report(
        c, sk_fail(SK_EBUG,
                   "call %llx: rank %d gives more than the %lld rows that are not zero for which "
                   "the streams of %s have room",
                   (long long)e->call->id, c->rank, (long long)e->call->rows,
                   e->schedule->coll->name));
}

sk_status sk_exec_streams_begin(sk_comm *c, sk_execution *e)
{
    const sk_buffer_layout *s = &e->layout;
    bool copied = sk_kind_rows[e->call->kind].copied;
    int from, to;
    mine(e, SK_SRC, &from, &to);
    for (int i = from; s->src_packed && i < to; i++) {
        char *x = place_of(c, e, SK_SRC, from, i), *cell = cell_of(e, SK_SRC, from, i);
        if (!x)
            sk_buffer_layout_pack_chunk(s, e->call->segs, e->call->n_segs, SK_SRC, SK_PACK, c->base,
                                        i, x = dense_chunk(c, e));
        int64_t n = sk_stream_pack_into(e->call->type, x, elements(e, i), s->row, cell, s->stride);
        if (n < 0) return too_many(c, e);
        if (copied) sk_exec_copy(cell_of(e, SK_DST, from, i), cell, n);
    }
    return SK_OK;
}

void sk_exec_streams_end(sk_comm *c, sk_execution *e)
{
    const sk_buffer_layout *s = &e->layout;
    const sk_coll_call *k = e->call;
    int from, to;
    mine(e, SK_DST, &from, &to);
    for (int i = from; s->dst_packed && i < to; i++) {
        const char *cell = cell_of(e, SK_DST, from, i);
        char *place = place_of(c, e, SK_DST, from, i), *x = place ? place : dense_chunk(c, e);
        int64_t n = elements(e, i);
        sk_status st = sk_stream_unpack(k->type, cell, bytes_of(e, cell, i), x, n, s->row);
        sk_assert(!st);
        if (k->reduce == SK_MEAN && sk_kind_sums(k->kind))
            sk_sum_divide(k->type, x, n, sk_kind_terms(k->kind, s->me, s->p));
        if (!place)
            sk_buffer_layout_pack_chunk(s, k->segs, k->n_segs, SK_DST, SK_UNPACK, c->base, i, x);
    }
}

/* --- messages --- */

const char *sk_exec_streams_out(const sk_execution *e, int step, int64_t *bytes)
{
    const sk_step *t = sk_exec_step(e, step);
    const char *first = sk_exec_cell(e, t->from);
    *bytes = bytes_of(e, first, t->chunk);
    if (t->n == 1) return first;
    char *to = sk_exec_staging(e, step, 0);
    *bytes = 0;
    for (int j = 0; j < t->n; j++) {
        const char *cell = sk_exec_cell(e, sk_cell_at(t->from, j));
        int64_t n = bytes_of(e, cell, t->chunk + j);
        sk_exec_copy(to + *bytes, cell, n);
        *bytes += n;
    }
    return to;
}

/* Streams of cells become one in another, which may be one of them. */
static bool merge_into(sk_execution *e, const void *const *from, int k, int chunk, sk_cell into,
                       char *staging)
{
    int64_t n = sk_stream_merge(e->call->type, sk_exec_reduce(e), k, from, elements(e, chunk),
                                e->layout.row, staging, e->layout.stride);
    if (n < 0) return false;
    sk_exec_copy(sk_exec_cell(e, into), staging, n);
    return true;
}

sk_status sk_exec_streams_in(sk_comm *c, sk_execution *e, int step, const char *from, int64_t bytes)
{
    const sk_step *t = sk_exec_step(e, step);
    for (int j = 0; j < t->n; j++) {
        int64_t n = 0;
        sk_cell into = sk_cell_at(t->into, j);
        sk_status st = sk_stream_check(e->call->type, from, bytes, elements(e, t->chunk + j),
                                       e->layout.row, &n);
        if (st) return sk_comm_report(c, st);
        if (n > e->layout.stride) return too_many(c, e);
        if (t->act == SK_STEP_RECV) sk_exec_copy(sk_exec_cell(e, into), from, n);
        else {
            const void *both[] = {sk_exec_cell(e, sk_cell_at(t->with, j)), from};
            if (!merge_into(e, both, 2, t->chunk + j, into, sk_exec_staging(e, step, t->n)))
                return too_many(c, e);
        }
        from += n;
        bytes -= n;
    }
    if (!bytes) return SK_OK;
    return sk_comm_report(c, sk_fail(SK_EPEER, "stream: %lld bytes behind the last of %d streams",
                                     (long long)bytes, t->n));
}

/* --- steps that need no other member --- */

/* What was announced to have room for n members has room for the sum of any of them. */
void sk_exec_streams_local(sk_execution *e, int step)
{
    const sk_step *t = sk_exec_step(e, step);
    if (t->act == SK_STEP_TREE) {
        for (int j = 0; j < t->k; j++)
            e->terms[j] = sk_exec_cell(e, j == t->own ? t->with : sk_cell_at(t->from, j));
        bool fits = merge_into(e, e->terms, t->k, t->chunk, t->into, sk_exec_staging(e, step, 0));
        sk_assert(fits);
        return;
    }
    for (int j = 0; j < t->n; j++) {
        const char *from = sk_exec_cell(e, sk_cell_at(t->from, j));
        sk_cell into = sk_cell_at(t->into, j);
        if (t->act == SK_STEP_COPY) {
            sk_exec_copy(sk_exec_cell(e, into), from, bytes_of(e, from, t->chunk + j));
            continue;
        }
        const void *both[] = {from, sk_exec_cell(e, sk_cell_at(t->with, j))};
        bool fits = merge_into(e, both, 2, t->chunk + j, into, sk_exec_staging(e, step, 0));
        sk_assert(fits);
    }
}
