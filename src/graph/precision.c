/* precision.c - in which type each tensor is kept.
 *
 * Models are written in f32.  With a narrower type, results and weights are kept in it and kernels
 * still compute in f32: they widen what they read and narrow what they write (kernel.c).  Kept
 * in f32 are the sums of the graph, statistics that an op makes in f32 anyway, what ops that
 * decide on small differences read and make (routers, with the weights in front of them), and what
 * is nudged. */
#include "graph/graph.h"

static void keep_wide(sk_tensor *t, sk_dtype narrow)
{
    if (t->type == narrow && t->role != SK_INPUT) t->type = SK_F32;
}

static void keep_exact(const sk_node *n, sk_dtype narrow)
{
    for (int o = 0; o < n->n_out; o++) keep_wide(n->out[o], narrow);
    for (int i = 0; i < n->n_in; i++) {
        const sk_node *maker = n->in[i]->from;
        keep_wide(n->in[i], narrow);
        for (int k = 0; maker && k < maker->n_in; k++)
            if (maker->in[k]->role == SK_PARAM) keep_wide(maker->in[k], narrow);
    }
}

void sk_graph_store(sk_graph *g, sk_dtype type)
{
    if (type == SK_F32) return;
    for (int i = 0; i < g->tensors.n; i++) {
        sk_tensor *t = g->tensors.v[i];
        bool trained = t->role == SK_PARAM && t->nudge == 0;
        if (t->type == SK_F32 && (t->role == SK_VALUE || trained)) t->type = type;
    }
    for (int i = 0; i < g->nodes.n; i++) {
        const sk_node *n = g->nodes.v[i];
        for (int o = 0; o < n->n_out; o++)
            if (n->op->stats >> o & 1 || (n->into[o] && n->into[o]->role != SK_PARAM))
                keep_wide(n->out[o], type);
        if (n->op->flags & SK_OP_EXACT) keep_exact(n, type);
    }
    for (int w = 0; w < SK_N_SUMS; w++)
        if (g->sum[w]) keep_wide(g->sum[w], type);
}
