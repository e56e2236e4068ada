/* sum_plan.c - where the sums of the graph (loss, tokens, ...) are added up, and by whom. */
#include "program/lowering.h"

static bool adds_to(const sk_node *n, const sk_tensor *sum)
{
    for (int o = 0; o < n->n_out; o++)
        if (n->into[o] == sum) return true;
    return false;
}

/* The next node, from i on, that makes a part of the sum; the number of nodes: none. */
static int next_part(const sk_graph *g, const sk_tensor *sum, int i)
{
    while (i < g->nodes.n && !adds_to(g->nodes.v[i], sum)) i++;
    return i;
}

static bool is_here(const sk_lowering *e, int node) { return e->sp->stage[node] == e->p->stage; }

static bool makes(const sk_lowering *e, const sk_tensor *sum)
{
    for (int i = 0; (i = next_part(e->g, sum, i)) < e->g->nodes.n; i++)
        if (is_here(e, i)) return true;
    return false;
}

/* A sum is counted where it is computed, once along every axis over which it is replicated. */
static bool counts(const sk_lowering *e, const sk_tensor *sum)
{
    const sk_state *s = &e->sp->made[sum->id];
    for (int a = 0; a < e->l->mesh.n; a++)
        if (a != e->l->stage_axis && s->how[a] == SK_REPLICATE && e->p->coord[a]) return false;
    return true;
}

/* The reduction block of the batch at which this rank's shard of a micro-batch begins; -1: it has
 * none. */
static int first_cell(const sk_lowering *e, const sk_tensor *sum, int micro)
{
    const sk_state *made = &e->sp->made[sum->id];
    const char batch[] = {e->g->batch, 0};
    sk_state s = {0};
    for (int a = 0; a < e->l->mesh.n; a++)
        if (made->how[a] == SK_PARTIAL) s.how[a] = SK_SPLIT;
    sk_extent box = sk_shard_of(e->g, e->l, batch, &s, e->p->coord, micro, e->p->n_micro);
    return box.size[0] ? box.cells[0][0] : -1;
}

static int scalar(sk_lowering *e, const sk_tensor *sum)
{
    int buf = sk_lower_piece(e, sum, SK_WIRE, &(sk_state){0}, -1);
    e->p->bufs.v[buf].keep = true;
    return buf;
}

/* Numbers of any size, whose f32 sums depend on their order; the others are counts. */
static bool is_ordered(const sk_lowering *e, int which)
{
    return e->l->canonical && (which == SK_SUM_LOSS || which == SK_SUM_AUX);
}

/* A tree over the blocks of the batch for each node that makes a part, on all ranks alike; scalars
 * for the nodes of this rank, by micro-batch. */
static void plan_trees(sk_lowering *e, const sk_tensor *t, sk_sum_plan *s)
{
    sk_program *p = e->p;
    int most = 0, part = 0;
    for (int i = 0; (i = next_part(e->g, t, i)) < e->g->nodes.n; i++) most++;
    s->tree = p->n_trees;
    s->trees = most;
    s->node = sk_many(p->arena, const sk_node *, most + 1);
    s->buf = sk_many(p->arena, int, most * p->n_micro + 1);
    s->cell = sk_many(p->arena, int, most * p->n_micro + 1);
    for (int i = 0; (i = next_part(e->g, t, i)) < e->g->nodes.n; i++, part++) {
        if (!is_here(e, i)) continue;
        s->node[s->n / p->n_micro] = e->g->nodes.v[i];
        for (int m = 0; m < p->n_micro; m++, s->n++) {
            int block = first_cell(e, t, m);
            s->buf[s->n] = scalar(e, t);
            s->cell[s->n] = block < 0 ? -1 : (s->tree + part) * p->n_blocks + block;
        }
    }
    p->n_trees += most;
}

static void plan_sum(sk_lowering *e, int which)
{
    const sk_tensor *t = e->g->sum[which];
    sk_sum_plan *s = &e->p->sums[which];
    if (!t) return;
    if (is_ordered(e, which)) plan_trees(e, t, s);
    if (!makes(e, t)) return;
    s->counts = counts(e, t);
    if (s->n) return;
    s->n = 1;
    s->buf = sk_many(e->p->arena, int, 1);
    s->buf[0] = scalar(e, t);
}

sk_status sk_plan_sums(sk_lowering *e)
{
    if (e->l->canonical) e->p->n_blocks = sk_letter_reduction_blocks(e->g, e->g->batch);
    for (int w = 0; w < SK_N_SUMS; w++) {
        if (sk_sum_validates(w) && !e->opts->validate) continue;
        if (e->g->sum[w]) e->p->n_sums = w + 1;
        plan_sum(e, w);
    }
    return SK_OK;
}
