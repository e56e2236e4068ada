/* propagate.c - sharding propagation: from "which letters are split" to a state for every tensor
 * and node.
 *
 * For each axis a node is split along at most one of its letters: one that the layout splits over
 * that axis and that the op does not mark '!'.  Operands that have the letter come split, the
 * others replicated; results that have it are split, the others are partial sums.  A node without
 * such a letter works on replicated operands.
 *
 * A linear node whose operands are all partial has partial results: so the gradients of branches
 * are added first and reduced once.  Not in canonical order, where each sum is finished before the
 * next. In the forward pass a partial sum does not leave its layer: what goes from block to block
 * would be kept as each rank's own partial sum, beside the reduced one, and reduced for every
 * reader.
 *
 * If an axis splits several letters of a node, the choice is:
 *   1. a letter that a weight and all other operands and results have (experts: the tokens travel,
 *      not the weights);
 *   2. where there are weights, the first that the layout names ("h f v t": time only where nothing
 *      else is);
 *   3. elsewhere the one for which the fewest elements are communicated.
 * A weight is split as its first reader wants it. */
#include "layout/layout.h"
#include "layout/stage_balance.h"

#include <string.h>

/* Is an operand with these letters split along the letter?  gathered: bits of dims marked '^'. */
static bool has(const char *letters, unsigned gathered, char letter)
{
    const char *p = strchr(letters, letter);
    return p && !(gathered >> (p - letters) & 1);
}

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool sk_node_gathers(const sk_node *n, char letter)
{
    for (int i = 0; i < n->n_in; i++) {
        const char *p = strchr(n->letters_in[i], letter);
        if (p && n->gathered_in[i] >> (p - n->letters_in[i]) & 1) return true;
    }
    for (int o = 0; o < n->n_out; o++) {
        const char *p = strchr(n->letters_out[o], letter);
        if (p && n->gathered_out[o] >> (p - n->letters_out[o]) & 1) return true;
    }
    return false;
}

/* The first letter that a result lacks, as the dims line reads. */
static char first_missing(const sk_node *n, int o)
{
    for (const char *p = n->dims; *p && *p != '-'; p++)
        if (is_letter(*p) && !strchr(n->letters_out[o], *p)) return *p;
    return 0;
}

/* In canonical order a sum goes by the reduction blocks of one letter, and only that one may be
 * split. */
static bool in_order(const sk_node *n, char letter)
{
    if (sk_node_gathers(n, letter)) return false;
    for (int o = 0; o < n->n_out; o++)
        if (!strchr(n->letters_out[o], letter) && first_missing(n, o) != letter) return false;
    return true;
}

static bool may_split(const sk_layout *l, const sk_node *n, char letter)
{
    if (strchr(n->not_split, letter)) return false;
    bool there = false;
    for (const char *p = n->dims; *p; p++) there |= *p == letter;
    return there && (!l->canonical || in_order(n, letter));
}

/* Do all operands and results have this letter, a weight or the gradient of one among them? */
static bool beside_weight(const sk_node *n, char letter)
{
    bool weight = false;
    for (int i = 0; i < n->n_in; i++) {
        if (!strchr(n->letters_in[i], letter)) return false;
        weight |= n->in[i]->role == SK_PARAM;
    }
    for (int o = 0; o < n->n_out; o++) {
        if (!strchr(n->letters_out[o], letter)) return false;
        weight |= n->into[o] && n->into[o]->role == SK_PARAM;
    }
    return weight;
}

/* Instead of `letter` (Ulysses): one that all operands have, and that no operand is gathered along.
 */
static char exchanged(const sk_graph *g, const sk_layout *l, const sk_node *n, char letter)
{
    for (const char *p = n->dims; *p && *p != ','; p++) {
        bool everywhere = is_letter(*p) && *p != letter && *p != g->batch && may_split(l, n, *p);
        for (int i = 0; i < n->n_in && everywhere; i++)
            everywhere = has(n->letters_in[i], n->gathered_in[i], *p);
        if (everywhere) return *p;
    }
    return letter;
}

/* A gradient is split as its weight is: along the same letter, or along one that the weight lacks.
 */
static bool fits_weight(const sk_sharding *sp, const sk_node *n, int axis, char letter)
{
    for (int o = 0; o < n->n_out; o++) {
        const sk_tensor *w = n->into[o];
        if (!w || w->role != SK_PARAM) continue;
        const sk_state *s = &sp->made[w->id];
        if (s->how[axis] == SK_SPLIT ? w->letters[s->dim[axis]] != letter
                                     : strchr(w->letters, letter) != NULL)
            return false;
    }
    return true;
}

static bool has_weight(const sk_node *n)
{
    bool weight = false;
    for (int i = 0; i < n->n_in; i++) weight |= n->in[i]->role == SK_PARAM;
    for (int o = 0; o < n->n_out; o++) weight |= n->into[o] && n->into[o]->role == SK_PARAM;
    return weight;
}

static double elements(const sk_graph *g, const sk_tensor *t)
{
    double n = 1;
    for (const char *p = t->letters; *p; p++) n *= (double)g->size[(int)*p & 127];
    return n;
}

/* Elements that the ranks of an axis communicate so that an operand is split along the letter, or
 * replicated if it lacks it. */
static double to_bring(const sk_graph *g, const sk_sharding *sp, const sk_node *n, int i, int axis,
                       int p, char letter)
{
    const sk_tensor *t = n->in[i];
    const sk_state *s = &sp->made[t->id];
    bool split = has(n->letters_in[i], n->gathered_in[i], letter);
    if (t->role != SK_VALUE || s->how[axis] == SK_REPLICATE) return 0;
    if (s->how[axis] != SK_SPLIT) return (split ? 1 : 2) * (p - 1) * elements(g, t);
    if (split && t->letters[s->dim[axis]] == letter) return 0;
    return split ? (p - 1) * elements(g, t) / p : (p - 1) * elements(g, t);
}

/* And for results that would be partial. */
static double to_move(const sk_graph *g, const sk_sharding *sp, const sk_node *n, int axis, int p,
                      char letter)
{
    double sum = 0;
    for (int i = 0; i < n->n_in; i++) sum += to_bring(g, sp, n, i, axis, p, letter);
    for (int o = 0; o < n->n_out; o++)
        if (!has(n->letters_out[o], n->gathered_out[o], letter))
            sum += (p - 1) * elements(g, n->out[o]);
    return sum;
}

/* The letter to split the node along, or 0. */
static char choose(const sk_graph *g, const sk_layout *l, const sk_sharding *sp, const sk_node *n,
                   int axis)
{
    char found = 0;
    double best = 0;
    for (const char *p = l->split[axis]; *p; p++) {
        if (!fits_weight(sp, n, axis, *p)) continue;
        if (l->by[axis] == SK_BY_EXCHANGE && sk_node_gathers(n, *p)) return exchanged(g, l, n, *p);
        if (!may_split(l, n, *p)) continue;
        if (beside_weight(n, *p)) return *p;
        double cost = 0; /* where there are weights, the first letter is the one */
        if (!has_weight(n)) cost = to_move(g, sp, n, axis, l->mesh.size[axis], *p);
        if (!found || cost < best) best = cost, found = *p;
    }
    return found;
}

static void set(sk_state *s, int axis, const char *letters, unsigned gathered, char letter,
                sk_how otherwise)
{
    bool split = letter && has(letters, gathered, letter);
    s->how[axis] = (uint8_t)(split ? SK_SPLIT : otherwise);
    s->dim[axis] = (uint8_t)(split ? strchr(letters, letter) - letters : 0);
}

static bool all_partial(const sk_sharding *sp, const sk_node *n, int axis)
{
    for (int i = 0; i < n->n_in; i++) {
        const sk_tensor *t = n->in[i];
        if (t->role != SK_VALUE || sp->made[t->id].how[axis] != SK_PARTIAL) return false;
        if (sp->stage[t->from->id] != sp->stage[n->id])
            return false; /* it was reduced before it was sent */
        if (n->phase == SK_FORWARD && t->from->layer != n->layer) return false;
    }
    return true;
}

/* Shards go round one ring only; over a second axis they are gathered. */
static bool goes_round(const sk_layout *l, const sk_node_sharding *s, const sk_node *n, int axis)
{
    for (int a = 0; a < axis; a++)
        if (s->letter[a] && l->by[a] == SK_BY_RING && sk_node_gathers(n, s->letter[a]))
            return false;
    return l->by[axis] == SK_BY_RING;
}

static void one_axis(const sk_graph *g, const sk_layout *l, sk_sharding *sp, const sk_node *n,
                     int axis)
{
    sk_node_sharding *s = &sp->node[n->id];
    bool pass = !l->canonical && n->op->flags & SK_OP_LINEAR && all_partial(sp, n, axis);
    bool idle = pass || axis == l->stage_axis || l->mesh.size[axis] == 1;
    char letter = idle ? 0 : choose(g, l, sp, n, axis);
    sk_assert(!letter || strchr(n->dims, letter));
    sk_how missing = !letter                    ? SK_REPLICATE
                     : n->op->flags & SK_OP_MAX ? SK_PARTIAL_MAX
                                                : SK_PARTIAL;
    s->letter[axis] = letter;
    /* In a ring the shards of a gathered operand come one after the other: it stays split. */
    unsigned gathered = goes_round(l, s, n, axis) ? 0 : ~0u;
    for (int i = 0; i < n->n_in; i++)
        set(&s->in[i], axis, n->letters_in[i], n->gathered_in[i] & gathered, letter,
            pass ? SK_PARTIAL : SK_REPLICATE);
    for (int o = 0; o < n->n_out; o++)
        set(&s->out[o], axis, n->letters_out[o], n->gathered_out[o] & gathered, letter,
            pass ? SK_PARTIAL : missing);
}

/* A memory is split along the first of its letters that the axis splits. */
static void memory_state(const sk_layout *l, const sk_tensor *t, sk_state *s)
{
    for (int axis = 0; axis < l->mesh.n; axis++) {
        if (axis == l->stage_axis || l->mesh.size[axis] == 1) continue;
        for (int d = 0; t->letters[d]; d++) {
            if (s->how[axis] == SK_SPLIT || !sk_layout_splits(l, axis, t->letters[d])) continue;
            s->how[axis] = SK_SPLIT;
            s->dim[axis] = (uint8_t)d;
        }
    }
}

static void note_weights(sk_sharding *sp, const sk_node *n, char *seen)
{
    for (int i = 0; i < n->n_in; i++) {
        const sk_tensor *t = n->in[i];
        if (t->role != SK_PARAM || seen[t->id]) continue;
        seen[t->id] = 1;
        for (int a = 0; a < SK_MAX_AXES; a++)
            if (sp->node[n->id].in[i].how[a] == SK_SPLIT) {
                sp->made[t->id].how[a] = SK_SPLIT;
                sp->made[t->id].dim[a] = sp->node[n->id].in[i].dim[a];
            }
    }
}

/* Partial becomes replicated: extras are reduced as gradients are. */
static sk_state settled(sk_state s)
{
    for (int a = 0; a < SK_MAX_AXES; a++)
        if (s.how[a] != SK_SPLIT) s.how[a] = SK_REPLICATE;
    return s;
}

sk_status sk_propagate(sk_arena *a, const sk_graph *g, const sk_layout *l, const int *place,
                       int n_chunks, sk_sharding *out)
{
    sk_sharding sp = {.n_stages = l->stage_axis < 0 ? 1 : l->mesh.size[l->stage_axis],
                      .n_chunks = n_chunks};
    char *seen = sk_many(a, char, g->tensors.n + 1);
    int *chunk_of = sk_stages_assign(a, g, l, n_chunks);
    sp.node = sk_many(a, sk_node_sharding, g->nodes.n);
    sp.made = sk_many(a, sk_state, g->tensors.n);
    sp.chunk = sk_many(a, int, g->nodes.n);
    sp.stage = sk_many(a, int, g->nodes.n);
    for (int i = 0; i < g->tensors.n; i++)
        if (g->tensors.v[i]->role == SK_MEMORY) memory_state(l, g->tensors.v[i], &sp.made[i]);
    for (int i = 0; i < g->nodes.n; i++) {
        const sk_node *n = g->nodes.v[i];
        sk_assert(n->id == i && n->layer < g->n_layers);
        sp.chunk[i] = chunk_of[n->layer];
        sk_assert(sp.chunk[i] >= 0 && sp.chunk[i] < n_chunks);
        sp.stage[i] = place[sp.chunk[i]];
        for (int axis = 0; axis < l->mesh.n; axis++) one_axis(g, l, &sp, n, axis);
        for (int o = 0; o < n->n_out; o++) {
            sp.made[n->out[o]->id] = sp.node[i].out[o];
            if (n->into[o] && n->into[o]->role == SK_EXTRA)
                sp.made[n->into[o]->id] = settled(sp.node[i].out[o]);
        }
        note_weights(&sp, n, seen);
    }
    *out = sp;
    return SK_OK;
}
