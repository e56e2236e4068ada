/* double_tree.c - two binary trees, each for half of the vector (Sanders, Speck and Traeff 2009).
 *
 * In one tree the inner members of the other are leaves, so that everybody's link
 * carries about S in each direction instead of 2 S for some and nothing for others.
 * The vector is cut into pieces that follow each other through the trees, even
 * pieces through the first and odd ones through the second: log n rounds to fill the
 * pipe, then one round for each piece of a tree.
 *
 * Numbers are 0 for the root, then 1 .. n - 1 around from it.  Number v > 0 with the
 * lowest bit b hangs below (v - b) + 2 b, or v - b where that is too large: an in-order
 * tree whose leaves are the odd numbers, under 0.  The second tree is the first
 * with the numbers mirrored (n odd) or shifted by one (n even), which makes odd even.
 * Sums are taken as they come up: an order of its own. */
#include "coll/algorithm.h"

enum { PARTS = 16, CELLS = 4 }; /* pieces; cells of TMP for each tree: 2 come in, 2 sums in turn */

typedef struct tree {
    int parent, child[2], n_children; /* members */
    int depth, deepest;
} tree;

/* --- the trees --- */

static int above(int n, int v)
{
    int bit = v & -v, up = (v ^ bit) | bit << 1;
    return up < n ? up : v ^ bit;
}

/* The number that v plays in tree t, and back. */
static int role(int n, int t, int v)
{
    if (!t || !v) return v;
    return n % 2 ? n - v : v % (n - 1) + 1;
}

static int actor(int n, int t, int r)
{
    if (!t || !r) return r;
    return n % 2 ? n - r : (r + n - 3) % (n - 1) + 1;
}

static int depth_of(int n, int v)
{
    int depth = 0;
    for (; v; v = above(n, v)) depth++;
    return depth;
}

/* Numbers below r; the right one is nearer where the tree is cut off. */
static int below(int n, int r, int child[2])
{
    int half = (r & -r) / 2, k = 0;
    if (!r) half = 1 << sk_log_floor(n - 1);
    if (half && r) child[k++] = r - half;
    while (half && r + half >= n) half /= 2;
    if (half) child[k++] = r + half;
    return k;
}

static tree tree_of(const sk_coll_ask *a, int t, int member)
{
    int n = a->n, root = a->kind == SK_ALLREDUCE ? 0 : a->root;
    int me = role(n, t, (member + n - root) % n);
    tree k = {.depth = depth_of(n, me), .deepest = 1 + sk_log_floor(n - 1)};
    k.parent = (actor(n, t, me ? above(n, me) : 0) + root) % n;
    k.n_children = below(n, me, k.child);
    for (int i = 0; i < k.n_children; i++) k.child[i] = (actor(n, t, k.child[i]) + root) % n;
    return k;
}

static int pieces(const sk_coll_ask *a) { return ((a->parts ? a->parts : PARTS) + 1) / 2; }

/* --- one piece passing one member --- */

typedef struct pass {
    tree k;
    int t, piece, chunk;
} pass;

/* Where the sum of a piece is kept until it was sent. */
static sk_cell sum_at(const sk_coll_ask *a, const pass *p)
{
    bool to_dst = a->kind == SK_ALLREDUCE || !p->k.depth;
    return to_dst ? sk_dst(p->chunk) : sk_tmp(p->t * CELLS + 2 + p->piece % 2);
}

static void collect(sk_steps *s, const pass *p)
{
    const tree *k = &p->k;
    sk_cell in = sk_tmp(p->t * CELLS), mine = sk_src(p->chunk), into = sum_at(&s->ask, p);
    if (k->n_children == 1) sk_steps_recv_sum(s, k->child[0], into, mine, p->chunk, 1);
    if (k->n_children < 2) return;
    sk_steps_recv(s, k->child[0], in, p->chunk, 1);
    sk_steps_recv(s, k->child[1], sk_cell_at(in, 1), p->chunk, 1);
    sk_steps_tree(s, into, in, 3, mine, 2, p->chunk);
}

static void give_up(sk_steps *s, const pass *p)
{
    if (!p->k.depth) return;
    sk_cell sum = p->k.n_children ? sum_at(&s->ask, p) : sk_src(p->chunk);
    sk_steps_send(s, p->k.parent, sum, p->chunk, 1);
}

static void get_down(sk_steps *s, const pass *p)
{
    if (p->k.depth) sk_steps_recv(s, p->k.parent, sk_dst(p->chunk), p->chunk, 1);
}

static void give_down(sk_steps *s, const pass *p)
{
    bool first = s->ask.kind == SK_BROADCAST && !p->k.depth;
    sk_cell have = first ? sk_src(p->chunk) : sk_dst(p->chunk);
    for (int i = 0; i < p->k.n_children; i++) sk_steps_send(s, p->k.child[i], have, p->chunk, 1);
}

/* --- rounds --- */

/* What a member does in a tree, and the round of its first piece; -1: never. */
enum { COLLECT, GIVE_UP, GET_DOWN, GIVE_DOWN, N_DEEDS };
static void (*const deeds[N_DEEDS])(sk_steps *s, const pass *p) = {collect, give_up, get_down,
                                                                   give_down};

static void begin_at(const sk_coll_ask *a, const tree *k, int begin[N_DEEDS])
{
    int height = k->deepest - k->depth, wait = a->kind == SK_ALLREDUCE ? k->deepest : 0;
    bool up = a->kind != SK_BROADCAST, down = a->kind != SK_REDUCE;
    begin[COLLECT] = up && k->n_children ? height - 1 : -1;
    begin[GIVE_UP] = up && k->depth ? height : -1;
    begin[GET_DOWN] = down && k->depth ? wait + k->depth - 1 : -1;
    begin[GIVE_DOWN] = down && k->n_children ? wait + k->depth : -1;
}

static int n_rounds(const sk_coll_ask *a, const tree *k)
{
    return k->deepest * (a->kind == SK_ALLREDUCE ? 2 : 1) + pieces(a) - 1;
}

static void one_round(sk_steps *s, const tree k[2], int begin[2][N_DEEDS], int round)
{
    for (int t = 0; t < 2; t++)
        for (int d = 0; d < N_DEEDS; d++) {
            int piece = round - begin[t][d];
            if (begin[t][d] < 0 || piece < 0 || piece >= pieces(&s->ask)) continue;
            pass p = {.k = k[t], .t = t, .piece = piece, .chunk = 2 * piece + t};
            deeds[d](s, &p);
        }
}

static void build(sk_steps *s)
{
    tree k[2];
    int begin[2][N_DEEDS];
    s->cells = 2 * pieces(&s->ask);
    for (int t = 0; t < 2; t++) {
        k[t] = tree_of(&s->ask, t, s->ask.me);
        begin_at(&s->ask, &k[t], begin[t]);
    }
    for (int r = 0; r < n_rounds(&s->ask, k); r++, sk_steps_next(s)) one_round(s, k, begin, r);
}

/* --- the price: of the member that is busiest, which depends on where the trees end --- */

/* Pieces that pass a member in a round, in and out. */
static void load(const tree *k, const int begin[N_DEEDS], int n, int round, int *in, int *out)
{
    const int much[N_DEEDS] = {k->n_children, 1, 1, k->n_children};
    for (int d = 0; d < N_DEEDS; d++) {
        if (begin[d] < 0 || round < begin[d] || round >= begin[d] + n) continue;
        *(d == COLLECT || d == GET_DOWN ? in : out) += much[d];
    }
}

static sk_coll_cost price_of(const sk_coll_ask *a, int member)
{
    tree k[2];
    int begin[2][N_DEEDS], moved = 0, summed = 0, n = pieces(a);
    for (int t = 0; t < 2; t++) {
        k[t] = tree_of(a, t, member);
        begin_at(a, &k[t], begin[t]);
        if (a->kind != SK_BROADCAST) summed += k[t].n_children * n;
    }
    for (int r = 0; r < n_rounds(a, k); r++) {
        int in = 0, out = 0;
        for (int t = 0; t < 2; t++) load(&k[t], begin[t], n, r, &in, &out);
        moved += in > out ? in : out;
    }
    return (sk_coll_cost){n_rounds(a, k), moved / (2.0 * n), summed / (2.0 * n)};
}

static sk_coll_cost price(const sk_coll_ask *a)
{
    sk_coll_cost most = {0};
    for (int i = 0; i < a->n; i++) {
        sk_coll_cost one = price_of(a, i);
        most.rounds = one.rounds;
        if (one.sent > most.sent) most.sent = one.sent;
        if (one.summed > most.summed) most.summed = one.summed;
    }
    return most;
}

const sk_coll sk_coll_double_tree = {
    .name = "double_tree",
    .doc = "two complementary binary trees, pipelined; any n (Sanders, Speck and Traeff 2009)",
    .cost = "(k/2 + 2 log n) a + about 2S (1 + 2 log n / k) b, for k pieces",
    .kinds = 1u << SK_ALLREDUCE | 1u << SK_BROADCAST | 1u << SK_REDUCE,
    .order = SK_ORDER_OWN,
    .build = build,
    .price = price,
};
