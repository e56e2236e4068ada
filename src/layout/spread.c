/* spread.c - from "which letters are split" to a state for every tensor and node.
 *
 * For each axis a node is cut along at most one of its letters: one that the
 * layout splits over that axis and that the op does not keep whole.  Operands
 * that have the letter come split, the others whole; results that have it are
 * split, the others are partial.  A node without such a letter works on whole
 * operands, except that a linear one passes partial sums on: so gradients of
 * branches are joined first and reduced once. */
#include "layout/layout.h"

#include <string.h>

/* The letter to cut along: one that reaches the first result if there is a choice. */
static char choose(const sk_layout *l, const sk_node *n, int axis)
{
    char found = 0;
    for (const char *p = n->dims; *p; p++) {
        bool letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z');
        if (!letter || !sk_layout_splits(l, axis, *p) || strchr(n->whole, *p)) continue;
        if (strchr(n->letters_out[0], *p)) return *p;
        if (!found) found = *p;
    }
    return found;
}

static void set(sk_state *s, int axis, const char *letters, char letter, sk_how otherwise)
{
    const char *p = letter ? strchr(letters, letter) : NULL;
    s->how[axis] = (uint8_t)(p ? SK_SPLIT : otherwise);
    s->dim[axis] = (uint8_t)(p ? p - letters : 0);
}

static bool all_partial(const sk_spread *sp, const sk_node *n, int axis)
{
    for (int i = 0; i < n->n_in; i++) {
        const sk_tensor *t = n->in[i];
        if (t->role != SK_VALUE || sp->made[t->id].how[axis] != SK_PSUM) return false;
        if (sp->stage[t->from->id] != sp->stage[n->id]) return false; /* it was settled to travel */
    }
    return true;
}

static void one_axis(const sk_layout *l, sk_spread *sp, const sk_node *n, int axis)
{
    sk_spread_node *s = &sp->node[n->id];
    char letter = axis == l->stage_axis || l->mesh.size[axis] == 1 ? 0 : choose(l, n, axis);
    sk_how missing = !letter ? SK_WHOLE : n->op->flags & SK_OP_MAX ? SK_PMAX : SK_PSUM;
    s->letter[axis] = letter;
    bool pass = !letter && n->op->flags & SK_OP_LINEAR && all_partial(sp, n, axis);
    for (int i = 0; i < n->n_in; i++)
        set(&s->in[i], axis, n->letters_in[i], letter, pass ? SK_PSUM : SK_WHOLE);
    for (int o = 0; o < n->n_out; o++)
        set(&s->out[o], axis, n->letters_out[o], letter, pass ? SK_PSUM : missing);
}

/* Parameters lie as their letters say: the first of them that the axis splits. */
static void param_state(const sk_layout *l, const sk_tensor *t, sk_state *s)
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

/* Blocks are dealt to stages evenly; what comes before the first block sits with it, what comes
 * after the last with the last.  Fewer blocks than stages leave some stages empty. */
static int stage_of(const sk_graph *g, int n_stages, int layer)
{
    int blocks = g->n_layers - 2, block = layer - 1;
    if (blocks < 1) return layer * n_stages / (g->n_layers ? g->n_layers : 1);
    if (block < 0) block = 0;
    if (block >= blocks) block = blocks - 1;
    for (int s = 0; s < n_stages; s++) {
        int64_t from, to;
        sk_cut(blocks, s, n_stages, &from, &to);
        if (block >= from && block < to) return s;
    }
    return n_stages - 1;
}

sk_status sk_spread_graph(sk_arena *a, const sk_graph *g, const sk_layout *l, sk_spread *out)
{
    sk_spread sp = {.n_stages = l->stage_axis < 0 ? 1 : l->mesh.size[l->stage_axis]};
    sp.node = sk_many(a, sk_spread_node, g->nodes.n);
    sp.made = sk_many(a, sk_state, g->tensors.n);
    sp.stage = sk_many(a, int, g->nodes.n);
    for (int i = 0; i < g->tensors.n; i++)
        if (g->tensors.v[i]->role == SK_PARAM || g->tensors.v[i]->role == SK_MEMORY)
            param_state(l, g->tensors.v[i], &sp.made[i]);
    for (int i = 0; i < g->nodes.n; i++) {
        const sk_node *n = g->nodes.v[i];
        sp.stage[i] = stage_of(g, sp.n_stages, n->layer);
        for (int axis = 0; axis < l->mesh.n; axis++) one_axis(l, &sp, n, axis);
        for (int o = 0; o < n->n_out; o++) sp.made[n->out[o]->id] = sp.node[i].out[o];
    }
    *out = sp;
    return SK_OK;
}
