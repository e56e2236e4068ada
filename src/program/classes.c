/* classes.c - which ranks have equal programs, found without compiling any.
 *
 * A program depends on the rank's stage, on the sizes of its shards, and, for
 * what it owns, on being first along an axis; where its shards lie is only a
 * coordinate.  Sizes are looked at letter by letter: along every set of axes that
 * cut the letter in some state in use, in the order in which they cut (sk_layout_cutter).
 * States in use are those of nodes, of what is saved in shards, and of what the optimizer
 * updates; what is in between, where a tensor goes from one to another, is cut by some of the same
 * axes.  Sizes are worked out once per combination of coordinates, not per rank, so that
 * sixteen thousand ranks take a few milliseconds. */
#include "base/hash.h"
#include "program/matrix/matrix_placement.h"

#include <string.h>

enum { MOST = 1024 }; /* classes */

typedef struct cutter { /* the axes that cut one letter */
    int axis[SK_MAX_AXES + 2], n;
    int n_local;   /* the first so many are of replicas, which cut before micro-batches do */
    uint64_t *key; /* of the sizes, by combination of coordinates */
} cutter;

typedef struct cuts { /* by letter: the axes that cut it in states in use, as bits */
    const sk_layout *l;
    unsigned of[128];
} cuts;

static uint64_t fold(uint64_t h, int64_t x) { return sk_hash(h, &x, sizeof x); }

/* --- states in use --- */

static void see(cuts *c, const char *letters, const sk_state *s)
{
    for (int a = 0; a < c->l->mesh.n; a++)
        if (s->how[a] == SK_SPLIT && a != c->l->stage_axis && c->l->mesh.size[a] > 1)
            c->of[(int)letters[s->dim[a]] & 127] |= 1u << a;
}

static void see_nodes(cuts *c, const sk_graph_plan *plan)
{
    const sk_graph *g = plan->graph;
    for (int i = 0; i < g->nodes.n; i++) {
        const sk_node *n = g->nodes.v[i];
        const sk_node_sharding *s = &plan->spread.node[i];
        for (int k = 0; k < n->n_in; k++) see(c, n->in[k]->letters, &s->in[k]);
        for (int o = 0; o < n->n_out; o++)
            see(c, n->into[o] ? n->into[o]->letters : n->out[o]->letters, &s->out[o]);
    }
}

/* Tensors as they are made, saved (each as if it were) and updated. */
static void see_tensors(cuts *c, const sk_graph_plan *plan, sk_arena *tmp)
{
    const sk_graph *g = plan->graph;
    sk_sharding sp = plan->spread;
    sk_lowering e = {.g = g, .l = &plan->layout, .opts = &plan->opts, .sp = &sp};
    if (plan->layout.partition && plan->opts.optim) {
        e.plan.cut_after = sk_many(tmp, int, g->tensors.n + 1);
        for (int i = 0; i < g->tensors.n; i++) e.plan.cut_after[i] = 1;
    }
    for (int i = 0; i < g->tensors.n; i++) {
        const sk_tensor *t = g->tensors.v[i];
        sk_state s = sp.made[i];
        see(c, t->letters, &s);
        if (t->role == SK_VALUE && sk_lower_piece_state(&e, t, &s)) see(c, t->letters, &s);
        if (t->role != SK_PARAM && t->role != SK_EXTRA) continue;
        s = sk_update_state(&e, t);
        see(c, t->letters, &s);
    }
}

static bool cuts_rows(const sk_graph_plan *plan, int axis, char letter)
{
    if (axis < 0 || plan->layout.mesh.size[axis] < 2) return false;
    for (int i = 0; i < plan->graph->tensors.n; i++) {
        const sk_tensor *t = plan->graph->tensors.v[i];
        if (t->role == SK_PARAM && t->letters[0] == letter) return true;
    }
    return false;
}

/* Gradients that are encoded, or joined by Adasum, and not sharded over that axis: each rank of the
 * axis sums some of the rows that others left.  Which axis, or -1. */
static int code_axis(const sk_graph_plan *plan, char letter)
{
    const sk_layout *l = &plan->layout;
    const sk_codec *c = plan->plan.grads_as;
    int axis =
        c && !c->low_rank && l->shard_axis < 0 ? sk_layout_code_axis(l, plan->graph->batch) : -1;
    if (l->own_grads) axis = l->own_grads - 1;
    if (axis < 0 && sk_layout_adasum(l) != l->shard_axis) axis = sk_layout_adasum(l);
    return cuts_rows(plan, axis, letter) ? axis : -1;
}

/* The same of what replicas send encoded. */
static int change_axis(const sk_graph_plan *plan, char letter)
{
    int axis = sk_outer_axis(&plan->layout);
    bool coded = axis >= 0 && *plan->layout.sync[axis].codec;
    return coded && cuts_rows(plan, axis, letter) ? axis : -1;
}

static void find_axes(const sk_graph_plan *plan, const cuts *in_use, char letter, cutter *c)
{
    const sk_layout *l = &plan->layout;
    for (int k = 0; k < l->mesh.n; k++) {
        int a = sk_layout_cutter(l, letter, k);
        if (!(in_use->of[(int)letter & 127] >> a & 1)) continue;
        c->axis[c->n++] = a;
        c->n_local += letter == plan->graph->batch && sk_layout_local(l, a);
    }
    int last[] = {code_axis(plan, letter), change_axis(plan, letter)};
    for (int k = 0; k < 2; k++)
        if (last[k] >= 0) c->axis[c->n++] = last[k];
}

/* --- sizes --- */

/* The size of the shard that the axes of a set cut out of the k-th of n / pieces; in canonical
 * order the n elements are reduction blocks. */
static int64_t size_of(const sk_mesh *m, const cutter *c, const int *coord, unsigned set, int k,
                       int64_t n, int pieces, int cells)
{
    int64_t from, to, size = n;
    int first = 0, end = cells;
    for (int i = 0; i <= c->n; i++) {
        if (i == c->n_local) {
            sk_cut(size, k, pieces, &from, &to);
            sk_tree_part(&first, &end, k, pieces);
            size = to - from;
        }
        if (i == c->n || !(set >> i & 1)) continue;
        sk_cut(size, coord[i], m->size[c->axis[i]], &from, &to);
        sk_tree_part(&first, &end, coord[i], m->size[c->axis[i]]);
        size = to - from;
    }
    return cells ? n * end / cells - n * first / cells : size;
}

/* Sizes of all shards of n that a rank with these coordinates may have. */
static uint64_t sizes(const sk_mesh *m, const cutter *c, const int *coord, int64_t n, int pieces,
                      int cells)
{
    uint64_t key = 0;
    for (unsigned set = 1; set < 1u << c->n; set++)
        for (int k = 0; k < pieces; k++)
            key = fold(key, size_of(m, c, coord, set, k, n, pieces, cells));
    return key;
}

static void fill(sk_arena *a, const sk_mesh *m, cutter *c, int64_t n, int pieces, int cells)
{
    int all = 1;
    for (int i = 0; i < c->n; i++) all *= m->size[c->axis[i]];
    c->key = sk_many(a, uint64_t, all);
    for (int at = 0; at < all; at++) {
        int coord[SK_MAX_AXES + 1], rest = at;
        for (int i = 0; i < c->n; i++) {
            coord[i] = rest % m->size[c->axis[i]];
            rest /= m->size[c->axis[i]];
        }
        c->key[at] = sizes(m, c, coord, n, pieces, cells);
    }
}

static int make_cutters(sk_arena *a, const sk_graph_plan *plan, cutter *out)
{
    const sk_graph *g = plan->graph;
    cuts in_use = {.l = &plan->layout};
    int n = 0;
    see_nodes(&in_use, plan);
    see_tensors(&in_use, plan, a);
    for (int letter = 'A'; letter <= 'z'; letter++) {
        cutter c = {0};
        if (g->size[letter] < 1) continue;
        find_axes(plan, &in_use, (char)letter, &c);
        if (!c.n) continue;
        int pieces = letter == g->batch && plan->n_micro > 1 ? plan->n_micro : 1;
        int cells = plan->layout.canonical ? sk_letter_reduction_blocks(g, (char)letter) : 0;
        fill(a, &plan->layout.mesh, &c, g->size[letter], pieces, cells);
        out[n++] = c;
    }
    return n;
}

/* --- keys --- */

/* Causal work along time depends on the place, not only on the size, unless it is dealt evenly.
 * Dealt over two axes only the sum is even, not every step of a ring over one of them. */
static bool uneven_work(const sk_graph *g, const sk_layout *l, int axis)
{
    bool ring = false;
    if (l->split[axis][0] != 't' || l->by[axis] == SK_BY_EXCHANGE || l->mesh.size[axis] == 1)
        return false;
    for (int a = 0; a < l->mesh.n; a++) ring |= l->by[a] == SK_BY_RING;
    return !g->zigzag || g->size['t'] % (2 * g->zigzag) ||
           (ring && g->zigzag != l->mesh.size[axis]);
}

/* Ranks of a ring pass shards on to each other: all ranks along it are of one class, or each is a
 * class of its own.  Saved shards may be split unevenly over it. */
static bool uneven_ring(const sk_layout *l, int axis)
{
    return l->by[axis] == SK_BY_RING && l->partition;
}

/* A ring beside products (overlap_ring.c) goes in shards of time: where its ranks do not divide the
 * time that they have, their sizes go by the place. */
static bool uneven_shards(const sk_graph *g, const sk_layout *l, int axis)
{
    const char *by = l->split[axis];
    int64_t ranks = l->mesh.size[axis];
    if (l->overlap < 2 || ranks < 2 || (by[0] == g->batch && !by[1])) return false;
    for (int a = 0; a < l->mesh.n; a++)
        if (a != axis && strchr(l->split[a], 't')) ranks *= l->mesh.size[a];
    return g->size['t'] % ranks != 0;
}

/* A shard of offloaded gradients is copied with the tiles that it lies in: their number depends on
 * its place, not only on its size. */
static bool placed_in_tiles(const sk_layout *l, int axis)
{
    return l->tiles > 1 && l->home[SK_GRAD] && sk_layout_shards(l, axis);
}

/* Owners of whole matrices have work of their own (distributed_update.c). */
static const sk_matrix_placement *owners_of(const sk_graph_plan *plan, sk_arena *tmp)
{
    sk_sharding sp = plan->spread;
    sk_lowering e = {.g = plan->graph,
                     .l = &plan->layout,
                     .opts = &plan->opts,
                     .sp = &sp,
                     .plan = plan->plan,
                     .tmp = tmp};
    return sk_matrix_placements(&e, tmp);
}

static uint64_t key_of(const sk_graph_plan *plan, const cutter *c, int n, const int *coord,
                       bool owners, const sk_matrix_placement *whole)
{
    const sk_graph *g = plan->graph;
    const sk_layout *l = &plan->layout;
    uint64_t key = 0;
    int pairs = sk_pair_axis(l); /* each has partners of its own */
    if (whole->axis >= 0) {
        int at = coord[whole->axis];
        key = fold(key, at < whole->owners ? at : whole->owners);
    }
    for (int a = 0; a < l->mesh.n; a++) {
        bool keeps = l->replica && a == l->shard_axis; /* the first rank keeps the weights of all */
        if (a == l->stage_axis || uneven_work(g, l, a) || uneven_ring(l, a) ||
            uneven_shards(g, l, a) || placed_in_tiles(l, a) || a == pairs)
            key = fold(key, coord[a]);
        else if (owners || keeps) key = fold(key, coord[a] == 0);
        if (a == l->shard_axis && l->copy > 1) key = fold(key, coord[a] % l->copy);
    }
    for (int k = 0; k < n; k++) {
        int at = 0;
        for (int i = c[k].n - 1; i >= 0; i--)
            at = at * l->mesh.size[c[k].axis[i]] + coord[c[k].axis[i]];
        key = fold(key, (int64_t)c[k].key[at]);
    }
    return key;
}

static int classify(const sk_graph_plan *plan, bool owners, int *class_of)
{
    sk_arena tmp = {0};
    cutter cutters[128];
    uint64_t keys[MOST];
    const sk_mesh *mesh = &plan->layout.mesh;
    int n = 0, ranks = sk_mesh_ranks(mesh), n_cutters = make_cutters(&tmp, plan, cutters);
    const sk_matrix_placement *whole = owners_of(plan, &tmp);
    for (int r = 0; r < ranks; r++) {
        int coord[SK_MAX_AXES], c = 0;
        sk_mesh_coords(mesh, r, coord);
        uint64_t key = key_of(plan, cutters, n_cutters, coord, owners, whole);
        while (c < n && keys[c] != key) c++;
        if (c == MOST) {
            n = -1;
            break;
        }
        if (c == n) keys[n++] = key;
        class_of[r] = c;
    }
    sk_arena_end(&tmp);
    return n;
}

int sk_classes(const sk_graph_plan *plan, int *class_of) { return classify(plan, true, class_of); }

int sk_shapes(const sk_graph_plan *plan, int *shape_of) { return classify(plan, false, shape_of); }

sk_status sk_too_many_shapes(const sk_graph_plan *plan)
{
    return sk_fail(SK_ECONF,
                   "layout: the %d ranks have more than %d different programs, which is the "
                   "limit; take axes that divide train.batch, train.seq and the sizes of the "
                   "model evenly, or fewer ranks",
                   sk_mesh_ranks(&plan->layout.mesh), MOST);
}
