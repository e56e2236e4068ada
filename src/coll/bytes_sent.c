/* bytes_sent.c - bytes that must leave a member for a call, where what moves them cannot be looked
 * at. */
#include "coll/collectives.h"

/* Elements of a segment; the least that any way of doing it needs. */
static int64_t of_segment(const sk_group *g, const sk_coll_call *call, const sk_seg *s)
{
    int64_t all = sk_seg_count(s), mine = s->outer * sk_seg_rows(s, g->me, g->n).n * s->inner;
    bool root = g->me == call->root;
    switch (call->kind) {
    case SK_ALLREDUCE: /* others' parts to them, then the sum of mine to all */
        return all - mine + mine * (g->n - 1);
    case SK_REDUCE_SCATTER:
        return all - mine;
    case SK_ALLGATHER:
        return mine * (g->n - 1);
    case SK_BROADCAST: /* a chain: all but the last hand it on */
        return (g->me + g->n - call->root) % g->n == g->n - 1 ? 0 : all;
    case SK_SCAN: /* a chain, too: the least; doubling sends more */
        return g->me == g->n - 1 ? 0 : all;
    case SK_REDUCE:
        return root ? 0 : all;
    case SK_GATHER:
        return root ? 0 : mine;
    case SK_SCATTER:
        return root ? all - mine : 0;
    case SK_ALLTOALL: {
        sk_block own = sk_seg_block(s, g->me, g->me, g->n);
        return s->swap ? sk_seg_gives(s, g->me, g->n) - sk_block_count(&own) : all - mine;
    }
    default:
        return 0;
    }
}

/* All-to-all-v: how much was known only then. */
static int64_t by_counts(const sk_comm *c, const sk_group *g, const sk_coll_call *call)
{
    const int64_t *counts = (const int64_t *)(const void *)(c->base + call->counts);
    int64_t sum = 0;
    for (int s = 0; s < call->n_segs; s++)
        for (int i = 0; i < g->n; i++)
            if (i != g->me) sum += counts[i] * call->segs[s].inner;
    return sum;
}

int64_t sk_call_bytes_sent(const sk_comm *c, const sk_group *g, const sk_coll_call *call)
{
    int64_t sum = 0;
    if (call->common || g->n < 2) return 0;
    if (call->kind == SK_ALLTOALLV) sum = by_counts(c, g, call);
    for (int i = 0; i < call->n_segs; i++) sum += of_segment(g, call, &call->segs[i]);
    return sum * (int64_t)sk_dtype_size(call->type);
}
