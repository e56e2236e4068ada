/* step_axes.c - lists in rounds of several members: by axes, with chunks, and the butterfly, with
 * whole vectors.
 *
 * By axes a member is a number with one digit for each axis, slowest first.  Reduce-scatter
 * goes along the fastest axis, then along the next one on what is left, ...; all-gather comes
 * back the same way.  The bytes are those of any all-reduce, but the slow links, those of
 * the slowest axis, carry only 1/a of them, where a is the number of members below it.
 *
 * Inside an axis everybody sends to everybody in one round and adds in the order of the tree.
 * The tree of n members has the trees of aligned blocks of 2^k members inside it, and members that
 * differ only in fast digits are such a block if the fast axes are powers of two: then the sum has
 * the order of the tree for any slowest axis.
 *
 * Chunk i belongs to member i, except in all-reduce, where nobody sees who owns what: there
 * chunks are numbered with the digits turned round, so that what a member gathers lies in a row
 * and goes in one message.  Sums are taken chunk by chunk, which the tree step asks for. */
#include "coll/algorithm.h"

enum { MOST = SK_COLL_DEGREES };

typedef struct mesh {
    int n, k; /* members; axes longer than 1 */
    int size[MOST], digit[MOST];
    int stride[MOST]; /* between members that are neighbours along the axis */
    int weight[MOST]; /* of the digit in the number of a chunk */
    int held[MOST];   /* chunks that are a member's before it gathers along the axis */
    int apart[MOST];  /* and from one of these to the next */
} mesh;

typedef struct part { /* chunks first, first + apart, ... */
    int first, apart, n;
} part;

static mesh mesh_of(const sk_coll_ask *a, const int *size, int k)
{
    mesh m = {.n = a->n, .k = k};
    for (int j = 0; j < k; j++) m.size[j] = size[j];
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

void sk_steps_by_axes(sk_steps *s, const int *size, int k)
{
    mesh m = mesh_of(&s->ask, size, k);
    if (s->ask.kind == SK_ALLGATHER) sk_steps_copy(s, sk_dst(s->ask.me), sk_src(0), s->ask.me, 1);
    if (s->ask.kind != SK_ALLGATHER)
        for (int j = m.k - 1; j >= 0; j--) reduce_axis(s, &m, j);
    if (s->ask.kind != SK_REDUCE_SCATTER)
        for (int j = 0; j < m.k; j++) gather_axis(s, &m, j);
}

/* --- the butterfly --- */

int sk_butterfly_corners(const sk_coll_ask *a)
{
    return a->degrees ? (int)sk_degrees_product(a->degrees) : 1 << sk_log_floor(a->n);
}

/* 0: there is no such round. */
int sk_butterfly_degree(const sk_coll_ask *a, int round)
{
    return a->degrees ? sk_degree(a->degrees, round) : round < sk_log_floor(a->n) ? 2 : 0;
}

/* The odd one of a pair: gives, and waits for the sum. */
static void surplus(sk_steps *s)
{
    int even = s->ask.me - 1;
    sk_steps_send(s, even, sk_src(0), 0, 1);
    s->round += 3 * SK_COLL_DEGREES + sk_log_floor(s->ask.n); /* behind those of the others */
    sk_steps_recv(s, even, sk_dst(0), 0, 1);
}

/* Operands lie behind the two cells between which the sum goes.  In place, DST is what others
 * read. */
static void join(sk_steps *s, const sk_cube *c, int d, int stride, sk_cell acc, sk_cell into)
{
    enum { OPERANDS = 2 };
    int own = c->corner / stride % d, first = c->corner - own * stride;
    for (int k = 1; k < d; k++) {
        int to = (own + k) % d, from = (own + d - k) % d;
        sk_steps_send(s, sk_cube_member(c, first + to * stride), acc, 0, 1);
        sk_steps_recv(s, sk_cube_member(c, first + from * stride), sk_tmp(OPERANDS + from), 0, 1);
    }
    if (acc.space == SK_SRC && into.space == SK_DST) sk_steps_next(s);
    sk_steps_tree(s, into, sk_tmp(OPERANDS), d, acc, own, 0);
    sk_steps_next(s);
}

void sk_steps_butterfly(sk_steps *s)
{
    const sk_coll_ask *a = &s->ask;
    int rest = a->n - sk_butterfly_corners(a), me = a->me;
    sk_cube c = {.corner = me >= 2 * rest ? me - rest
                           : me % 2       ? -1
                                          : me / 2,
                 .first = rest,
                 .fold = rest};
    sk_cell acc = sk_src(0);
    bool paired = c.corner < c.fold;
    s->cells = 1;
    if (c.corner < 0) {
        surplus(s);
        return;
    }
    if (paired) sk_steps_recv_sum(s, me + 1, acc = sk_tmp(1), sk_src(0), 0, 1);
    if (c.fold) sk_steps_next(s);
    for (int r = 0, d, stride = 1; (d = sk_butterfly_degree(a, r)); r++, stride *= d) {
        sk_cell into = sk_butterfly_degree(a, r + 1) ? sk_tmp(r % 2) : sk_dst(0);
        if (d > 2) join(s, &c, d, stride, acc, into);
        else
            sk_steps_exchange(
                s,
                sk_cube_member(&c, c.corner / stride % 2 ? c.corner - stride : c.corner + stride),
                acc, into);
        acc = into;
    }
    if (paired) sk_steps_send(s, me + 1, acc, 0, 1);
}
