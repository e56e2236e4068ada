/* verify_places.c - P6: every buffer lies inside the heap, every call moves what its buffers hold,
 * every launch has the workspace that it asks for. */
#include "coll/segment.h"
#include "program/workspaces.h"

#include <inttypes.h>

static bool is_used(const sk_buffer *b) { return b->first >= 0 || b->keep; }

/* The range of offsets of a memory: the device and the host share the heap. */
static void region(const sk_program *p, sk_placement placement, int64_t *from, int64_t *to)
{
    *from = placement == SK_HOST ? p->kind_at[SK_HOSTED] + p->bounce_bytes : 0;
    *to = placement == SK_HOST     ? p->heap_bytes
          : placement == SK_DEVICE ? p->kind_at[SK_HOSTED]
                                   : p->file_bytes;
}

static sk_status in_heap(const sk_program *p)
{
    for (int i = 0; i < p->bufs.n; i++) {
        const sk_buffer *b = &p->bufs.v[i], *w = b->within >= 0 ? &p->bufs.v[b->within] : NULL;
        if (!is_used(b)) continue;
        int64_t from, to;
        region(p, b->placement, &from, &to);
        if (b->offset < from || b->bytes < 0 || b->offset + b->bytes > to)
            return sk_fail(SK_EBUG,
                           "P6: rank %d: '%s' lies at %" PRId64 "+%" PRId64
                           " outside of the %s, which is %" PRId64 " to %" PRId64,
                           p->rank, b->name, b->offset, b->bytes, sk_placement_names[b->placement],
                           from, to);
        if (w && w->placement != b->placement)
            return sk_fail(SK_EBUG, "P6: rank %d: a part of '%s' lies in another memory", p->rank,
                           w->name);
        if (w && (b->offset < w->offset || b->offset + b->bytes > w->offset + w->bytes))
            return sk_fail(SK_EBUG, "P6: rank %d: a part of '%s' lies outside of it", p->rank,
                           w->name);
    }
    return SK_OK;
}

/* Does a segment's buffer have the size that the collective will read or write? */
static bool seg_fits(const sk_program *p, const sk_call_plan *c, const sk_call_seg *s)
{
    const sk_group *g = &p->groups[c->group];
    int64_t size = (int64_t)sk_dtype_size(c->type);
    sk_seg shape = sk_call_shape(s);
    int64_t all = sk_seg_count(&shape) * size,
            part = s->outer * sk_seg_rows(&shape, g->me, g->n).n * s->inner * size;
    if (c->kind == SK_ALLTOALL)
        return p->bufs.v[s->src].bytes == sk_seg_gives(&shape, g->me, g->n) * size &&
               p->bufs.v[s->dst].bytes == sk_seg_gets(&shape, g->me, g->n) * size;
    return p->bufs.v[s->src].bytes == (c->kind == SK_ALLGATHER ? part : all) &&
           p->bufs.v[s->dst].bytes == (c->kind == SK_REDUCE_SCATTER ? part : all);
}

/* Does the algorithm exist, and is there workspace for it? */
static bool workspace_fits(const sk_program *p, const sk_call_plan *c)
{
    int n = 0;
    while (sk_coll_parts[n]) n++;
    if (c->algorithm < SK_BUILTIN || c->algorithm >= n) return false;
    if (c->workspace < 0) return c->workspace_bytes == 0;
    return c->workspace < p->bufs.n && p->bufs.v[c->workspace].bytes >= c->workspace_bytes &&
           (c->algorithm >= 0 || p->gpu);
}

static sk_status calls_fit(const sk_program *p)
{
    for (int i = 0; i < p->calls.n; i++) {
        const sk_call_plan *c = &p->calls.v[i];
        if (c->group < 0 || c->group >= p->n_groups || p->groups[c->group].me < 0)
            return sk_fail(SK_EBUG, "P6: rank %d: call %d (%s) names group %d of %d", p->rank, i,
                           c->what, c->group, p->n_groups);
        if (c->table_at < 0 || c->table_at + sk_call_table_bytes(c) > p->heap_bytes)
            return sk_fail(SK_EBUG, "P6: rank %d: the table of call %d (%s) leaves the heap",
                           p->rank, i, c->what);
        if (!workspace_fits(p, c))
            return sk_fail(SK_EBUG,
                           "P6: rank %d: call %d (%s) has algorithm %d and needs %" PRId64
                           " bytes of workspace, which it has not got",
                           p->rank, i, c->what, c->algorithm, c->workspace_bytes);
        for (int s = 0; s < c->n_segs; s++)
            if (!seg_fits(p, c, &c->segs[s]))
                return sk_fail(SK_EBUG,
                               "P6: rank %d: call %d (%s) moves [%" PRId64 "][%" PRId64 "][%" PRId64
                               "] between '%s' and '%s', which have other sizes",
                               p->rank, i, c->what, c->segs[s].outer, c->segs[s].n,
                               c->segs[s].inner, p->bufs.v[c->segs[s].src].name,
                               p->bufs.v[c->segs[s].dst].name);
    }
    return SK_OK;
}

/* Does every launch on a GPU have the workspace that its op needs? */
static sk_status launches_fit(const sk_program *p)
{
    for (int pc = 0; pc < p->insts.n; pc++) {
        const sk_inst *in = &p->insts.v[pc];
        int64_t need = sk_workspace_launch(p, in);
        if (in->workspace >= p->bufs.n ||
            (in->workspace >= 0 ? p->bufs.v[in->workspace].bytes : 0) < need)
            return sk_fail(SK_EBUG,
                           "P6: rank %d: instruction %d (%s) needs %" PRId64
                           " bytes of workspace on the GPU, which it has not got",
                           p->rank, pc, in->node ? in->node->op->name : "no op", need);
    }
    return SK_OK;
}

sk_status sk_verify_places(const sk_program *p)
{
    SK_TRY(in_heap(p));
    SK_TRY(calls_fit(p));
    return launches_fit(p);
}
