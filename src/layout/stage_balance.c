/* stage_balance.c - see stage_balance.h. */
#include "layout/stage_balance.h"
#include "layout/layout.h"

#include <string.h>

static int even(const sk_graph *g, int n_chunks, int layer)
{
    int blocks = g->n_layers - 2, block = layer - 1;
    if (blocks < 1) return layer * n_chunks / (g->n_layers ? g->n_layers : 1);
    if (block < 0) block = 0;
    if (block >= blocks) block = blocks - 1;
    for (int s = 0; s < n_chunks; s++) {
        int64_t from, to;
        sk_cut(blocks, s, n_chunks, &from, &to);
        if (block >= from && block < to) return s;
    }
    return n_chunks - 1;
}

/* --- by cost --- */

static sk_view not_split(const sk_graph *g, const sk_tensor *t, const char *letters)
{
    sk_view v = {.type = t->type, .n = (int)strlen(letters)};
    for (int d = 0; d < v.n; d++) v.size[d] = v.full[d] = g->size[(int)letters[d] & 127];
    sk_view_dense(&v);
    return v;
}

static double node_cost(const sk_graph *g, const sk_node *n)
{
    sk_args a = {.n_in = n->n_in, .n_out = n->n_out, .dims = n->dims, .of = 1};
    for (int i = 0; i < n->n_in; i++) a.in[i] = not_split(g, n->in[i], n->letters_in[i]);
    for (int o = 0; o < n->n_out; o++) a.out[o] = not_split(g, n->out[o], n->letters_out[o]);
    memcpy(a.attr, n->attr, sizeof a.attr);
    return sk_op_flops(n->op, &a);
}

/* How many chunks are needed if none may cost more than `most`. */
static int chunks_under(const double *cost, int n, double most, int *chunk_of)
{
    double sum = 0;
    int chunk = 0;
    for (int i = 0; i < n; i++) {
        if (sum > 0 && sum + cost[i] > most) {
            chunk++;
            sum = 0;
        }
        sum += cost[i];
        chunk_of[i] = chunk;
    }
    return chunk + 1;
}

/* The least `most`, by bisection. */
static void balanced(const double *cost, int n, int n_chunks, int *chunk_of)
{
    double lo = 0, hi = 0;
    for (int i = 0; i < n; i++) {
        if (cost[i] > lo) lo = cost[i];
        hi += cost[i];
    }
    if (chunks_under(cost, n, lo, chunk_of) <= n_chunks) return;
    for (int k = 0; k < 100; k++) {
        double mid = lo + (hi - lo) / 2;
        if (chunks_under(cost, n, mid, chunk_of) <= n_chunks) hi = mid;
        else lo = mid;
    }
    chunks_under(cost, n, hi, chunk_of);
}

int *sk_stages_assign(sk_arena *a, const sk_graph *g, int n_chunks, bool balance)
{
    int *chunk_of = sk_many(a, int, g->n_layers + 1);
    double *cost = sk_many(a, double, g->n_layers + 1);
    if (!balance) {
        for (int i = 0; i < g->n_layers; i++) chunk_of[i] = even(g, n_chunks, i);
        return chunk_of;
    }
    for (int i = 0; i < g->nodes.n; i++) cost[g->nodes.v[i]->layer] += node_cost(g, g->nodes.v[i]);
    balanced(cost, g->n_layers, n_chunks, chunk_of);
    for (int i = 0; i < g->n_layers; i++) sk_assert(chunk_of[i] >= 0 && chunk_of[i] < n_chunks);
    return chunk_of;
}
