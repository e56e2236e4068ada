/* class_program.c - one program for all ranks of a class. */
#include "program/class_program.h"
#include "program/acts.h"

#include <stdlib.h>
#include <string.h>

bool sk_program_stands(const sk_program *p) { return p->gpu || !p->choices; }

/* --- ranks and their peers --- */

int sk_program_peer(const sk_program *p, int rank, int peer)
{
    const sk_mesh *m = &p->layout.mesh;
    int mine[SK_MAX_AXES], coord[SK_MAX_AXES];
    if (peer < 0 || peer >= p->n_ranks) return -1;
    if (rank == p->rank) return peer;
    sk_mesh_coords(m, rank, mine);
    sk_mesh_coords(m, peer, coord);
    for (int a = 0; a < m->n; a++)
        coord[a] = (coord[a] - p->coord[a] + mine[a] + m->size[a]) % m->size[a];
    return sk_mesh_rank(m, coord);
}

static int by_rank(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* A group is a line of the mesh, or a block of it.  It is shifted to the coordinates of the rank,
 * modulo the length of the line if the group is the whole line. */
int sk_program_members(const sk_program *p, int rank, int group, int *members)
{
    const sk_group *g = &p->groups[group];
    if (rank == p->rank || g->n == p->n_ranks) {
        if (g->n) memcpy(members, g->ranks, sizeof *members * (size_t)g->n);
        return g->n;
    }
    for (int i = 0; i < g->n; i++) members[i] = sk_program_peer(p, rank, g->ranks[i]);
    qsort(members, (size_t)g->n, sizeof *members, by_rank);
    return g->n;
}

int sk_program_weight_owner(const sk_program *p, int rank)
{
    int coord[SK_MAX_AXES];
    if (rank == p->rank) return p->shares_with;
    if (p->shares_with == p->rank) return rank;
    sk_mesh_coords(&p->layout.mesh, rank, coord);
    coord[p->layout.shard_axis] = 0;
    return sk_mesh_rank(&p->layout.mesh, coord);
}

const sk_program *sk_program_as(sk_arena *a, const sk_program *p, int rank)
{
    if (p->rank == rank) return p;
    sk_program *q = sk_new(a, sk_program);
    *q = *p;
    q->rank = rank;
    sk_mesh_coords(&p->layout.mesh, rank, q->coord);
    q->shares_with = sk_program_weight_owner(p, rank);
    q->insts.v = sk_many(a, sk_inst, p->insts.n);
    memcpy(q->insts.v, p->insts.v, sizeof *p->insts.v * (size_t)p->insts.n);
    for (int i = 0; i < p->insts.n; i++) {
        sk_act act = p->insts.v[i].act;
        if (act == SK_DO_SEND || act == SK_DO_RECV || act == SK_DO_SENT)
            q->insts.v[i].peer = sk_program_peer(p, rank, p->insts.v[i].peer);
    }
    return q;
}

/* --- calls --- */

static bool same_grid(const sk_grid *a, const sk_grid *b, bool placed)
{
    bool same = a->full == b->full && a->cells == b->cells && a->to - a->from == b->to - b->from;
    return same && (!placed || a->from == b->from);
}

static bool same_segment(const sk_call_seg *a, const sk_call_seg *b, bool placed)
{
    return a->outer == b->outer && a->n == b->n && a->inner == b->inner && a->swap == b->swap &&
           a->mid == b->mid && a->n2 == b->n2 && same_grid(&a->cut, &b->cut, placed) &&
           same_grid(&a->cut2, &b->cut2, placed);
}

bool sk_call_alike(const sk_call_plan *a, const sk_call_plan *b, bool placed)
{
    bool same = a->kind == b->kind && a->reduce == b->reduce && a->type == b->type &&
                a->n_segs == b->n_segs && !strcmp(a->what, b->what) &&
                a->algorithm == b->algorithm && a->degrees == b->degrees && a->root == b->root &&
                a->common == b->common && a->elements == b->elements;
    for (int s = 0; same && s < a->n_segs; s++)
        same = same_segment(&a->segs[s], &b->segs[s], placed);
    return same;
}

/* --- a program, and that of its class --- */

static sk_status unlike(const sk_program *own, const sk_program *p, const char *what, int i)
{
    return sk_fail(SK_EBUG,
                   "classes: rank %d was taken for one with the program of rank %d, but %s %d "
                   "differs",
                   own->rank, p->rank, what, i);
}

static sk_status same_numbers(const sk_program *a, const sk_program *b)
{
    bool same = a->insts.n == b->insts.n && a->n_train == b->n_train && a->bufs.n == b->bufs.n &&
                a->calls.n == b->calls.n && a->params.n == b->params.n &&
                a->n_extras == b->n_extras && a->stage == b->stage && a->n_groups == b->n_groups &&
                a->world == b->world && a->near == b->near;
    if (!same)
        return unlike(a, b, "the number of instructions, buffers, calls or groups of stage",
                      a->stage);
    bool places = a->heap_bytes == b->heap_bytes && a->file_bytes == b->file_bytes &&
                  a->own_bytes == b->own_bytes && a->shared_bytes == b->shared_bytes &&
                  a->shares_with == sk_program_weight_owner(b, a->rank) && a->stats == b->stats;
    for (int k = 0; places && k < SK_N_KINDS; k++)
        places = a->kind_at[k] == b->kind_at[k] && a->kind_bytes[k] == b->kind_bytes[k];
    return places ? SK_OK : unlike(a, b, "the heap of stage", a->stage);
}

static bool same_group(const sk_program *own, const sk_program *p, int i, int *members)
{
    const sk_group *g = &own->groups[i];
    int n = sk_program_members(p, own->rank, i, members);
    bool same = g->n == n && (g->me < 0) == (p->groups[i].me < 0);
    for (int k = 0; same && k < n; k++) same = g->ranks[k] == members[k];
    return same;
}

/* Ranks of a stage have clones (recompute_clones.c) with equal ids, each its own. */
static bool same_node(const sk_node *a, const sk_node *b)
{
    return a == b || (a && b && a->id == b->id && a->op == b->op);
}

static bool same_inst(const sk_program *own, const sk_program *p, int pc)
{
    const sk_inst *a = &own->insts.v[pc], *b = &p->insts.v[pc];
    bool message = a->act == SK_DO_SEND || a->act == SK_DO_RECV || a->act == SK_DO_SENT;
    return a->act == b->act && same_node(a->node, b->node) && a->add == b->add &&
           a->call == b->call && a->copy == b->copy && a->tag == b->tag && a->sent == b->sent &&
           a->micro == b->micro && a->param == b->param && a->pass == b->pass &&
           sk_insts_due_alike(a, b) && !memcmp(a->in, b->in, sizeof a->in) &&
           !memcmp(a->out, b->out, sizeof a->out) &&
           (!message || a->peer == sk_program_peer(p, own->rank, b->peer));
}

/* Where a part begins depends on the rank's place in the group. */
static bool same_buffer(const sk_buffer *a, const sk_buffer *b)
{
    bool same = a->bytes == b->bytes && a->kind == b->kind && a->type == b->type &&
                a->placement == b->placement && a->keep == b->keep && a->common == b->common &&
                a->within == b->within && a->box.n == b->box.n;
    for (int d = 0; same && d < a->box.n; d++) same = a->box.size[d] == b->box.size[d];
    return same && (a->within >= 0 || a->offset == b->offset);
}

static bool same_param(const sk_param_plan *a, const sk_param_plan *b)
{
    return a->tensor == b->tensor && a->stored == b->stored && a->master == b->master &&
           a->owner == b->owner && a->writes == b->writes && a->tells == b->tells &&
           a->counts == b->counts && a->scalars == b->scalars && a->lead == b->lead &&
           sk_state_equal(&a->used, &b->used) && sk_state_equal(&a->update, &b->update);
}

static sk_status same_lists(const sk_program *own, const sk_program *p)
{
    for (int i = 0; i < p->insts.n; i++)
        if (!same_inst(own, p, i)) return unlike(own, p, "instruction", i);
    for (int i = 0; i < p->bufs.n; i++)
        if (!same_buffer(&own->bufs.v[i], &p->bufs.v[i])) return unlike(own, p, "buffer", i);
    for (int i = 0; i < sk_n_grads(p); i++)
        if (!same_param(&own->params.v[i], &p->params.v[i])) return unlike(own, p, "parameter", i);
    for (int i = 0; i < p->calls.n; i++) {
        const sk_call_plan *a = &own->calls.v[i], *b = &p->calls.v[i];
        if (!sk_call_alike(a, b, false) || a->group != b->group || a->table_at != b->table_at)
            return unlike(own, p, "call", i);
    }
    return SK_OK;
}

sk_status sk_program_alike(const sk_program *own, const sk_program *p)
{
    sk_arena tmp = {0};
    int *members = sk_many(&tmp, int, p->n_ranks);
    sk_status st = same_numbers(own, p);
    for (int i = 0; !st && i < p->n_groups; i++)
        if (!same_group(own, p, i, members)) st = unlike(own, p, "group", i);
    if (!st) st = same_lists(own, p);
    sk_arena_end(&tmp);
    return st;
}
