/* classes.c - which ranks have equal programs, found without compiling any.
 *
 * A program depends on the rank's stage, on the sizes of its pieces, and, for
 * what it owns, on being first along an axis; where its pieces lie is only a
 * coordinate.  Sizes are looked at letter by letter: along every set of axes that
 * may cut a letter together, in the order in which they cut (sk_layout_cutter).
 * They are worked out once per combination of coordinates, not per rank, so that
 * sixteen thousand ranks take a few milliseconds. */
#include "base/hash.h"
#include "program/program.h"

#include <string.h>

enum { MOST = 1024 }; /* classes */

typedef struct cutter { /* the axes that may cut one letter */
    int axis[SK_MAX_AXES], n;
    uint64_t *key; /* of the sizes, by combination of coordinates */
} cutter;

static uint64_t fold(uint64_t h, int64_t x) { return sk_hash(h, &x, sizeof x); }

/* Optimizer state, gradients or parameters are cut along dim 0 over the shard axis, encoded sums
 * over that axis or another: which one, or -1. */
static int shard_axis(const sk_graph *g, const sk_layout *l)
{
    if (l->shard != SK_SHARD_NONE && l->shard_axis >= 0) return l->shard_axis;
    return *l->grads_as ? sk_layout_code_axis(l, g->batch) : -1;
}

static bool sharded(const sk_graph *g, char letter)
{
    for (int i = 0; i < g->tensors.n; i++)
        if (g->tensors.v[i]->role == SK_PARAM && g->tensors.v[i]->letters[0] == letter) return true;
    return false;
}

/* May attention be cut along `letter` instead of one that it needs whole?  See propagate.c. */
static bool everywhere(const sk_node *n, char letter)
{
    bool all = !strchr(n->not_split, letter) && !sk_node_gathers(n, letter);
    for (int i = 0; i < n->n_in; i++) all &= strchr(n->letters_in[i], letter) != NULL;
    return all;
}

static bool exchanged(const sk_graph *g, const sk_layout *l, int axis, char letter)
{
    if (l->by[axis] != SK_BY_EXCHANGE || letter == g->batch) return false;
    for (int i = 0; i < g->nodes.n; i++) {
        const sk_node *n = g->nodes.v[i];
        for (const char *p = l->split[axis]; *p; p++)
            if (sk_node_gathers(n, *p) && everywhere(n, letter)) return true;
    }
    return false;
}

/* Results that are kept may be cut along any long dim but the batch; see pieces.c. */
static bool kept_in_pieces(const sk_graph *g, const sk_layout *l, int axis, char letter)
{
    return l->partition && sk_layout_repeats(l, axis) && letter != g->batch &&
           g->size[(int)letter & 127] >= l->mesh.size[axis];
}

static void find_axes(const sk_graph *g, const sk_layout *l, char letter, cutter *c)
{
    int shard = sharded(g, letter) ? shard_axis(g, l) : -1;
    for (int k = 0; k < l->mesh.n; k++) {
        int a = sk_layout_cutter(l, letter == g->batch, k);
        bool cuts = sk_layout_splits(l, a, letter) || exchanged(g, l, a, letter) ||
                    kept_in_pieces(g, l, a, letter);
        if (cuts && a != shard && a != l->stage_axis && l->mesh.size[a] > 1) c->axis[c->n++] = a;
    }
    if (shard >= 0 && l->mesh.size[shard] > 1) c->axis[c->n++] = shard; /* what others left */
}

/* The size of a piece that the axes of a set cut out of the k-th of n / pieces; in canonical order
 * the n elements are cells. */
static int64_t size_of(const sk_mesh *m, const cutter *c, const int *coord, unsigned set, int k,
                       int64_t n, int pieces, int cells)
{
    int64_t from, to, size;
    int first = 0, end = cells;
    sk_cut(n, k, pieces, &from, &to);
    sk_tree_part(&first, &end, k, pieces);
    size = to - from;
    for (int i = 0; i < c->n; i++) {
        if (!(set >> i & 1)) continue;
        sk_cut(size, coord[i], m->size[c->axis[i]], &from, &to);
        sk_tree_part(&first, &end, coord[i], m->size[c->axis[i]]);
        size = to - from;
    }
    return cells ? n * end / cells - n * first / cells : size;
}

/* Sizes of all pieces of n that a rank with these coordinates may have. */
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
        int coord[SK_MAX_AXES], rest = at;
        for (int i = 0; i < c->n; i++) {
            coord[i] = rest % m->size[c->axis[i]];
            rest /= m->size[c->axis[i]];
        }
        c->key[at] = sizes(m, c, coord, n, pieces, cells);
    }
}

static int make_cutters(sk_arena *a, const sk_graph *g, const sk_layout *l, int n_micro,
                        cutter *out)
{
    int n = 0;
    for (int letter = 'A'; letter <= 'z'; letter++) {
        cutter c = {0};
        if (g->size[letter] < 1) continue;
        find_axes(g, l, (char)letter, &c);
        if (!c.n) continue;
        int pieces = letter == g->batch && n_micro > 1 ? n_micro : 1;
        int cells = l->canonical ? sk_letter_reduction_blocks(g, (char)letter) : 0;
        fill(a, &l->mesh, &c, g->size[letter], pieces, cells);
        out[n++] = c;
    }
    return n;
}

/* Causal work along time depends on the place, not only on the size, unless it is dealt evenly.
 * Dealt over two axes only the sum is even, not every turn of a ring over one of them. */
static bool uneven_work(const sk_graph *g, const sk_layout *l, int axis)
{
    bool ring = false;
    if (l->split[axis][0] != 't' || l->by[axis] == SK_BY_EXCHANGE || l->mesh.size[axis] == 1)
        return false;
    for (int a = 0; a < l->mesh.n; a++) ring |= l->by[a] == SK_BY_RING;
    return !g->zigzag || g->size['t'] % (2 * g->zigzag) ||
           (ring && g->zigzag != l->mesh.size[axis]);
}

/* Neighbours of a ring pass pieces on: ranks along it are alike, or each is one of its own.  What
 * is kept in pieces may be cut unevenly over it. */
static bool uneven_ring(const sk_layout *l, int axis)
{
    return l->by[axis] == SK_BY_RING && l->partition;
}

static uint64_t key_of(const sk_graph *g, const sk_layout *l, const cutter *c, int n,
                       const int *coord, bool owners)
{
    uint64_t key = 0;
    for (int a = 0; a < l->mesh.n; a++) {
        bool keeps = l->replica && a == l->shard_axis; /* the first has the weights of all */
        if (a == l->stage_axis || uneven_work(g, l, a) || uneven_ring(l, a))
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

static int classify(const sk_graph *g, const sk_layout *l, int n_micro, bool owners, int *class_of)
{
    sk_arena tmp = {0};
    cutter cutters[128];
    uint64_t keys[MOST];
    int n = 0, ranks = sk_mesh_ranks(&l->mesh);
    int n_cutters = make_cutters(&tmp, g, l, n_micro, cutters);
    for (int r = 0; r < ranks; r++) {
        int coord[SK_MAX_AXES], c = 0;
        sk_mesh_coords(&l->mesh, r, coord);
        uint64_t key = key_of(g, l, cutters, n_cutters, coord, owners);
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

int sk_classes(const sk_graph *g, const sk_layout *l, int n_micro, int *class_of)
{
    return classify(g, l, n_micro, true, class_of);
}

int sk_shapes(const sk_graph *g, const sk_layout *l, int n_micro, int *shape_of)
{
    return classify(g, l, n_micro, false, shape_of);
}
