/* blink.c - several trees at once, packed into the links as they are (Wang et al. 2020).
 *
 * Where links differ, a ring or a fixed tree is as fast as its slowest link, and the others idle.
 * From rate[i][j] spanning trees are packed greedily: take the tree whose links have most
 * capacity left (Prim: always the widest link out of the tree; among equals the parent that is
 * free first, which makes it shallow), take half of what the first tree could carry away from
 * each of its links, and begin again, until four trees are packed or the links are used up.  Half,
 * because then trees may share a good link.  The vector's chunks are dealt to the trees in
 * proportion to what they carry; each tree adds up to its root and sends down again, a chunk
 * behind the other.  All-reduce needs both directions of a link, so there the poorer one counts,
 * and each tree begins at the member with most capacity left.
 *
 * Without rates: one chain.  Every member of it receives and sends each byte once in each
 * direction; where all links are alike that is the least for broadcast and reduce, and n/(n-1)
 * of the least for all-reduce.
 *
 * When: message of chunk i from v up to its parent is at time i + up[v], down to v at time
 * i + down[v]; times are rounds.  Children of one parent have different up[], because two that
 * come in one round cannot be added to one cell. */
#include "coll/algorithm.h"

enum { MEMBERS = 256, TREES = 4, CELLS = 16 };

typedef struct tree {
    int root;
    double rate;         /* bytes per second that it carries */
    int first, cells;    /* chunks */
    int order[MEMBERS];  /* as they joined: parents before children */
    int parent[MEMBERS]; /* -1: the root */
    int up[MEMBERS], down[MEMBERS];
    int children[MEMBERS];
    int end; /* time when nothing is left to do, for one chunk */
} tree;

typedef struct forest {
    int cells, n_trees;
    tree tree[TREES];
} forest;

/* --- packing --- */

/* What is left of the link from a member to one that would be its child. */
static double left(const sk_coll_ask *a, const forest *f, int parent, int child)
{
    double down = sk_coll_rate(a, parent, child), up = sk_coll_rate(a, child, parent);
    double r = a->kind == SK_BROADCAST ? down : a->kind == SK_REDUCE ? up : up < down ? up : down;
    for (int t = 0; t < f->n_trees; t++) {
        const tree *o = &f->tree[t];
        bool same = o->parent[child] == parent;
        bool back = a->kind == SK_ALLREDUCE && o->parent[parent] == child;
        if (same || back) r -= o->rate;
    }
    return r;
}

static int centre(const sk_coll_ask *a, const forest *f)
{
    int best = 0;
    double most = -1;
    for (int i = 0; i < a->n; i++) {
        double sum = 0;
        for (int j = 0; j < a->n; j++)
            if (j != i) sum += left(a, f, i, j);
        if (sum > most * (1 + 1e-9)) {
            most = sum;
            best = i;
        }
    }
    return best;
}

/* The best known way into the tree of a member outside it. */
typedef struct way {
    int parent; /* -1: the member is in the tree */
    double wide;
} way;

static bool better(const way *x, const way *y, const int *free_at)
{
    if (x->wide > y->wide * (1 + 1e-9)) return true;
    return x->wide >= y->wide * (1 - 1e-9) && free_at[x->parent] < free_at[y->parent];
}

static void look_again(const sk_coll_ask *a, const forest *f, int v, way *ways, const int *free_at)
{
    for (int j = 0; j < a->n; j++) {
        way w = {v, j == v ? 0 : left(a, f, v, j)};
        if (ways[j].parent >= 0 && better(&w, &ways[j], free_at)) ways[j] = w;
    }
}

/* Grows t; returns its narrowest link, 0 if there is no tree. */
static double grow(const sk_coll_ask *a, const forest *f, tree *t)
{
    way ways[MEMBERS];
    int free_at[MEMBERS] = {0}; /* when a member could send on */
    double narrow = -1;
    for (int j = 0; j < a->n; j++)
        ways[j] = (way){t->root, j == t->root ? 0 : left(a, f, t->root, j)};
    ways[t->root].parent = t->parent[t->root] = -1;
    t->order[0] = t->root;
    for (int k = 1; k < a->n; k++) {
        int v = -1;
        for (int j = 0; j < a->n; j++)
            if (ways[j].parent >= 0 && (v < 0 || better(&ways[j], &ways[v], free_at))) v = j;
        if (ways[v].wide <= 0) return 0;
        if (narrow < 0 || ways[v].wide < narrow) narrow = ways[v].wide;
        t->order[k] = v;
        t->parent[v] = ways[v].parent;
        free_at[v] = ++free_at[ways[v].parent];
        ways[v].parent = -1;
        look_again(a, f, v, ways, free_at);
    }
    return narrow;
}

static void pack(const sk_coll_ask *a, forest *f)
{
    double unit = 0;
    while (f->n_trees < TREES) {
        tree *t = &f->tree[f->n_trees];
        t->root = a->kind == SK_ALLREDUCE ? centre(a, f) : a->root;
        double wide = grow(a, f, t);
        if (f->n_trees == 0) unit = wide / 2;
        t->rate = wide < unit ? wide : unit;
        if (t->rate <= 1e-2 * unit) return;
        f->n_trees++;
    }
}

static void chain(const sk_coll_ask *a, forest *f)
{
    tree *t = &f->tree[0];
    f->n_trees = 1;
    t->root = a->kind == SK_ALLREDUCE ? 0 : a->root;
    t->rate = 1;
    for (int k = 0; k < a->n; k++) {
        t->order[k] = (t->root + k) % a->n;
        t->parent[t->order[k]] = k ? t->order[k - 1] : -1;
    }
}

/* --- times --- */

static void set_times(const sk_coll_ask *a, tree *t)
{
    int ready[MEMBERS] = {0}; /* when a member has added what its children sent */
    for (int k = a->n - 1; k > 0; k--) {
        int v = t->order[k], p = t->parent[v];
        t->up[v] = ready[v] > ready[p] ? ready[v] : ready[p];
        ready[p] = t->up[v] + 1;
        t->children[p]++;
    }
    t->end = a->kind == SK_BROADCAST ? 0 : ready[t->root];
    int begin = t->end;
    if (a->kind == SK_REDUCE) return;
    for (int k = 1; k < a->n; k++) {
        int v = t->order[k], p = t->parent[v];
        t->down[v] = p == t->root ? begin : t->down[p] + 1;
        if (t->down[v] >= t->end) t->end = t->down[v] + 1;
    }
}

/* Chunks to trees, as their rates are; the cuts are rounded, so that nothing is lost. */
static void deal(forest *f)
{
    double all = 0, sum = 0;
    int at = 0;
    for (int t = 0; t < f->n_trees; t++) all += f->tree[t].rate;
    for (int t = 0; t < f->n_trees; t++) {
        sum += f->tree[t].rate;
        int end = t == f->n_trees - 1 ? f->cells : (int)(f->cells * sum / all + 0.5);
        f->tree[t].first = at;
        f->tree[t].cells = end - at;
        at = end;
    }
}

static int usual_cells(const sk_coll_ask *a) { return a->parts > 0 ? a->parts : CELLS; }

static void make_forest(const sk_coll_ask *a, forest *f)
{
    f->cells = usual_cells(a);
    if (a->rate) pack(a, f);
    else chain(a, f);
    for (int t = 0; t < f->n_trees; t++) set_times(a, &f->tree[t]);
    deal(f);
}

/* --- steps --- */

/* Where sums are made: TMP on members that have no DST in this kind. */
static sk_cell sum_at(const sk_steps *s, const tree *t, int chunk)
{
    bool here = s->ask.kind == SK_ALLREDUCE || s->ask.me == t->root;
    return here ? sk_dst(chunk) : sk_tmp(chunk);
}

/* The chunk that tree t moves at this time with an offset; -1: none. */
static int chunk_at(const tree *t, int time, int offset)
{
    int i = time - offset;
    return i >= 0 && i < t->cells ? t->first + i : -1;
}

static void add_up(sk_steps *s, const tree *t, int time)
{
    int me = s->ask.me, n = s->ask.n, c = chunk_at(t, time, t->up[me]);
    if (me != t->root && c >= 0)
        sk_steps_send(s, t->parent[me], t->children[me] ? sum_at(s, t, c) : sk_src(c), c, 1);
    bool first = true; /* the child that comes first is the one that joined last */
    for (int k = n - 1; k > 0; k--) {
        int v = t->order[k];
        if (t->parent[v] != me) continue;
        c = chunk_at(t, time, t->up[v]);
        if (c >= 0)
            sk_steps_recv_sum(s, v, sum_at(s, t, c), first ? sk_src(c) : sum_at(s, t, c), c, 1);
        first = false;
    }
}

static void send_down(sk_steps *s, const tree *t, int time)
{
    int me = s->ask.me, c = chunk_at(t, time, t->down[me]);
    if (me != t->root && c >= 0) sk_steps_recv(s, t->parent[me], sk_dst(c), c, 1);
    for (int k = 1; k < s->ask.n; k++) {
        int v = t->order[k];
        if (t->parent[v] != me) continue;
        c = chunk_at(t, time, t->down[v]);
        if (c >= 0) sk_steps_send(s, v, sk_dst(c), c, 1);
    }
}

static int rounds_of(const forest *f)
{
    int most = 0;
    for (int t = 0; t < f->n_trees; t++) {
        int r = f->tree[t].end + f->tree[t].cells - 1;
        if (f->tree[t].cells && r > most) most = r;
    }
    return most;
}

static void build(sk_steps *s)
{
    forest *f = sk_new(s->arena, forest);
    make_forest(&s->ask, f);
    s->cells = f->cells;
    for (int time = 0, end = rounds_of(f); time < end; time++) {
        for (int t = 0; t < f->n_trees; t++) {
            if (s->ask.kind != SK_BROADCAST) add_up(s, &f->tree[t], time);
            if (s->ask.kind != SK_REDUCE) send_down(s, &f->tree[t], time);
        }
        sk_steps_next(s);
    }
}

/* Can the root reach, or be reached by, all? */
static bool linked(const sk_coll_ask *a)
{
    forest none = {.n_trees = 0};
    tree t = {.root = a->kind == SK_ALLREDUCE ? 0 : a->root};
    return grow(a, &none, &t) > 0;
}

static bool can(const sk_coll_ask *a) { return a->n <= MEMBERS && (!a->rate || linked(a)); }

/* --- prices --- */

typedef struct load { /* messages of a member: in this round, and so far */
    int in, out;
    int moved, summed;
} load;

static void load_round(const sk_coll_ask *a, const tree *t, int time, load *l)
{
    for (int k = 1; k < a->n; k++) {
        int v = t->order[k], p = t->parent[v];
        bool up = a->kind != SK_BROADCAST && chunk_at(t, time, t->up[v]) >= 0;
        bool down = a->kind != SK_REDUCE && chunk_at(t, time, t->down[v]) >= 0;
        l[v].in += down;
        l[v].out += up;
        l[p].in += up;
        l[p].out += down;
        l[p].summed += up;
    }
}

static sk_coll_cost price_trees(const sk_coll_ask *a)
{
    forest f = {.cells = 0};
    load l[MEMBERS] = {{0}};
    make_forest(a, &f);
    sk_coll_cost cost = {rounds_of(&f), 0, 0};
    for (int time = 0; time < cost.rounds; time++) {
        for (int t = 0; t < f.n_trees; t++) load_round(a, &f.tree[t], time, l);
        for (int v = 0; v < a->n; v++) {
            l[v].moved += l[v].in > l[v].out ? l[v].in : l[v].out;
            l[v].in = l[v].out = 0;
        }
    }
    for (int v = 0; v < a->n; v++) {
        double moved = (double)l[v].moved / f.cells, summed = (double)l[v].summed / f.cells;
        if (moved > cost.sent) cost.sent = moved;
        if (summed > cost.summed) cost.summed = summed;
    }
    return cost;
}

/* A chain of n - 1 links and p chunks, one behind the other.  A member inside it begins to send
 * one round after it begins to receive, so p chunks keep it busy for p + 1 rounds: once in
 * broadcast and reduce, twice in all-reduce (which for 2 chunks and 3 members follow each other
 * without a gap).  With two members there is no inside. */
static sk_coll_cost price(const sk_coll_ask *a)
{
    if (a->rate) return price_trees(a);
    double n = a->n, p = usual_cells(a), gap = n > 2;
    if (a->kind != SK_ALLREDUCE)
        return (sk_coll_cost){p + n - 2, (p + gap) / p, a->kind == SK_REDUCE ? 1 : 0};
    double busy = n == 2 ? p + 1 : n == 3 && p == 2 ? 2 * p + 1 : 2 * p + 2;
    return (sk_coll_cost){p + 2 * n - 3, busy / p, 1};
}

const sk_coll sk_coll_blink = {
    .name = "blink",
    .doc = "up to four trees packed into uneven links (Wang et al. 2020)",
    .cost = "links alike, p chunks: (p + 2n-3) a + 2S(p+1)/p b; else read off the packed trees",
    .kinds = 1u << SK_ALLREDUCE | 1u << SK_BROADCAST | 1u << SK_REDUCE,
    .order = SK_ORDER_OWN,
    .can = can,
    .build = build,
    .price = price,
};
