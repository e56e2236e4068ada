/* shard_levels.c - shards over two axes (FSDP over dp and cp): calls axis by axis.
 *
 * Each axis cuts dim 0 of what the axis before it has left, so that the shards of a group along the
 * finer axis lie side by side: together they are a shard of the coarser one.  A gather goes over
 * the finer axis first, into its place in the whole buffer, and then over the other one, in place.
 * A reduction goes the other way (grad_reduce.c).  Bytes are those of one call over the ranks of
 * both.
 *
 *     whole      [                0 .. 7                ]
 *     between    [       0 .. 3       ]                     after the finer axis
 *     shard      [ 0 1 ]                                    as the optimizer sees it */
#include "program/lowering.h"

int sk_lower_levels(const sk_lowering *e, const sk_param_plan *q, int axis[SK_SHARD_LEVELS])
{
    int n = 0;
    for (int k = e->l->mesh.n - 1; k >= 0 && sk_lower_sharded(e, SK_SHARD_STATE); k--) {
        int a = sk_layout_cutter(e->l, 0, k);
        bool cuts = sk_layout_shards(e->l, a) && e->l->mesh.size[a] > 1 &&
                    q->update.how[a] == SK_SPLIT && q->used.how[a] != SK_SPLIT;
        if (cuts) axis[n++] = a;
    }
    return n;
}

int sk_lower_between(sk_lowering *e, const sk_param_plan *q, int whole)
{
    int axis[SK_SHARD_LEVELS];
    sk_state s = q->update;
    sk_assert(sk_lower_levels(e, q, axis) == SK_SHARD_LEVELS);
    s.how[axis[0]] = SK_REPLICATE;
    const sk_buffer w = e->p->bufs.v[whole];
    int part = sk_lower_piece(e, q->tensor, w.kind, &s, -1);
    sk_buffer *b = &e->p->bufs.v[part];
    b->within = whole;
    b->part_at = (b->box.at[0] - w.box.at[0]) * sk_box_count(&b->box, 1, b->box.n) *
                 (int64_t)sk_dtype_size(b->type);
    return part;
}

static void join(sk_lowering *e, int *call, const sk_param_plan *q, int axis, int src, int dst,
                 int set, const char *what)
{
    const sk_extent box = e->p->bufs.v[dst].box;
    if (!*call) {
        *call = 1 + sk_lower_call(e, SK_ALLGATHER, SK_SUM, q->tensor->type, axis, what);
        e->p->calls.v[*call - 1].param_set = set;
    }
    sk_lower_rows(e, *call - 1, src, dst, &box, 0);
    sk_call_plan *c = &e->p->calls.v[*call - 1];
    if (set) c->segs[c->n_segs - 1].param = e->plan.param_of[q->tensor->id] + 1;
}

void sk_lower_join_levels(sk_lowering *e, sk_level_calls *c, const sk_param_plan *q, int shard,
                          int whole, int set, const char *what)
{
    int axis[SK_SHARD_LEVELS], n = sk_lower_levels(e, q, axis), src = shard;
    for (int k = 0; k < n; k++) {
        int dst = k + 1 < n ? sk_lower_between(e, q, whole) : whole;
        join(e, &c->call[k][axis[k]], q, axis[k], src, dst, set, what);
        src = dst;
    }
}

void sk_lower_start_level(sk_lowering *e, sk_level_calls *c, int level, sk_flies flies)
{
    for (int a = 0; a < e->l->mesh.n; a++) {
        if (c->call[level][a]) sk_lower_start(e, c->call[level][a] - 1, flies);
        c->call[level][a] = 0;
    }
}
