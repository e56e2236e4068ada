/* shm.c - collectives directly in the heaps of one host.
 *
 * Shares of an all-reduce of S bytes on p members:
 *
 *     two-shot   member i sums its p-th of all elements (the segments laid end to end) over
 *                all sources and stores it to all destinations: 2S of traffic per core, 2pS of
 *                DRAM, the least possible while each member keeps a copy
 *     one-shot   below SK_ONE_SHOT elements: everybody sums everything for itself; no line that
 *                a peer owns is written.  The sum waits in scratch until all are done, since
 *                the destination may be the source that others still read
 *
 * Which of the two depends only on what members agree upon. */
#include "comm/inside.h"
#include "comm/sum.h"

enum { GRAIN = 32 };

/* --- the work --- */

/* The sources of segment s on all members, `from` elements in. */
static void aim_src(sk_comm *c, const sk_group *g, int s, int64_t from, size_t size)
{
    for (int i = 0; i < g->n; i++)
        c->src[i] = (char *)sk_heap_base(c->heaps, g->ranks[i]) + c->calls[i]->segs[s].src +
                    from * (int64_t)size;
}

static void aim_dst(sk_comm *c, const sk_group *g, int s, int64_t from, size_t size)
{
    for (int i = 0; i < g->n; i++)
        c->dst[i] = (char *)sk_heap_base(c->heaps, g->ranks[i]) + c->calls[i]->segs[s].dst +
                    from * (int64_t)size;
}

/* Slices in whole cache lines, so that two members rarely write to one. */
static int64_t share(int64_t total, int i, int p)
{
    return i == p ? total : sk_share(total, i, p) / GRAIN * GRAIN;
}

static void two_shot(sk_comm *c, const sk_group *g, const sk_coll_call *call, int64_t total)
{
    size_t size = sk_dtype_size(call->type);
    int64_t lo = share(total, g->me, g->n), hi = share(total, g->me + 1, g->n), at = 0;
    for (int s = 0; s < call->n_segs && at < hi; s++) {
        int64_t n = sk_seg_count(&call->segs[s]);
        int64_t from = lo > at ? lo - at : 0, to = hi - at < n ? hi - at : n;
        at += n;
        if (from >= to) continue;
        aim_src(c, g, s, from, size);
        aim_dst(c, g, s, from, size);
        sk_sum(call->type, call->reduce, g->n, c->src, g->n, c->dst, to - from);
    }
}

static void one_shot(sk_comm *c, const sk_group *g, const sk_coll_call *call)
{
    size_t size = sk_dtype_size(call->type);
    char *to = c->scratch;
    for (int s = 0; s < call->n_segs; s++) {
        int64_t n = sk_seg_count(&call->segs[s]);
        aim_src(c, g, s, 0, size);
        sk_sum(call->type, call->reduce, g->n, c->src, 1, (void *[]){to}, n);
        to += n * (int64_t)size;
    }
}

static void one_shot_end(sk_comm *c, const sk_coll_call *call)
{
    const char *from = c->scratch;
    for (int s = 0; s < call->n_segs; s++) {
        size_t n = (size_t)sk_seg_count(&call->segs[s]) * sk_dtype_size(call->type);
        memcpy(c->base + call->segs[s].dst, from, n);
        from += n;
    }
}

static void reduce_scatter(sk_comm *c, const sk_group *g, const sk_coll_call *call)
{
    size_t size = sk_dtype_size(call->type);
    for (int i = 0; i < call->n_segs; i++) {
        const sk_seg *s = &call->segs[i];
        int64_t lo = sk_share(s->n, g->me, g->n),
                run = (sk_share(s->n, g->me + 1, g->n) - lo) * s->inner;
        char *to = c->base + s->dst;
        for (int64_t o = 0; run && o < s->outer; o++, to += run * (int64_t)size) {
            aim_src(c, g, i, (o * s->n + lo) * s->inner, size);
            sk_sum(call->type, call->reduce, g->n, c->src, 1, (void *[]){to}, run);
        }
    }
}

/* Member k's piece of every segment into its place in mine. */
static void pull(sk_comm *c, const sk_group *g, const sk_coll_call *call, int k)
{
    int64_t size = (int64_t)sk_dtype_size(call->type);
    const char *heap = sk_heap_base(c->heaps, g->ranks[k]);
    for (int i = 0; i < call->n_segs; i++) {
        const sk_seg *s = &call->segs[i];
        int64_t lo = sk_share(s->n, k, g->n),
                run = (sk_share(s->n, k + 1, g->n) - lo) * s->inner * size;
        const char *from = heap + c->calls[k]->segs[i].src;
        char *to = c->base + s->dst + lo * s->inner * size;
        if (from == to || !run) continue; /* my own piece, in place */
        for (int64_t o = 0; o < s->outer; o++, from += run, to += s->n * s->inner * size)
            memcpy(to, from, (size_t)run);
    }
}

static void all_gather(sk_comm *c, const sk_group *g, const sk_coll_call *call)
{
    for (int i = 1; i <= g->n; i++) pull(c, g, call, (g->me + i) % g->n);
}

static bool is_one_shot(const sk_coll_call *call, int64_t total)
{
    return call->kind == SK_ALLREDUCE && total < SK_ONE_SHOT;
}

void sk_shm_work(sk_comm *c, const sk_group *g, const sk_coll_call *call)
{
    int64_t total = sk_call_count(call);
    if (call->kind == SK_REDUCE_SCATTER) reduce_scatter(c, g, call);
    else if (call->kind == SK_ALLGATHER) all_gather(c, g, call);
    else if (is_one_shot(call, total)) one_shot(c, g, call);
    else two_shot(c, g, call, total);
}

void sk_shm_end(sk_comm *c, const sk_coll_call *call)
{
    if (is_one_shot(call, sk_call_count(call))) one_shot_end(c, call);
}
