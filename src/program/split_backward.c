/* split_backward.c - the two halves of a backward pass (zero-bubble schedules, Qi et al. 2023).
 *
 * The input half makes gradients that earlier layers wait for; the weight half is the rest, nodes
 * that only weight gradients of their own layer wait for.  The backward nodes of a region run at
 * once, so all of them, and what they need, belong to the input half.  A clone of
 * recompute_clones.c belongs to the half of its first reader. */
#include "program/lowering.h"

/* A node whose result another layer reads is in the input half. */
static void mark_crossing(const sk_lowering *e, char *early)
{
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *n = e->g->nodes.v[i];
        for (int k = 0; k < n->n_in && n->phase == SK_BACKWARD; k++)
            if (n->in[k]->from && n->in[k]->from->layer != n->layer) early[n->in[k]->id] = 1;
    }
}

static bool in_region(const sk_lowering *e, const sk_node *n)
{
    return e->plan.region_of && e->plan.region_of[n->id] && !sk_is_clone(e, n);
}

/* Readers first. */
static void split_chunk(sk_lowering *e, const sk_ints *nodes, char *early)
{
    for (int i = nodes->n - 1; i >= 0; i--) {
        const sk_node *n = e->g->nodes.v[nodes->v[i]];
        bool late = !in_region(e, n);
        for (int o = 0; o < n->n_out; o++) late &= n->into[o] || !early[n->out[o]->id];
        e->plan.weight_half[n->id] = late;
        for (int k = 0; k < n->n_in && !late; k++) early[n->in[k]->id] = 1;
    }
}

sk_status sk_split_backward(sk_lowering *e)
{
    char *early = sk_many(e->tmp, char, e->g->tensors.n + 1);
    e->plan.weight_half = sk_many(e->tmp, char, e->g->nodes.n + 1);
    mark_crossing(e, early);
    for (int c = 0; c < e->sp->n_chunks; c++) split_chunk(e, &e->plan.of_chunk[2 * c + 1], early);
    return SK_OK;
}
