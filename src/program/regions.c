/* regions.c - which nodes run in slices of the batch, found by letters alone.
 *
 * A result is wide if it has a letter that no tensor between layers has: the hidden width of an
 * MLP, the vocabulary of logits.  A region is all nodes of a layer, forward and backward, that read
 * or produce results with one such letter.  It can run in slices if
 *   - rows of the batch, and the places behind it (time), are independent of one another in all of
 *     its nodes, which excludes attention, routers and experts;
 *   - results that sum over the batch are added to a gradient or a sum of the graph;
 *   - the batch is split over the ranks in the same way for every node;
 *   - no node outside depends on some of its nodes while others depend on it.
 * Otherwise it runs as without the word.
 *
 * In a training step wide results are not saved: the backward pass recomputes them.  The cheap
 * result that a region begins with (a norm) is not saved either, since a backward node computes the
 * same value anyway, for the gradient of the weight (recompute_choice.c). */
#include "program/lowering.h"

#include <string.h>

/* --- what a region is --- */

static bool has_wide(const sk_lowering *e, const sk_tensor *t, char letter)
{
    return t->role == SK_VALUE && t->letters[0] == e->g->batch && strchr(t->letters, letter);
}

static bool touches(const sk_lowering *e, const sk_node *n, char letter)
{
    for (int k = 0; k < n->n_in; k++)
        if (has_wide(e, n->in[k], letter)) return true;
    for (int o = 0; o < n->n_out; o++)
        if (!n->into[o] && has_wide(e, n->out[o], letter)) return true;
    return false;
}

static unsigned cutters(const sk_state *s, int dim)
{
    unsigned set = 0;
    for (int a = 0; a < SK_MAX_AXES; a++)
        if (s->how[a] == SK_SPLIT && s->dim[a] == dim) set |= 1u << a;
    return set;
}

/* Of an operand or result that has the batch: is it the first dim, and which axes split it? */
static void look(const sk_lowering *e, sk_region *r, const char *letters, const sk_state *s)
{
    const char *at = strchr(letters, e->g->batch);
    if (!at) return;
    r->bad |= at != letters;
    if (!r->known) r->next = letters[1], r->cut[0] = cutters(s, 0), r->cut[1] = cutters(s, 1);
    r->known = true;
    r->bad |= cutters(s, 0) != r->cut[0];
    if (letters[1] != r->next || cutters(s, 1) != r->cut[1]) r->next = 0;
}

static bool independent(const sk_node *n, char letter)
{
    return !letter || (!strchr(n->not_split, letter) && !sk_node_gathers(n, letter));
}

/* Results have rows of the batch, or can be accumulated over chunks. */
static void look_at_results(sk_lowering *e, sk_region *r, const sk_node *n)
{
    int sums = 0;
    for (int o = 0; o < n->n_out; o++) {
        sums += n->into[o] != NULL;
        if (n->into[o]) r->bad |= !(n->op->flags & SK_OP_ADDS);
        else r->bad |= n->letters_out[o][0] != e->g->batch;
        if (!n->into[o]) look(e, r, n->letters_out[o], &e->sp->node[n->id].out[o]);
        if (!n->into[o] && has_wide(e, n->out[o], r->letter)) r->of = n->out[o];
    }
    r->bad |= n->phase == SK_FORWARD && sums && sums < n->n_out;
}

static void look_at_node(sk_lowering *e, sk_region *r, const sk_node *n)
{
    *sk_push(e->tmp, &r->nodes[n->phase]) = n->id;
    r->bad |= e->plan.region_of[n->id] || !independent(n, e->g->batch);
    for (int k = 0; k < n->n_in; k++) {
        const sk_tensor *t = n->in[k];
        const sk_node *from = t->from;
        r->bad |= t->role == SK_MEMORY;
        if (t->role != SK_PARAM) look(e, r, n->letters_in[k], &e->sp->node[n->id].in[k]);
        if (has_wide(e, t, r->letter)) {
            r->bad |= from->layer != n->layer || e->sp->stage[from->id] != e->p->stage;
            r->bad |= !independent(n, t->letters[1] == r->letter ? 0 : t->letters[1]);
        }
    }
    look_at_results(e, r, n);
}

/* Wide results are read in their layer only, all on this stage. */
static void look_at_readers(const sk_lowering *e, sk_region *r)
{
    int here = e->p->stage;
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < r->nodes[p].n; i++) {
            const sk_node *n = e->g->nodes.v[r->nodes[p].v[i]];
            for (int o = 0; o < n->n_out; o++) {
                const sk_tensor *t = n->out[o];
                if (n->into[o] || !has_wide(e, t, r->letter)) continue;
                r->bad |= e->plan.crosses[t->id] || sk_stages_others(&e->plan.read_by[t->id], here);
                r->bad |= n->phase == SK_FORWARD && !sk_stages_any(&e->plan.read_forward[t->id]);
            }
        }
}

static void look_at_places(const sk_lowering *e, sk_region *r)
{
    if (r->next == r->letter || r->next == e->g->dealt) r->next = 0;
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < r->nodes[p].n; i++)
            if (!independent(e->g->nodes.v[r->nodes[p].v[i]], r->next)) r->next = 0;
}

/* --- moving other nodes out of the region --- */

static bool reads_one_of(const sk_node *n, const char *set)
{
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k]->from && set[n->in[k]->from->id]) return true;
    return false;
}

typedef struct row {    /* nodes of a phase from the region's first to its last */
    const sk_ints *all; /* of its chunk: this rank's own list */
    sk_ints before, mine, behind;
    int from;
} row;

/* The range of positions of the region's nodes; another region may have moved some. */
static int span(const sk_ints *all, const char *in, int *from)
{
    int to = 0;
    *from = all->n;
    for (int i = 0; i < all->n; i++) {
        if (!in[all->v[i]]) continue;
        if (i < *from) *from = i;
        to = i + 1;
    }
    return to;
}

/* Nodes that do not depend on the region move before it, the rest behind it; false: the region
 * depends on some of the rest. */
static bool sort_row(sk_lowering *e, const sk_region *r, sk_phase phase, row *w)
{
    const sk_ints *mine = &r->nodes[phase];
    char *in = sk_many(e->tmp, char, e->g->nodes.n + 1);
    char *behind = sk_many(e->tmp, char, e->g->nodes.n + 1);
    *w = (row){0};
    if (!mine->n) return true;
    w->all = &e->plan.of_chunk[2 * e->sp->chunk[mine->v[0]] + (phase == SK_BACKWARD)];
    for (int i = 0; i < mine->n; i++) in[mine->v[i]] = 1;
    int to = span(w->all, in, &w->from);
    for (int i = w->from; i < to; i++) {
        const sk_node *n = e->g->nodes.v[w->all->v[i]];
        bool needs = reads_one_of(n, behind);
        if (in[n->id] ? needs : e->plan.region_of[n->id] != 0) return false;
        if (!in[n->id]) behind[n->id] = needs || reads_one_of(n, in);
        *sk_push(e->tmp, in[n->id] ? &w->mine : behind[n->id] ? &w->behind : &w->before) = n->id;
    }
    return true;
}

static bool is_sent(const sk_lowering *e, const sk_node *n)
{
    for (int o = 0; o < n->n_out; o++)
        if (!n->into[o] && sk_stages_others(&e->plan.read_by[n->out[o]->id], e->p->stage))
            return true;
    return false;
}

/* Other stages receive in the order of the graph (messages.c): results that are sent keep it. */
static bool sends_in_order(const sk_lowering *e, const row *w)
{
    const sk_ints *parts[] = {&w->before, &w->mine, &w->behind};
    int last = -1;
    for (int p = 0; p < 3; p++)
        for (int i = 0; i < parts[p]->n; i++) {
            if (!is_sent(e, e->g->nodes.v[parts[p]->v[i]])) continue;
            if (parts[p]->v[i] < last) return false;
            last = parts[p]->v[i];
        }
    return true;
}

static void put_row(sk_lowering *e, const row *w)
{
    const sk_ints *parts[] = {&w->before, &w->mine, &w->behind};
    int at = w->from;
    for (int p = 0; p < 3; p++)
        for (int i = 0; i < parts[p]->n; i++) {
            w->all->v[at++] = parts[p]->v[i];
            e->plan.moved[parts[p]->v[i]] = 1;
        }
}

static void keep_region(sk_lowering *e, sk_region *r)
{
    *sk_push(e->tmp, &e->plan.regions) = *r;
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < r->nodes[p].n; i++) {
            const sk_node *n = e->g->nodes.v[r->nodes[p].v[i]];
            e->plan.region_of[n->id] = e->plan.regions.n;
            for (int o = 0; o < n->n_out; o++)
                if (!n->into[o] && has_wide(e, n->out[o], r->letter))
                    e->plan.wide[n->out[o]->id] = 1;
        }
}

static void judge(sk_lowering *e, sk_region *r)
{
    row rows[2];
    look_at_readers(e, r);
    look_at_places(e, r);
    if (r->bad || !r->of || !r->nodes[SK_FORWARD].n) return;
    for (int p = 0; p < 2; p++)
        if (!sort_row(e, r, (sk_phase)p, &rows[p]) || !sends_in_order(e, &rows[p])) return;
    for (int p = 0; p < 2; p++)
        if (rows[p].all) put_row(e, &rows[p]);
    keep_region(e, r);
}

static void find_by(sk_lowering *e, char letter)
{
    sk_region *by_layer = sk_many(e->tmp, sk_region, e->g->n_layers + 1);
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *n = e->g->nodes.v[i];
        if (e->sp->stage[i] != e->p->stage || !touches(e, n, letter)) continue;
        by_layer[n->layer].letter = letter;
        for (int k = 0; k < n->n_in; k++) /* the backward pass of another layer reads it, too */
            if (has_wide(e, n->in[k], letter)) {
                int layer = n->in[k]->from->layer;
                by_layer[layer].bad |= layer != n->layer;
            }
        look_at_node(e, &by_layer[n->layer], n);
    }
    for (int k = 0; k < e->g->n_layers; k++)
        if (by_layer[k].letter) judge(e, &by_layer[k]);
}

/* A copy of the lists of all chunks: ranks share those of the plan, and regions move nodes. */
static sk_ints *own_lists(sk_lowering *e)
{
    int lists = 2 * e->sp->n_chunks;
    sk_ints *own = sk_many(e->tmp, sk_ints, lists);
    for (int i = 0; i < lists; i++)
        for (int k = 0; k < e->plan.of_chunk[i].n; k++)
            *sk_push(e->tmp, &own[i]) = e->plan.of_chunk[i].v[k];
    return own;
}

sk_status sk_find_regions(sk_lowering *e)
{
    int nodes = e->g->nodes.n + 1, tensors = e->g->tensors.n + 1;
    if (e->l->slices < 2) return SK_OK;
    e->plan.of_chunk = own_lists(e);
    e->plan.region_of = sk_many(e->tmp, int, nodes);
    e->plan.moved = sk_many(e->tmp, char, nodes);
    e->plan.wide = sk_many(e->tmp, char, tensors);
    for (int c = 'A'; c <= 'z'; c++)
        if (c != e->g->batch && e->g->size[c]) find_by(e, (char)c);
    return SK_OK;
}
