/* edges.c - who reads each tensor, on which stage and in which phase, from one look at the graph.
 */
#include "program/lowering.h"

/* What the passes ask about a tensor many times is found here in one pass over the graph. */
static void index_tensors(sk_lowering *e)
{
    int all = e->g->tensors.n;
    sk_stages *read_by = sk_many(e->tmp, sk_stages, all);
    sk_stages *read_forward = sk_many(e->tmp, sk_stages, all);
    unsigned *as_part = sk_many(e->tmp, unsigned, all);
    sk_state *grad_made = sk_many(e->tmp, sk_state, all);
    for (int i = e->g->nodes.n - 1; i >= 0; i--) { /* the first contribution has the last word */
        const sk_node *n = e->g->nodes.v[i];
        for (int k = 0; k < n->n_in; k++) {
            int t = n->in[k]->id;
            sk_stages_add(&read_by[t], e->sp->stage[i]);
            if (n->phase == SK_FORWARD) sk_stages_add(&read_forward[t], e->sp->stage[i]);
            for (int a = 0; a < e->l->mesh.n; a++)
                if (e->sp->node[i].in[k].how[a] == SK_PARTIAL) as_part[t] |= 1u << a;
        }
        for (int o = n->n_out - 1; o >= 0; o--) {
            if (!n->into[o]) continue;
            grad_made[n->into[o]->id] = e->sp->node[i].out[o];
        }
    }
    e->plan.read_by = read_by;
    e->plan.read_forward = read_forward;
    e->plan.as_part = as_part;
    e->plan.grad_made = grad_made;
}

static void index_chunks(sk_lowering *e)
{
    sk_ints *of_chunk = sk_many(e->tmp, sk_ints, 2 * e->sp->n_chunks);
    for (int i = 0; i < e->g->nodes.n; i++) {
        bool backward = e->g->nodes.v[i]->phase == SK_BACKWARD;
        *sk_push(e->tmp, &of_chunk[2 * e->sp->chunk[i] + backward]) = i;
    }
    e->plan.of_chunk = of_chunk;
}

static void index_layers(sk_lowering *e)
{
    char *crosses = sk_many(e->tmp, char, e->g->tensors.n + 1);
    int *stage_of_layer = sk_many(e->tmp, int, e->g->n_layers + 1);
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *n = e->g->nodes.v[i];
        if (n->phase != SK_FORWARD) continue;
        stage_of_layer[n->layer] = e->sp->stage[i];
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k]->from && n->in[k]->from->layer != n->layer) crosses[n->in[k]->id] = 1;
    }
    e->plan.crosses = crosses;
    e->plan.stage_of_layer = stage_of_layer;
}

sk_status sk_find_edges(sk_lowering *e)
{
    index_tensors(e);
    index_chunks(e);
    index_layers(e);
    return SK_OK;
}
