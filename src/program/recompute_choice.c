/* recompute_choice.c - which forward results are recomputed in the backward pass instead of saved
 * (activation recomputation, Chen et al. 2016).
 *
 *     full        all that is read inside of a block only; what goes from block to block is saved
 *     selective   results of ops that are cheap for their size: the core of attention; and what
 *                 only these would read, if their operands are saved anyway (the scores of
 *                 attention that is written as separate ops)
 *     an op       its results
 *     regions     results that exist in slices only, and the cheap result that a region
 *                 begins with
 *
 * Results before the first block and behind the last are saved, as are results that are added to a
 * sum.  The choice is plan.recomputed; recompute_clones.c writes the nodes. */
#include "program/lowering.h"

#include <string.h>

/* Is a result read by forward nodes of its own layer alone? */
static bool stays_inside(const sk_lowering *e, const sk_tensor *t)
{
    if (sk_stages_others(&e->plan.read_forward[t->id], e->p->stage)) return false;
    return !e->plan.crosses[t->id];
}

static bool adds_up(const sk_node *n)
{
    for (int o = 0; o < n->n_out; o++)
        if (n->into[o]) return true;
    return false;
}

/* The index of a layer among the blocks of its stage, from 0; chunks of a stage count on. */
static int block_of(const sk_lowering *e, int layer)
{
    int n = 0;
    for (int k = 1; k < layer; k++) n += e->plan.stage_of_layer[k] == e->plan.stage_of_layer[layer];
    return n;
}

/* Does the layout's word name this forward node? */
static bool chosen(const sk_lowering *e, const sk_node *n)
{
    const sk_layout *l = e->l;
    if (n->layer < 1 || n->layer >= e->g->n_layers - 1) return false;
    if (!strcmp(l->recompute, "selective")) return n->op->flags & SK_OP_RECOMPUTE;
    if (strcmp(l->recompute, "full") != 0) return !strcmp(n->op->name, l->recompute);
    return !l->recompute_blocks || block_of(e, n->layer) < l->recompute_blocks;
}

bool sk_recomputes_block(const sk_lowering *e, const sk_node *n)
{
    return !strcmp(e->l->recompute, "full") && chosen(e, n);
}

/* --- results that only recomputed nodes would read --- */

enum { BY_BACKWARD = 1, BY_AGAIN }; /* who reads a result after the forward pass */

static bool operands_stay(const sk_lowering *e, const sk_node *n, const char *read)
{
    for (int k = 0; k < n->n_in; k++) {
        const sk_tensor *x = n->in[k];
        if (x->role == SK_VALUE && (read[x->id] != BY_BACKWARD || e->plan.recomputed[x->id]))
            return false;
    }
    return true;
}

/* Of a forward node: would its result be saved only to recompute others, and are its operands saved
 * anyway? */
static bool feeds_again(const sk_lowering *e, const sk_node *n, const char *read)
{
    if (n->n_out > 1 || n->layer < 1 || n->layer >= e->g->n_layers - 1 || adds_up(n)) return false;
    return read[n->out[0]->id] == BY_AGAIN && stays_inside(e, n->out[0]) &&
           operands_stay(e, n, read);
}

/* Readers first. */
static void choose_what_feeds(sk_lowering *e)
{
    char *read = sk_many(e->tmp, char, e->g->tensors.n + 1);
    for (int i = e->g->nodes.n - 1; i >= 0; i--) {
        const sk_node *n = e->g->nodes.v[i];
        bool back = n->phase == SK_BACKWARD, again = false;
        if (e->sp->stage[i] != e->p->stage) continue;
        if (!back && feeds_again(e, n, read)) e->plan.recomputed[n->out[0]->id] = SK_BY_CLONE;
        for (int o = 0; o < n->n_out; o++)
            again |= e->plan.recomputed[n->out[o]->id] && read[n->out[o]->id];
        for (int k = 0; (back || again) && k < n->n_in; k++)
            if (back || !read[n->in[k]->id]) read[n->in[k]->id] = back ? BY_BACKWARD : BY_AGAIN;
    }
}

static void choose_by_word(sk_lowering *e)
{
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *n = e->g->nodes.v[i];
        if (n->phase != SK_FORWARD || e->sp->stage[i] != e->p->stage) continue;
        if (adds_up(n) || !chosen(e, n)) continue;
        for (int o = 0; o < n->n_out; o++)
            if (stays_inside(e, n->out[o])) e->plan.recomputed[n->out[o]->id] = SK_BY_CLONE;
    }
    if (!strcmp(e->l->recompute, "selective")) choose_what_feeds(e);
}

/* --- regions --- */

const sk_node *sk_backward_equal(const sk_lowering *e, const sk_node *n)
{
    const sk_graph *g = e->p->graph;
    const sk_ints *all = &e->plan.of_chunk[2 * e->sp->chunk[n->id] + 1];
    for (int i = 0; i < all->n; i++) {
        const sk_node *x = g->nodes.v[all->v[i]];
        if (x->layer == n->layer && x->op == n->op && !strcmp(x->dims, n->dims) &&
            !memcmp(x->in, n->in, sizeof n->in) && !memcmp(x->attr, n->attr, sizeof n->attr))
            return x;
    }
    return NULL;
}

/* A cheap operand of a region's forward node, if a backward node computes the same value anyway. */
static void choose_cheap(sk_lowering *e, const sk_tensor *t)
{
    const sk_node *n = t->from;
    if (t->role != SK_VALUE || e->plan.wide[t->id] || !(n->op->flags & SK_OP_CHEAP)) return;
    if (n->out[0] != t || n->phase != SK_FORWARD || e->plan.region_of[n->id]) return;
    if (e->sp->stage[n->id] != e->p->stage || e->plan.crosses[t->id]) return;
    if (sk_backward_equal(e, n)) e->plan.recomputed[t->id] = SK_BY_BACKWARD;
}

static void choose_by_region(sk_lowering *e, const sk_region *r)
{
    for (int i = 0; i < r->nodes[SK_FORWARD].n; i++) {
        const sk_node *n = e->g->nodes.v[r->nodes[SK_FORWARD].v[i]];
        for (int o = 0; o < n->n_out; o++)
            if (e->plan.wide[n->out[o]->id]) e->plan.recomputed[n->out[o]->id] = SK_BY_CLONE;
        for (int k = 0; k < n->n_in; k++) choose_cheap(e, n->in[k]);
    }
}

sk_status sk_recompute(sk_lowering *e)
{
    e->plan.recomputed = sk_many(e->tmp, char, e->g->tensors.n + 1);
    if (!e->opts->optim) return SK_OK;
    if (*e->l->recompute) choose_by_word(e);
    for (int i = 0; i < e->plan.regions.n; i++) choose_by_region(e, &e->plan.regions.v[i]);
    sk_clone_recomputed(e);
    return SK_OK;
}
