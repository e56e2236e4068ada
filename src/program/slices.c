/* slices.c - a region's nodes, slice by slice, so that wide results are never whole.
 *
 *     forward:   for each slice: hidden = x w1, act, y[slice] = hidden w2
 *     backward:  for each slice: hidden again, its gradient, dx[slice], dw1 += , dw2 +=
 *
 * A slice is some rows of the batch, or, of a batch with fewer rows than slices, some places of
 * one row: parts of every buffer that lie in line.  What the region reads from elsewhere is brought
 * before its first slice, whole; what others read of it is written into parts of a whole buffer;
 * what is wide has a buffer a slice, forgotten at the slice's end.  All between is as elsewhere:
 * operands are brought into the states that nodes need, so a sum over ranks inside of a region is
 * taken once a slice. */
#include "program/emit.h"

#include <string.h>

bool sk_emit_outside(const sk_emit *e, const sk_tensor *t)
{
    return e->slice.n && !e->plan.wide[t->id] && !e->slice.whole[t->id];
}

sk_status sk_emit_need_slice(sk_emit *e, const sk_tensor *t, const sk_state *want, int *buf)
{
    int n = e->slice.n;
    e->slice.n = 0;
    SK_TRY(sk_emit_need(e, t, want, buf));
    e->slice.n = n;
    if (t->letters[0] == e->g->batch) *buf = sk_emit_slice_at(e, *buf);
    sk_emit_have(e, t, want, *buf);
    return SK_OK;
}

/* --- before the first slice --- */

/* At least as many as the layout says, if there are places for them. */
static void count_slices(sk_emit *e, const sk_region *r)
{
    sk_extent box = sk_shard_of(e->g, e->l, r->of->letters, &e->sp->made[r->of->id], e->p->coord,
                                e->at.micro, e->p->n_micro);
    int64_t want = e->l->slices, rows = box.size[0], places = r->next ? box.size[1] : 1;
    int64_t per = rows && rows < want ? (want + rows - 1) / rows : 1;
    if (per > places) per = places ? places : 1;
    if (rows > want) rows = want;
    e->slice.per = (int)per;
    e->slice.n = (int)(rows ? rows * per : 1);
}

int64_t sk_emit_regions_insts(sk_emit *e, int64_t enough)
{
    int64_t sum = 0;
    int micro = e->at.micro;
    for (int i = 0; i < e->plan.regions.n; i++) {
        const sk_region *r = &e->plan.regions.v[i];
        int64_t nodes = r->nodes[SK_FORWARD].n + r->nodes[SK_BACKWARD].n;
        for (e->at.micro = 0; e->at.micro < e->p->n_micro && sum < enough; e->at.micro++) {
            count_slices(e, r);
            sum += nodes * (e->slice.n - 1);
        }
    }
    e->at.micro = micro;
    e->slice.n = 0;
    return sum;
}

/* Is it made elsewhere, or in the other phase? */
static bool brought(const sk_emit *e, const sk_node *first, const sk_tensor *t)
{
    if (t->role == SK_PARAM || e->plan.wide[t->id]) return false;
    if (!t->from || t->from->phase != first->phase) return true;
    return e->plan.region_of[t->from->id] != e->plan.region_of[first->id];
}

static sk_status bring(sk_emit *e, const sk_node *first, const sk_ints *nodes)
{
    for (int i = 0; i < nodes->n; i++) {
        const sk_node *n = e->g->nodes.v[nodes->v[i]];
        for (int k = 0; k < n->n_in; k++) {
            int buf = -1;
            if (brought(e, first, n->in[k]))
                SK_TRY(sk_emit_need(e, n->in[k], &e->sp->node[n->id].in[k], &buf));
        }
    }
    return SK_OK;
}

/* Whole buffers of what others read. */
static void open_results(sk_emit *e, const sk_ints *nodes)
{
    for (int i = 0; i < nodes->n; i++) {
        const sk_node *n = e->g->nodes.v[nodes->v[i]];
        for (int o = 0; o < n->n_out; o++) {
            const sk_tensor *t = n->out[o];
            if (n->into[o] || e->plan.wide[t->id]) continue;
            const sk_state *made = &e->sp->node[n->id].out[o];
            e->slice.whole[t->id] = 1 + sk_emit_piece(e, t, SK_ACTS, made, e->at.micro);
        }
    }
}

/* --- slices --- */

static void forget(sk_emit *e, const sk_region *r)
{
    const sk_ints *lists[] = {&r->nodes[SK_FORWARD], &r->nodes[SK_BACKWARD], &r->again};
    for (int p = 0; p < 3; p++)
        for (int i = 0; i < lists[p]->n; i++) {
            const sk_node *n = e->g->nodes.v[lists[p]->v[i]];
            for (int k = 0; k < n->n_in; k++) e->slice.hand[n->in[k]->id] = NULL;
            for (int o = 0; o < n->n_out; o++) e->slice.hand[n->out[o]->id] = NULL;
        }
}

static sk_status work(sk_emit *e, const sk_region *r, const sk_ints *nodes)
{
    int n = e->slice.n;
    for (int i = 0; i < n; i++) {
        forget(e, r);
        e->slice.i = i;
        for (int k = 0; k < nodes->n; k++) SK_TRY(sk_emit_node(e, e->g->nodes.v[nodes->v[k]]));
    }
    return SK_OK;
}

/* --- after the last --- */

/* Slices may have been reduced in place: the whole is in the state of the last one. */
static sk_state state_of(const sk_emit *e, const sk_tensor *t, sk_state made)
{
    int whole = e->slice.whole[t->id] - 1;
    for (const sk_at_hand *h = e->slice.hand[t->id]; h; h = h->next)
        if (e->p->bufs.v[h->buf].within == whole) made = h->state;
    return made;
}

static sk_status close_results(sk_emit *e, const sk_ints *nodes)
{
    for (int i = 0; i < nodes->n; i++) {
        const sk_node *n = e->g->nodes.v[nodes->v[i]];
        for (int o = 0; o < n->n_out; o++) {
            const sk_tensor *t = n->out[o];
            if (!e->slice.whole[t->id]) continue;
            sk_state s = state_of(e, t, e->sp->node[n->id].out[o]);
            sk_emit_have(e, t, &s, e->slice.whole[t->id] - 1);
            e->slice.whole[t->id] = 0;
        }
    }
    for (int i = 0; i < nodes->n; i++) SK_TRY(sk_emit_made(e, e->g->nodes.v[nodes->v[i]]));
    return SK_OK;
}

sk_status sk_emit_region(sk_emit *e, const sk_node *n)
{
    const sk_region *r = &e->plan.regions.v[e->plan.region_of[n->id] - 1];
    const sk_ints *nodes = &r->nodes[n->phase];
    sk_assert(!e->slice.n);
    e->at.layer = n->layer;
    if (n->phase == SK_BACKWARD) SK_TRY(bring(e, n, &r->again));
    SK_TRY(bring(e, n, nodes));
    open_results(e, nodes);
    count_slices(e, r);
    SK_TRY(work(e, r, nodes));
    e->slice.i = e->slice.n = 0;
    return close_results(e, nodes);
}
