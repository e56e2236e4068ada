/* rank_groups.c - the groups of ranks that collectives of a program are of: one along each axis of
 * the mesh, all ranks, the stages that share a weight, the small groups of a second copy of
 * sharded weights, and pairs of replicas. */
#include "program/lowering.h"
#include "program/sync.h"

#include <string.h>

/* Groups of tied stages are numbered by the order of the parameters that need them, on all ranks.
 */
int sk_plan_tie_group(sk_lowering *e, const sk_stages *set, sk_stages *sets, int *n_sets)
{
    int i = 0;
    if (sk_stages_before(set, SK_MOST_STAGES) < 2) return -1;
    while (i < *n_sets && !sk_stages_equal(&sets[i], set)) i++;
    if (i == *n_sets) sets[(*n_sets)++] = *set;
    return sk_stages_has(set, e->p->stage) ? e->p->world + 1 + i : -1;
}

/* The members of a group along an axis: the stages of a set, or those in the small group of the
 * second copy, or all. */
static void make_group(sk_lowering *e, int i, int axis, const sk_stages *set)
{
    sk_program *p = e->p;
    const sk_mesh *m = &e->l->mesh;
    int n = axis < 0 ? p->n_ranks : m->size[axis], count = 0, *ranks = sk_many(p->arena, int, n);
    int coord[SK_MAX_AXES];
    memcpy(coord, p->coord, sizeof coord);
    p->groups[i].me = -1;
    for (int k = 0; k < n; k++) {
        if (set && !sk_stages_has(set, k)) continue;
        if (i == p->near && i && k / e->l->copy != p->coord[axis] / e->l->copy) continue;
        if (axis >= 0) coord[axis] = k;
        ranks[count] = axis >= 0 ? sk_mesh_rank(m, coord) : k;
        if (ranks[count] == p->rank) p->groups[i].me = count;
        count++;
    }
    p->groups[i].n = count;
    p->groups[i].ranks = ranks;
}

/* A replica and its partner of the round; without a partner the group is empty. */
static void make_pair(sk_lowering *e, int round)
{
    sk_program *p = e->p;
    sk_group *g = &p->groups[p->pairs + round];
    int a = p->pair_axis, me = p->coord[a], other = sk_partner(e->l->mesh.size[a], round, me);
    int coord[SK_MAX_AXES];
    g->me = -1;
    if (other < 0) return;
    memcpy(coord, p->coord, sizeof coord);
    coord[a] = other;
    g->n = 2;
    g->me = other < me;
    int *ranks = sk_many(p->arena, int, 2);
    ranks[g->me] = p->rank;
    ranks[!g->me] = sk_mesh_rank(&e->l->mesh, coord);
    g->ranks = ranks;
}

void sk_plan_rank_groups(sk_lowering *e, const sk_stages *sets, int n_sets)
{
    sk_program *p = e->p;
    int axes = e->l->mesh.n;
    if (sk_lower_sharded(e, SK_SHARD_PARAMS) && e->l->copy > 1) p->near = axes + 1 + n_sets;
    p->pairs = axes + 1 + n_sets + (p->near > 0);
    p->pair_axis = sk_pair_axis(e->l);
    p->n_pairs = p->pair_axis < 0 ? 0 : sk_partner_rounds(e->l->mesh.size[p->pair_axis]);
    p->n_groups = p->pairs + p->n_pairs;
    p->groups = sk_many(p->arena, sk_group, p->n_groups);
    for (int i = 0; i < axes; i++) make_group(e, i, i, NULL);
    make_group(e, p->world, -1, NULL);
    for (int i = 0; i < n_sets; i++) {
        p->groups[p->world + 1 + i].me = -1;
        if (sk_stages_has(&sets[i], p->stage))
            make_group(e, p->world + 1 + i, e->l->stage_axis, &sets[i]);
    }
    if (p->near) make_group(e, p->near, e->l->shard_axis, NULL);
    for (int k = 0; k < p->n_pairs; k++) make_pair(e, k);
}
