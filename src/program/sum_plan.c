/* sum_plan.c - where the sums of the graph (loss, tokens, ...) are added up, and by whom. */
#include "program/lowering.h"

static bool makes(const sk_lowering *e, const sk_tensor *sum)
{
    for (int i = 0; i < e->g->nodes.n; i++)
        for (int o = 0; o < e->g->nodes.v[i]->n_out; o++)
            if (e->g->nodes.v[i]->into[o] == sum && e->sp->stage[i] == e->p->stage) return true;
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

static void plan_sum(sk_lowering *e, int which)
{
    const sk_tensor *t = e->g->sum[which];
    sk_sum_plan *s = &e->p->sums[which];
    sk_arena *a = e->p->arena;
    if (!t || !makes(e, t)) return;
    bool apart = e->l->canonical && which == SK_SUM_LOSS;
    s->counts = counts(e, t);
    s->n = apart ? e->p->n_micro : 1;
    s->buf = sk_many(a, int, s->n);
    s->cell = apart ? sk_many(a, int, s->n) : NULL;
    for (int i = 0; i < s->n; i++) {
        s->buf[i] = sk_lower_piece(e, t, SK_WIRE, &(sk_state){0}, -1);
        e->p->bufs.v[s->buf[i]].keep = true;
        if (apart) s->cell[i] = first_cell(e, t, i);
    }
}

sk_status sk_plan_sums(sk_lowering *e)
{
    for (int w = 0; w < SK_N_SUMS; w++) {
        if (sk_sum_validates(w) && !e->opts->validate) continue;
        if (e->g->sum[w]) e->p->n_sums = w + 1;
        plan_sum(e, w);
    }
    return SK_OK;
}
