/* batch_slices.c - a region's nodes run slice by slice, so that wide results never exist as a
 * whole.
 *
 *     forward:   for each slice: hidden = x w1, act, y[slice] = hidden w2
 *     backward:  for each slice: hidden recomputed, its gradient, dx[slice], dw1 += , dw2 +=
 *
 * A slice is some rows of the batch, or, of a batch with fewer rows than slices, some positions of
 * one row: contiguous parts of every buffer.  Lowering first reshards all that the region reads
 * from elsewhere; then it writes the nodes one after the other, marked (inst.region).  The pass
 * repeats what is marked for each slice (split_rows.c): wide results have one buffer per slice,
 * other results are written into parts of one buffer, and a reduction over ranks inside of a region
 * is done once per slice. */
#include "program/lowering.h"

/* --- lowering --- */

/* Is it computed outside of the region, or in the other phase? */
bool sk_lower_brought(const sk_lowering *e, const sk_node *first, const sk_tensor *t)
{
    if (t->role == SK_PARAM || e->plan.wide[t->id]) return false;
    if (!t->from || t->from->phase != first->phase) return true;
    return e->plan.region_of[t->from->id] != e->plan.region_of[first->id];
}

static sk_status bring(sk_lowering *e, const sk_node *first, const sk_ints *nodes)
{
    for (int i = 0; i < nodes->n; i++) {
        const sk_node *n = e->g->nodes.v[nodes->v[i]];
        for (int k = 0; k < n->n_in; k++) {
            int buf = -1;
            if (sk_lower_brought(e, first, n->in[k]))
                SK_TRY(sk_lower_need(e, n->in[k], &e->sp->node[n->id].in[k], &buf));
        }
    }
    return SK_OK;
}

static void trim(sk_lowering *e, const sk_tensor *t) /* only as computed or received */
{
    sk_state now;
    int buf = sk_lower_source(e, t, &now);
    if (buf < 0) return;
    sk_lower_forget(e, t);
    sk_lower_have(e, t, &now, buf);
}

/* After the last chunk a result is available as its node wrote it; a wide result is not. */
static void close_results(sk_lowering *e, const sk_ints *nodes)
{
    for (int i = 0; i < nodes->n; i++) {
        const sk_node *n = e->g->nodes.v[nodes->v[i]];
        for (int o = 0; o < n->n_out; o++) {
            if (e->plan.wide[n->out[o]->id]) sk_lower_forget(e, n->out[o]);
            else if (!n->into[o]) trim(e, n->out[o]);
        }
    }
}

sk_status sk_lower_region(sk_lowering *e, const sk_node *n)
{
    int index = e->plan.region_of[n->id] - 1;
    const sk_region *r = &e->plan.regions.v[index];
    const sk_ints *nodes = &r->nodes[n->phase];
    sk_assert(!e->at.region);
    e->at.layer = n->layer;
    if (n->phase == SK_BACKWARD) SK_TRY(bring(e, n, &r->again));
    SK_TRY(bring(e, n, nodes));
    e->at.region = 1 + 2 * index + (int)n->phase;
    for (int i = 0; i < nodes->n; i++) SK_TRY(sk_lower_node(e, e->g->nodes.v[nodes->v[i]]));
    e->at.region = 0;
    if (n->phase == SK_BACKWARD) close_results(e, &r->again);
    close_results(e, nodes);
    for (int i = 0; i < nodes->n; i++) SK_TRY(sk_lower_made(e, e->g->nodes.v[nodes->v[i]]));
    return SK_OK;
}

/* --- chunks --- */

/* At least as many as the layout says, if there are enough positions. */
static sk_chunks count_chunks(const sk_lowering *e, const sk_region *r, int micro)
{
    sk_extent box = sk_lower_box(e, r->of, &e->sp->made[r->of->id], micro);
    int64_t want = e->l->slices, rows = box.size[0], places = r->next ? box.size[1] : 1;
    int64_t per = rows && rows < want ? (want + rows - 1) / rows : 1;
    if (per > places) per = places ? places : 1;
    if (rows > want) rows = want;
    return (sk_chunks){.n = (int)(rows ? rows * per : 1), .per = (int)per, .wide = e->plan.wide};
}

int64_t sk_lower_regions_insts(sk_lowering *e, int64_t enough)
{
    int64_t sum = 0;
    for (int i = 0; i < e->plan.regions.n; i++) {
        const sk_region *r = &e->plan.regions.v[i];
        int64_t nodes = r->nodes[SK_FORWARD].n + r->nodes[SK_BACKWARD].n;
        for (int m = 0; m < e->p->n_micro && sum < enough; m++)
            sum += nodes * (count_chunks(e, r, m).n - 1);
    }
    return sum;
}

typedef struct sequence {
    sk_lowering *e;
    int n; /* instructions of the old list */
} sequence;

static int write(void *ctx, const sk_inst *old, int pc)
{
    const sequence *x = ctx;
    int region = old[pc].region, end = pc + 1;
    if (!region) {
        *sk_push(x->e->tmp, &x->e->p->insts) = old[pc];
        return end;
    }
    while (end < x->n && old[end].region == region && old[end].task == old[pc].task) end++;
    const sk_region *r = &x->e->plan.regions.v[(region - 1) / 2];
    sk_chunks chunks = count_chunks(x->e, r, old[pc].micro);
    sk_split_rows(x->e, &chunks, &old[pc], end - pc);
    return end;
}

sk_status sk_slice_regions(sk_lowering *e)
{
    sequence x = {e, e->p->insts.n};
    return e->plan.regions.n ? sk_rewrite(e, write, &x) : SK_OK;
}
