/* again.c - results that are made again for the backward pass instead of kept (Chen et al. 2016).
 *
 * When a forward task is written, the results that the layout names are forgotten.  A backward
 * node that needs one of them finds it missing, and the node that makes it is written again there,
 * with its own operands brought the same way.  So nothing is made that nobody reads, sharded
 * weights are gathered and sums over ranks are taken anew, random draws go by place and fall alike:
 * the bits are the same.
 *
 *     full        all that stays inside a block; kept is what goes from block to block
 *     selective   results of ops that are cheap for their size: the core of attention; and what
 *                 only these would read, if what it is made of is kept anyway (scores of
 *                 attention that is written out)
 *     an op       its results
 *
 * What comes before the first block and after the last is kept, as is what adds to a sum. */
#include "program/emit.h"

#include <string.h>

/* Is a result read by forward nodes of its own layer alone? */
static bool stays_inside(const sk_emit *e, const sk_tensor *t)
{
    if (e->plan.read_forward[t->id] & ~(1ull << e->p->stage)) return false;
    return !e->plan.crosses[t->id];
}

static bool adds_up(const sk_node *n)
{
    for (int o = 0; o < n->n_out; o++)
        if (n->into[o]) return true;
    return false;
}

/* The how-manieth block of its stage a layer is, from 0; chunks of a stage count on. */
static int block_of(const sk_emit *e, int layer)
{
    int n = 0;
    for (int k = 1; k < layer; k++) n += e->plan.stage_of_layer[k] == e->plan.stage_of_layer[layer];
    return n;
}

static bool chosen(const sk_emit *e, const sk_node *n)
{
    const sk_layout *l = e->l;
    if (n->layer < 1 || n->layer >= e->g->n_layers - 1) return false;
    if (!strcmp(l->again, "selective")) return n->op->flags & SK_OP_AGAIN;
    if (strcmp(l->again, "full") != 0) return !strcmp(n->op->name, l->again);
    return !l->again_blocks || block_of(e, n->layer) < l->again_blocks;
}

static void look_at_layers(sk_emit *e)
{
    e->plan.crosses = sk_many(e->tmp, char, e->g->tensors.n + 1);
    e->plan.stage_of_layer = sk_many(e->tmp, int, e->g->n_layers + 1);
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *n = e->g->nodes.v[i];
        if (n->phase != SK_FORWARD) continue;
        e->plan.stage_of_layer[n->layer] = e->sp->stage[i];
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k]->from && n->in[k]->from->layer != n->layer)
                e->plan.crosses[n->in[k]->id] = 1;
    }
}

enum { BY_BACKWARD = 1, BY_AGAIN }; /* who reads a result after the forward pass */

static bool operands_stay(const sk_emit *e, const sk_node *n, const char *read)
{
    for (int k = 0; k < n->n_in; k++) {
        const sk_tensor *x = n->in[k];
        if (x->role == SK_VALUE && (read[x->id] != BY_BACKWARD || e->plan.recomputed[x->id]))
            return false;
    }
    return true;
}

/* Of a forward node: would its result be kept only to make others again, and is what it is made of
 * kept anyway? */
static bool feeds_again(const sk_emit *e, const sk_node *n, const char *read)
{
    if (n->n_out > 1 || n->layer < 1 || n->layer >= e->g->n_layers - 1 || adds_up(n)) return false;
    return read[n->out[0]->id] == BY_AGAIN && stays_inside(e, n->out[0]) &&
           operands_stay(e, n, read);
}

/* Readers first. */
static void drop_what_feeds(sk_emit *e)
{
    char *read = sk_many(e->tmp, char, e->g->tensors.n + 1);
    for (int i = e->g->nodes.n - 1; i >= 0; i--) {
        const sk_node *n = e->g->nodes.v[i];
        bool back = n->phase == SK_BACKWARD, again = false;
        if (e->sp->stage[i] != e->p->stage) continue;
        if (!back && feeds_again(e, n, read)) e->plan.recomputed[n->out[0]->id] = 1;
        for (int o = 0; o < n->n_out; o++)
            again |= e->plan.recomputed[n->out[o]->id] && read[n->out[o]->id];
        for (int k = 0; (back || again) && k < n->n_in; k++)
            if (back || !read[n->in[k]->id]) read[n->in[k]->id] = back ? BY_BACKWARD : BY_AGAIN;
    }
}

sk_status sk_emit_again_open(sk_emit *e)
{
    e->plan.recomputed = sk_many(e->tmp, char, e->g->tensors.n + 1);
    look_at_layers(e);
    if (!*e->l->again || !e->opts->optim) return SK_OK;
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *n = e->g->nodes.v[i];
        if (n->phase != SK_FORWARD || e->sp->stage[i] != e->p->stage) continue;
        if (adds_up(n) || !chosen(e, n)) continue;
        for (int o = 0; o < n->n_out; o++)
            e->plan.recomputed[n->out[o]->id] = stays_inside(e, n->out[o]);
    }
    if (!strcmp(e->l->again, "selective")) drop_what_feeds(e);
    return SK_OK;
}

/* The forward pass of a chunk is written: what will be made again is given up, and of the rest what
 * was gathered or cut for a reader. */
void sk_emit_drop(sk_emit *e, const sk_ints *nodes)
{
    bool full = !strcmp(e->l->again, "full");
    for (int i = 0; i < nodes->n; i++) {
        const sk_node *n = e->g->nodes.v[nodes->v[i]];
        for (int o = 0; o < n->n_out; o++)
            if (e->plan.recomputed[n->out[o]->id]) sk_emit_forget(e, n->out[o]);
        for (int k = 0; full && k < n->n_in; k++)
            if (n->in[k]->role == SK_VALUE && chosen(e, n)) sk_emit_trim(e, n->in[k]);
    }
}

bool sk_emit_dropped(const sk_emit *e, const sk_tensor *t)
{
    return e->training && e->at.phase == SK_BACKWARD && e->plan.recomputed[t->id];
}
