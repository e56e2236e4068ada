/* check_call.c - is a call sound?  Asked once for each call, before anything is done with it. */
#include "coll/collectives.h"
#include "coll/sum_kernels.h"

int64_t sk_call_count(const sk_coll_call *call)
{
    int64_t n = 0;
    for (int i = 0; i < call->n_segs; i++) n += sk_seg_whole(&call->segs[i]);
    return n;
}

/* Elements that this member has of an operand of a segment. */
static int64_t extent(const sk_group *g, const sk_coll_call *call, const sk_seg *s, bool out)
{
    const sk_kind_row *row = &sk_kind_rows[call->kind];
    int64_t all = sk_seg_count(s);
    switch (out ? row->dst : row->src) {
    case SK_OPERAND_PART:
        return s->outer * sk_seg_rows(s, g->me, g->n).n * s->inner;
    case SK_OPERAND_ROOT:
        return g->me == call->root ? all : 0;
    case SK_OPERAND_BLOCKS:
        if (row->counts) return all * g->n;
        return out ? sk_seg_gets(s, g->me, g->n) : sk_seg_gives(s, g->me, g->n);
    default:
        return all;
    }
}

/* May dst lie there?  The same place, or the part at its place inside the whole, where call.h says
 * so; otherwise apart. */
static bool apart(const sk_group *g, const sk_coll_call *call, const sk_seg *s, int64_t src_n,
                  int64_t dst_n)
{
    const sk_kind_row *row = &sk_kind_rows[call->kind];
    int64_t size = (int64_t)sk_dtype_size(call->type);
    int64_t before = sk_seg_rows(s, g->me, g->n).at * s->inner * size;
    if (!src_n || !dst_n || s->src + src_n * size <= s->dst || s->dst + dst_n * size <= s->src)
        return true;
    if (row->src == SK_OPERAND_BLOCKS) return false;
    if (row->dst == SK_OPERAND_PART) return s->outer == 1 && s->dst == s->src + before;
    if (row->src == SK_OPERAND_PART) return s->outer == 1 && s->src == s->dst + before;
    return s->src == s->dst;
}

/* Can everything be counted, p + 1 times over? */
static bool sizes_good(const sk_seg *s, int p)
{
    int64_t sizes[] = {s->outer, s->n, s->inner, s->swap ? s->mid : 1, s->swap ? s->n2 : 1};
    int64_t all = 1;
    for (int i = 0; i < 5; i++) {
        if (sizes[i] < 0 || sizes[i] > INT64_MAX / (p + 1)) return false;
        if (__builtin_mul_overflow(all, sizes[i], &all)) return false;
    }
    return all <= INT64_MAX / 16 / (p + 1);
}

static bool seg_good(const sk_comm *c, const sk_group *g, const sk_coll_call *call, int i)
{
    const sk_seg *s = &call->segs[i];
    size_t size = sk_dtype_size(call->type);
    if (!sizes_good(s, g->n)) return false;
    int64_t src = extent(g, call, s, false), dst = extent(g, call, s, true);
    return (!src || sk_in_heap(c, s->src, src, size)) &&
           (!dst || sk_in_heap(c, s->dst, dst, size)) && apart(g, call, s, src, dst);
}

bool sk_call_executes(const sk_coll_call *call)
{
    const sk_coll *a = call->algorithm < 0 ? NULL : sk_coll_parts[call->algorithm];
    return a && !(a->native && a->build);
}

static sk_status check_fields(const sk_comm *c, const sk_group_state *m, const sk_coll_call *call)
{
    long long id = (long long)call->id;
    int parts = 0;
    while (sk_coll_parts[parts]) parts++;
    if (call->kind >= SK_N_COLLS || call->reduce >= SK_N_REDUCES || call->type >= SK_N_DTYPES ||
        call->root < 0 || call->root >= m->group.n || call->algorithm >= parts)
        return sk_fail(SK_EBUG, "call %llx: kind %d, reduction %d, type %d, root %d, algorithm %d",
                       id, call->kind, call->reduce, call->type, call->root, call->algorithm);
    const sk_coll *a = call->algorithm < 0 ? NULL : sk_coll_parts[call->algorithm];
    if (sk_kind_sums(call->kind) && !sk_sum_can(call->type, call->reduce) && !(a && a->adasum))
        return sk_fail(SK_EBUG, "call %llx: %s with reduction %d is not for %s", id,
                       sk_coll_names[call->kind], call->reduce, sk_dtype_name(call->type));
    if (sk_kind_rows[call->kind].counts && !sk_in_heap(c, call->counts, 2 * m->group.n, 8))
        return sk_fail(SK_EBUG, "call %llx: its counts are not in the heap of rank %d", id,
                       c->rank);
    if ((!m->here && !sk_call_executes(call)) || (a && a->native && !a->build && !c->wire))
        return sk_fail(SK_EBUG,
                       "call %llx: group %d spans hosts or its algorithm needs a wire: there is "
                       "none, or the algorithm is not for it",
                       id, call->group);
    return SK_OK;
}

/* Does a common call gather what lies in one memory on all members? */
static sk_status check_common(const sk_comm *c, const sk_group_state *m, const sk_coll_call *call)
{
    const sk_group *g = &m->group;
    int64_t size = (int64_t)sk_dtype_size(call->type);
    bool good = call->kind == SK_ALLGATHER && m->here && !sk_call_executes(call);
    if (!call->common) return SK_OK;
    for (int i = 0; good && i < call->n_segs; i++) {
        const sk_seg *s = &call->segs[i];
        good = s->outer == 1 &&
               s->src == s->dst + sk_seg_rows(s, g->me, g->n).at * s->inner * size &&
               sk_heaps_same(c->heaps, g->ranks, g->n, s->dst + sk_seg_count(s) * size);
    }
    if (good) return SK_OK;
    return sk_fail(
        SK_EBUG,
        "call %llx: %s on group %d is common, but not an all-gather in place of what its "
        "%d members have in one memory",
        (long long)call->id, sk_coll_names[call->kind], call->group, g->n);
}

static sk_status check_cut(const sk_coll_call *call, int i, int64_t n, const sk_grid *g)
{
    if (sk_grid_good(g, n)) return SK_OK;
    return sk_fail(
        SK_EBUG,
        "call %llx (%s): the %lld rows of segment %d are not the reduction blocks %d to %d of %d "
        "in %lld rows",
        (long long)call->id, sk_coll_names[call->kind], (long long)n, i, g->from, g->to, g->cells,
        (long long)g->full);
}

static sk_status check_cuts(const sk_coll_call *call, int i)
{
    const sk_seg *s = &call->segs[i];
    if (s->swap > SK_SWAP_N2_N || (s->swap && call->kind != SK_ALLTOALL))
        return sk_fail(SK_EBUG, "call %llx (%s): segment %d has swap %d; only all-to-all has one",
                       (long long)call->id, sk_coll_names[call->kind], i, (int)s->swap);
    SK_TRY(check_cut(call, i, s->n, &s->cut));
    return s->swap ? check_cut(call, i, s->n2, &s->cut2) : SK_OK;
}

sk_status sk_call_check(sk_comm *c, const sk_group_state *m, const sk_coll_call *call)
{
    int64_t at = (const char *)call - c->base;
    long long id = (long long)call->id;
    if (at < 0 || at > c->bytes - (int64_t)sizeof *call || call->n_segs < 0 ||
        call->n_segs > (c->bytes - at - (int64_t)sizeof *call) / (int64_t)sizeof(sk_seg))
        return sk_fail(SK_EBUG, "call %llx: its call is not in the heap of rank %d", id, c->rank);
    SK_TRY(check_fields(c, m, call));
    for (int i = 0; i < call->n_segs; i++) {
        const sk_seg *s = &call->segs[i];
        SK_TRY(check_cuts(call, i));
        if (seg_good(c, &m->group, call, i)) continue;
        return sk_fail(SK_EBUG,
                       "call %llx (%s): segment %d of %s, [%lld][%lld][%lld] from %lld to "
                       "%lld, overlaps itself or leaves the heap of rank %d (%lld bytes)",
                       id, sk_coll_names[call->kind], i, sk_dtype_name(call->type),
                       (long long)s->outer, (long long)s->n, (long long)s->inner, (long long)s->src,
                       (long long)s->dst, c->rank, (long long)c->bytes);
    }
    return check_common(c, m, call);
}

sk_status sk_call_check_counts(const sk_comm *c, const sk_group *g, const sk_coll_call *call)
{
    const int64_t *counts = (const int64_t *)(const void *)(c->base + call->counts);
    if (call->n_segs != 1 || call->segs[0].outer != 1)
        return sk_fail(SK_EBUG, "call %llx: all-to-all-v takes one segment with outer 1",
                       (long long)call->id);
    for (int i = 0; i < g->n; i++)
        if (counts[i] < 0 || counts[i] > call->segs[0].n)
            return sk_fail(SK_EDATA,
                           "call %llx: rank %d has %lld rows for rank %d, and a block has room for "
                           "%lld",
                           (long long)call->id, c->rank, (long long)counts[i], g->ranks[i],
                           (long long)call->segs[0].n);
    return SK_OK;
}
