/* precision.c - the storage type of each tensor.
 *
 * Models are written in f32.  With a narrower type, results and weights are stored in it and
 * kernels still compute in f32: they widen what they read and narrow what they write (op.c).  These
 * stay in f32: the sums of the graph; statistics (op->stats); operands and results of ops that
 * decide on small differences (SK_OP_EXACT: routers, with the weights in front of them); and
 * parameters with a bias update.  Where a GPU kernel needs operands and results of one type
 * (op->types) and one of them stays in f32, all do: for example the sum of two gradients of a
 * router's logits.
 *
 * The products of the blocks with their weights may be taken in 8 bits besides (SK_OP_FP8). */
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

/* Operands and results that a kernel needs in operand 0's type: if one is wide, all are. */
static bool agree(const sk_node *n, sk_dtype narrow)
{
    bool wide = false, changed = false;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < n->n_in + n->n_out; i++) {
            sk_tensor *t = i < n->n_in ? n->in[i] : n->out[i - n->n_in];
            if (sk_op_type(n->op, n->n_in, i) != 'x') continue;
            if (!pass) wide |= t->type == SK_F32;
            else if (wide && t->type == narrow && t->role != SK_INPUT) {
                keep_wide(t, narrow);
                changed = true;
            }
        }
    return changed;
}

void sk_graph_store(sk_graph *g, sk_dtype type)
{
    if (type == SK_F32) return;
    for (int i = 0; i < g->tensors.n; i++) {
        sk_tensor *t = g->tensors.v[i];
        bool trained = t->role == SK_PARAM && t->bias_update == 0;
        if (t->type == SK_F32 && (t->role == SK_VALUE || trained)) t->type = type;
    }
    for (int i = 0; i < g->nodes.n; i++) {
        const sk_node *n = g->nodes.v[i];
        for (int o = 0; o < n->n_out; o++)
            if (n->op->stats >> o & 1 || n->wide || (n->into[o] && n->into[o]->role != SK_PARAM))
                keep_wide(n->out[o], type);
        if (n->op->flags & SK_OP_EXACT) keep_exact(n, type);
    }
    for (int w = 0; w < SK_N_SUMS; w++)
        if (g->sum[w]) keep_wide(g->sum[w], type);
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < g->nodes.n; i++) changed |= agree(g->nodes.v[i], type);
    }
}

/* Does an op that decides on small differences read this? */
static bool decides(const sk_graph *g, const sk_tensor *t)
{
    for (int i = 0; i < g->nodes.n; i++) {
        const sk_node *n = g->nodes.v[i];
        for (int k = 0; k < n->n_in && n->op->flags & SK_OP_EXACT; k++)
            if (n->in[k] == t) return true;
    }
    return false;
}

/* A weight of a block: layer 0 is what comes before the first, the last one is the head's. */
static bool of_block(const sk_graph *g, const sk_tensor *t)
{
    return t->role == SK_PARAM && t->layer > 0 && t->layer < g->n_layers - 1;
}

int sk_graph_fp8(sk_graph *g)
{
    int marked = 0;
    for (int i = 0; i < g->nodes.n; i++) {
        sk_node *n = g->nodes.v[i];
        if (!(n->op->flags & SK_OP_FP8)) continue;
        bool first = of_block(g, n->in[0]), second = of_block(g, n->in[1]);
        if (first == second || n->in[first]->role != SK_VALUE || decides(g, n->out[0])) continue;
        n->attr[0] = 1;
        marked++;
    }
    return marked;
}
