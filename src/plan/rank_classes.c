/* rank_classes.c - partition refinement over the mesh. */
#include "plan/rank_classes.h"
#include "base/hash.h"
#include "program/class_program.h"

#include <string.h>

static uint64_t mix(uint64_t h, uint64_t x) { return sk_hash(h, &x, sizeof x); }

typedef struct peers { /* whom the programs of a shape exchange messages with, once each */
    int *v, n, cap;
} peers;

typedef struct refinement {
    const sk_ranks_in *in;
    const sk_layout *l;
    const sk_machine *m;
    peers *peers;         /* by shape */
    int n, size;          /* ranks; places in the hash table, a power of two */
    uint64_t *now, *next; /* hashes of the ranks: what each has seen so far */
    uint64_t *keys;       /* hash table: marks seen */
    int *ids;             /* and their classes; -1: free */
} refinement;

/* Numbers for marks, in order of first appearance. */
static int number(refinement *f, const uint64_t *marks, int *class_of)
{
    int n = 0;
    memset(f->ids, -1, sizeof *f->ids * (size_t)f->size);
    for (int r = 0; r < f->n; r++) {
        unsigned at = (unsigned)marks[r] & (unsigned)(f->size - 1);
        while (f->ids[at] >= 0 && f->keys[at] != marks[r]) at = (at + 1) & (unsigned)(f->size - 1);
        if (f->ids[at] < 0) {
            f->keys[at] = marks[r];
            f->ids[at] = n++;
        }
        class_of[r] = f->ids[at];
    }
    return n;
}

/* A hash of the classes and hosts that the members of one group see in it. */
static uint64_t group_mark(const refinement *f, int first, int axis, int stride, int members)
{
    uint64_t ordered = 0, any = 0;
    int host = -1, hosts = 0;
    for (int k = 0; k < members; k++) {
        int r = first + k * stride, here = r / f->m->ranks_per_host;
        hosts += here != host;
        host = here;
        ordered = mix(ordered, (uint64_t)hosts);
        if (axis == f->l->stage_axis) ordered = mix(ordered, f->now[r]);
        else any += mix(1, f->now[r]);
    }
    return mix(ordered, any);
}

/* `members` ranks side by side along an axis are a group; its hash is computed once, at the first.
 */
static void mark_groups(refinement *f, int axis, int stride, int members)
{
    for (int r = 0; r < f->n; r++) {
        if (r / stride % f->l->mesh.size[axis] % members) continue;
        uint64_t mark = group_mark(f, r, axis, stride, members);
        for (int k = 0; k < members; k++)
            f->next[r + k * stride] = mix(f->next[r + k * stride], mark);
    }
}

/* --- messages --- */

static void add_peer(sk_arena *a, peers *p, int peer)
{
    for (int i = 0; i < p->n; i++)
        if (p->v[i] == peer) return;
    *(int *)sk_push(a, p) = peer;
}

static void find_peers(sk_arena *a, const sk_program *p, peers *out)
{
    for (int i = 0; i < p->insts.n; i++) {
        sk_act act = p->insts.v[i].act;
        if (act == SK_DO_SEND || act == SK_DO_RECV || act == SK_DO_SENT)
            add_peer(a, out, p->insts.v[i].peer);
    }
}

static void find_all_peers(sk_arena *a, refinement *f)
{
    int shapes = 0;
    for (int r = 0; r < f->n; r++)
        if (f->in->shape_of[r] >= shapes) shapes = f->in->shape_of[r] + 1;
    f->peers = sk_many(a, peers, shapes);
    for (int i = 0; i < shapes; i++) find_peers(a, f->in->programs[i], &f->peers[i]);
}

/* Peers in the order of the program, which ranks of a shape share. */
static void mark_peers(refinement *f)
{
    for (int r = 0; r < f->n; r++) {
        int shape = f->in->shape_of[r];
        for (int i = 0; i < f->peers[shape].n; i++) {
            int peer = sk_program_peer(f->in->programs[shape], r, f->peers[shape].v[i]);
            bool here = r / f->m->ranks_per_host == peer / f->m->ranks_per_host;
            f->next[r] = mix(mix(f->next[r], f->now[peer]), here);
        }
    }
}

static void round_of(refinement *f)
{
    const sk_mesh *m = &f->l->mesh;
    int stride = 1;
    memcpy(f->next, f->now, sizeof *f->now * (size_t)f->n);
    for (int a = m->n - 1; a >= 0; a--) {
        mark_groups(f, a, stride, m->size[a]);
        if (a == f->l->shard_axis && f->l->copy > 1) mark_groups(f, a, stride, f->l->copy);
        stride *= m->size[a];
    }
    mark_peers(f);
    uint64_t *swap = f->now;
    f->now = f->next;
    f->next = swap;
}

int sk_rank_classes(const sk_ranks_in *in, int *class_of)
{
    sk_arena tmp = {0};
    const sk_layout *l = &in->programs[0]->layout;
    refinement f = {.in = in, .l = l, .m = in->machine, .n = sk_mesh_ranks(&l->mesh), .size = 16};
    while (f.size < 2 * f.n) f.size *= 2;
    f.now = sk_many(&tmp, uint64_t, f.n);
    f.next = sk_many(&tmp, uint64_t, f.n);
    f.keys = sk_many(&tmp, uint64_t, f.size);
    f.ids = sk_many(&tmp, int, f.size);
    find_all_peers(&tmp, &f);
    for (int r = 0; r < f.n; r++)
        f.now[r] = mix(in->marks ? in->marks[r] : 0, (uint64_t)in->shape_of[r]);
    for (int before = 0, n = number(&f, f.now, class_of); n != before;) {
        before = n;
        round_of(&f);
        n = number(&f, f.now, class_of);
    }
    int n = number(&f, f.now, class_of);
    sk_arena_end(&tmp);
    return n;
}
