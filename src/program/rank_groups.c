/* rank_groups.c - the groups of ranks that collectives of a program are of: one along each axis of
 * the mesh, all ranks, the stages that share a weight, the small groups of a second copy of
 * sharded weights, and pairs of replicas. */
#include "program/lowering.h"
#include "program/sync.h"

#include <string.h>

/* Groups of tied stages are numbered by the order of the parameters that need them, on all ranks.
 */
int sk_plan_tie_group(sk_lowering *e, uint64_t set, uint64_t *sets, int *n_sets)
{
    int i = 0;
    if ((set & (set - 1)) == 0) return -1;
    while (i < *n_sets && sets[i] != set) i++;
    if (i == *n_sets) sets[(*n_sets)++] = set;
    return (set >> e->p->stage & 1) ? e->p->world + 1 + i : -1;
}

/* The members of a group along an axis: the stages of a set, or those in the small group of the
 * second copy, or all. */
static void make_group(sk_lowering *e, int i, int axis, uint64_t set)
{
    sk_program *p = e->p;
    const sk_mesh *m = &e->l->mesh;
    int n = axis < 0 ? p->n_ranks : m->size[axis], count = 0, *ranks = sk_many(p->arena, int, n);
    int coord[SK_MAX_AXES];
    memcpy(coord, p->coord, sizeof coord);
    p->groups[i].me = -1;
    for (int k = 0; k < n; k++) {
        if (i > p->world && i != p->near && !(set >> k & 1)) continue;
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

void sk_plan_rank_groups(sk_lowering *e, const uint64_t *sets, int n_sets)
{
    sk_program *p = e->p;
    int axes = e->l->mesh.n;
    if (sk_lower_sharded(e, SK_SHARD_PARAMS) && e->l->copy > 1) p->near = axes + 1 + n_sets;
    p->pairs = axes + 1 + n_sets + (p->near > 0);
    p->pair_axis = sk_pair_axis(e->l);
    p->n_pairs = p->pair_axis < 0 ? 0 : sk_partner_rounds(e->l->mesh.size[p->pair_axis]);
    p->n_groups = p->pairs + p->n_pairs;
    p->groups = sk_many(p->arena, sk_group, p->n_groups);
    for (int i = 0; i < axes; i++) make_group(e, i, i, 0);
    make_group(e, p->world, -1, 0);
    for (int i = 0; i < n_sets; i++) {
        p->groups[p->world + 1 + i].me = -1;
        if (sets[i] >> p->stage & 1) make_group(e, p->world + 1 + i, e->l->stage_axis, sets[i]);
    }
    if (p->near) make_group(e, p->near, e->l->shard_axis, 0);
    for (int k = 0; k < p->n_pairs; k++) make_pair(e, k);
}
