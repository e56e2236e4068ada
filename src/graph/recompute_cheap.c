/* recompute_cheap.c - results that are cheaper to recompute than to keep.
 *
 * A backward node that reads the result of a cheap op (a norm, an activation
 * function) gets a copy of that op right before it, so that the forward result is freed after its
 * last forward use.  The operands of a cheap op are kept anyway: its own gradient reads them. */
#include "graph/graph.h"

#include <string.h>

/* Is the op one of "bias_gelu+layernorm"? */
static bool kept(const sk_graph *g, const char *op)
{
    size_t n = strlen(op);
    for (const char *at = g->keep_ops; *at; at += strcspn(at, "+"), at += *at == '+')
        if (strcspn(at, "+") == n && !strncmp(at, op, n)) return true;
    return false;
}

static bool worth(const sk_graph *g, const sk_node *user, const sk_tensor *t)
{
    const sk_node *maker = t->from;
    return t->role == SK_VALUE && maker->phase == SK_FORWARD && maker->op->flags & SK_OP_CHEAP &&
           !kept(g, maker->op->name) && t == maker->out[0] && maker->layer == user->layer;
}

static sk_tensor *again(sk_graph *g, const sk_node *maker)
{
    sk_call call = {.dims = maker->dims};
    memcpy(call.in, maker->in, sizeof call.in);
    memcpy(call.attr, maker->attr, sizeof call.attr);
    g->layer = maker->layer;
    return sk_apply_at(g, maker->where, maker->op->name, call)->out[0];
}

void sk_graph_recompute(sk_graph *g)
{
    int n = g->nodes.n;
    sk_node **old = g->nodes.v;
    sk_tensor **copy = sk_many(g->arena, sk_tensor *, g->tensors.n);
    g->nodes.v = NULL;
    g->nodes.n = g->nodes.cap = 0;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < old[i]->n_in && old[i]->phase == SK_BACKWARD; k++) {
            sk_tensor *t = old[i]->in[k];
            if (!worth(g, old[i], t)) continue;
            if (!copy[t->id]) copy[t->id] = again(g, t->from);
            old[i]->in[k] = copy[t->id];
        }
        old[i]->id = g->nodes.n;
        *sk_push(g->arena, &g->nodes) = old[i];
    }
}
