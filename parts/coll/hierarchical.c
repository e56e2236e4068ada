/* hierarchical.c - by axes: first among the ranks of a host, then between hosts.
 *
 * BlueConnect (Cho et al. 2019), the 2-D torus of Mikami et al. (2018), Horovod's hierarchical
 * all-reduce.  A member is a number with one digit for each axis, slowest first.  Reduce-scatter
 * goes along the fastest axis, then along the next one on what is left, ...; all-gather comes
 * back the same way.  The bytes are those of any all-reduce, but the slow links, those of
 * the slowest axis, carry only 1/a of them, where a is the number of members below it.
 *
 * Inside an axis everybody sends to everybody in one round and adds in the order of the tree.
 * The tree of n members has the trees of aligned blocks of 2^k members inside it, and members that
 * differ only in fast digits are such a block if the fast axes are powers of two.  So the sum has
 * the order of the tree for any slowest axis, and other fast axes are declined.
 *
 * Chunk i belongs to member i, except in all-reduce, where nobody sees who owns what: there
 * chunks are numbered with the digits turned round, so that what a member gathers lies in a row
 * and goes in one message.  Sums are taken chunk by chunk, which the tree step asks for. */
#include "coll/algorithm.h"

typedef struct mesh {
    int n, k; /* members; axes longer than 1 */
    int size[SK_COLL_AXES], digit[SK_COLL_AXES];
    int stride[SK_COLL_AXES]; /* between members that are neighbours along the axis */
    int weight[SK_COLL_AXES]; /* of the digit in the number of a chunk */
    int held[SK_COLL_AXES];   /* chunks that are a member's before it gathers along the axis */
    int apart[SK_COLL_AXES];  /* and from one of these to the next */
} mesh;

typedef struct part { /* chunks first, first + apart, ... */
    int first, apart, n;
} part;

/* The ask's axes, or n as the least uneven product with a power of two. */
static int axes_of(const sk_coll_ask *a, int size[SK_COLL_AXES])
{
    int k = 0, fast = 1;
    for (int j = 0; j < a->n_axes; j++)
        if (a->axes[j] != 1) size[k++] = a->axes[j];
    if (a->n_axes) return k;
    while (a->n % (2 * fast) == 0 && 2 * fast + a->n / (2 * fast) < fast + a->n / fast) fast *= 2;
    if (a->n / fast > 1) size[k++] = a->n / fast;
    if (fast > 1) size[k++] = fast;
    return k;
}

static bool can(const sk_coll_ask *a)
{
    int size[SK_COLL_AXES], k = axes_of(a, size);
    for (int j = 1; j < k; j++)
        if (!sk_power_of_two(size[j])) return false;
    return true;
}

static mesh mesh_of(const sk_coll_ask *a)
{
    mesh m = {.n = a->n};
    m.k = axes_of(a, m.size);
    for (int j = m.k - 1, stride = 1; j >= 0; stride *= m.size[j--]) {
        m.stride[j] = stride;
        m.digit[j] = a->me / stride % m.size[j];
    }
    bool turned = a->kind == SK_ALLREDUCE;
    for (int j = 0, held = 1; j < m.k; held *= m.size[j++]) {
        m.held[j] = held;
        m.weight[j] = turned ? held : m.stride[j];
        m.apart[j] = turned || j == 0 ? 1 : m.stride[j - 1];
    }
    return m;
}

static int peer(const sk_steps *s, const mesh *m, int axis, int digit)
{
    return s->ask.me + (digit - m->digit[axis]) * m->stride[axis];
}

/* What is held before gathering along the axis by the one with this digit on it. */
static part part_of(const mesh *m, int axis, int digit)
{
    int first = digit * m->weight[axis];
    for (int j = axis + 1; j < m->k; j++) first += m->digit[j] * m->weight[j];
    return (part){first, m->apart[axis], m->held[axis]};
}

static int next_digit(const mesh *m, int axis, int by)
{
    return (m->digit[axis] + by) % m->size[axis];
}

/* --- sums --- */

/* Where the sum of a chunk lies before the phase along the axis.  Only all-reduce may keep sums
 * in DST; reduce-scatter has them in TMP behind the operands. */
static sk_cell sum_cell(const sk_steps *s, const mesh *m, int axis, int chunk)
{
    if (s->ask.kind == SK_ALLREDUCE) return sk_dst(chunk);
    if (axis == m->k - 1) return sk_src(chunk);
    return axis < 0 ? sk_dst(0) : sk_tmp(m->n + chunk / m->size[m->k - 1]);
}

static void reduce_axis(sk_steps *s, const mesh *m, int axis)
{
    int a = m->size[axis], own = m->digit[axis];
    part mine = part_of(m, axis, own);
    for (int t = 1; t < a; t++) { /* not all to the same one at first */
        int d = next_digit(m, axis, t), c = part_of(m, axis, d).first;
        for (int i = 0; i < mine.n; i++, c += mine.apart)
            sk_steps_send(s, peer(s, m, axis, d), sum_cell(s, m, axis, c), c, 1);
    }
    for (int t = 1; t < a; t++) {
        int d = next_digit(m, axis, a - t);
        for (int i = 0; i < mine.n; i++)
            sk_steps_recv(s, peer(s, m, axis, d), sk_tmp(i * a + d), mine.first + i * mine.apart,
                          1);
    }
    for (int i = 0; i < mine.n; i++) {
        int c = mine.first + i * mine.apart;
        sk_steps_tree(s, sum_cell(s, m, axis - 1, c), sk_tmp(i * a), a, sum_cell(s, m, axis, c),
                      own, c);
    }
    sk_steps_next(s);
}

/* --- copies --- */

static sk_cell copy_cell(const sk_steps *s, int axis, int chunk)
{
    return axis == 0 && s->ask.kind == SK_ALLGATHER ? sk_src(0) : sk_dst(chunk);
}

static void send_part(sk_steps *s, int to, int axis, part p)
{
    int row = p.apart == 1 ? p.n : 1;
    for (int i = 0; i < p.n; i += row) {
        int c = p.first + i * p.apart;
        sk_steps_send(s, to, copy_cell(s, axis, c), c, row);
    }
}

static void recv_part(sk_steps *s, int from, part p)
{
    int row = p.apart == 1 ? p.n : 1;
    for (int i = 0; i < p.n; i += row) {
        int c = p.first + i * p.apart;
        sk_steps_recv(s, from, sk_dst(c), c, row);
    }
}

static void gather_axis(sk_steps *s, const mesh *m, int axis)
{
    int a = m->size[axis];
    part mine = part_of(m, axis, m->digit[axis]);
    for (int t = 1; t < a; t++) send_part(s, peer(s, m, axis, next_digit(m, axis, t)), axis, mine);
    for (int t = 1; t < a; t++) {
        int d = next_digit(m, axis, a - t);
        recv_part(s, peer(s, m, axis, d), part_of(m, axis, d));
    }
    sk_steps_next(s);
}

static void build(sk_steps *s)
{
    mesh m = mesh_of(&s->ask);
    if (s->ask.kind == SK_ALLGATHER) sk_steps_copy(s, sk_dst(s->ask.me), sk_src(0), s->ask.me, 1);
    if (s->ask.kind != SK_ALLGATHER)
        for (int j = m.k - 1; j >= 0; j--) reduce_axis(s, &m, j);
    if (s->ask.kind != SK_REDUCE_SCATTER)
        for (int j = 0; j < m.k; j++) gather_axis(s, &m, j);
}

static sk_coll_cost price(const sk_coll_ask *a)
{
    int size[SK_COLL_AXES], k = axes_of(a, size);
    double share = (double)(a->n - 1) / a->n;
    if (a->kind == SK_ALLREDUCE) return (sk_coll_cost){2 * k, 2 * share, share};
    return (sk_coll_cost){k, share, a->kind == SK_REDUCE_SCATTER ? share : 0};
}

const sk_coll sk_coll_hierarchical = {
    .name = "hierarchical",
    .doc = "axis by axis, all to all inside each; fast axes powers of two (Cho et al. 2019)",
    .cost = "2k a + 2S(n-1)/n b, k axes; one way: half of it",
    .kinds = 1u << SK_ALLREDUCE | 1u << SK_REDUCE_SCATTER | 1u << SK_ALLGATHER,
    .order = SK_ORDER_TREE,
    .can = can,
    .build = build,
    .price = price,
};
