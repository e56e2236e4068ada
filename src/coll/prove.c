/* prove.c - the lists of all members walked together, on paper.
 *
 * Members go from round to round.  On entering one, a member posts its messages; a
 * message happens when both its ends are posted, and is a copy of values: which
 * members' contributions, of which chunk, added in which shape.  When the last one of
 * a round has happened its copies and sums are done, and the member goes on.  That
 * is how lists are played, with the least of patience: a sender waits for its
 * receiver, so whatever could wait for ever does so here.
 *
 * The order in which members are walked does not matter, because what a round
 * sends is not written in it, and what it receives is not read by its messages.
 * Both are checked by stamps on places.  A place is a piece of memory: DST may be SRC.
 *
 * The shape of a sum is a hash: commutative, as sums are, and of the whole tree. */
#include "coll/prove.h"

#include <stdarg.h>
#include <stdio.h>

enum { MOST = 64 }; /* members: contributions are a set of bits */

typedef struct value {
    uint64_t set, shape; /* set 0: never written */
    int chunk;
} value;

typedef struct place { /* numbers of rounds, plus one, in which it was last ... */
    int sent, got;     /* sent; received into */
    int used;          /* added to what was received */
    bool wrote;        /* as a cell of DST, ever */
} place;

typedef struct member {
    const sk_steps *list;
    int me, base; /* base: number of its first step among those of all */
    int n_src, n_dst, n_tmp;
    value *cells;
    place *places;
    int from, to; /* the round at hand */
    int open;     /* its messages that have not happened */
    double start, end, in, out;
    double sent, summed; /* in chunks */
} member;

typedef struct queue { /* steps of one direction that wait for their other end, plus one */
    int head, tail;
} queue;

typedef struct walk {
    const sk_coll *coll;
    sk_coll_kind kind;
    int n, root, cells;
    member m[MOST];
    queue *pairs; /* [from][to] */
    int *next;    /* of a step, in its queue */
    int ready[MOST], n_ready;
    int64_t steps, messages;
} walk;

static const char *const act_names[SK_N_STEP_ACTS] = {"send", "recv", "recv_sum",
                                                      "copy", "sum",  "tree"};

static bool is_message(const sk_step *s) { return s->act <= SK_STEP_RECV_SUM; }
static bool reads_from(const sk_step *s)
{
    return s->act == SK_STEP_SEND || s->act > SK_STEP_RECV_SUM;
}
static bool reads_with(const sk_step *s)
{
    return s->act == SK_STEP_RECV_SUM || s->act > SK_STEP_COPY;
}

/* --- what went wrong --- */

static sk_status __attribute__((format(printf, 4, 5)))
wrong(const walk *w, const member *m, const sk_step *s, const char *fmt, ...)
{
    char what[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (!s)
        return sk_fail(SK_EBUG, "%s %s on %d: member %d: %s", w->coll->name, sk_coll_names[w->kind],
                       w->n, m->me, what);
    return sk_fail(SK_EBUG, "%s %s on %d: member %d, round %d, %s%s%.0d of chunk %d: %s",
                   w->coll->name, sk_coll_names[w->kind], w->n, m->me, s->round, act_names[s->act],
                   is_message(s) ? " with " : "", is_message(s) ? s->peer : 0, s->chunk, what);
}

static const char *cell_name(char *to, size_t n, sk_cell c)
{
    static const char *const names[] = {"SRC", "DST", "TMP"};
    snprintf(to, n, "%s %d", names[c.space], c.at);
    return to;
}

#define SHOW(c) cell_name((char[24]){0}, 24, (c))

/* --- values --- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static uint64_t leaf_shape(int i) { return mix((uint64_t)i + 0x9E3779B97F4A7C15u); }

static uint64_t join(uint64_t a, uint64_t b)
{
    uint64_t lo = a < b ? a : b, hi = a < b ? b : a;
    return mix(mix(lo + 0x632BE59BD9B4E019u) + hi);
}

static uint64_t tree_shape(int from, int n)
{
    if (n == 1) return leaf_shape(from);
    int half = 1 << sk_log_floor(n - 1);
    return join(tree_shape(from, half), tree_shape(from + half, n - half));
}

static uint64_t everybody(int n) { return ~UINT64_C(0) >> (MOST - n); }

/* --- cells --- */

static bool is_swap(const walk *w) { return w->kind == SK_ALLTOALL || w->kind == SK_ALLTOALLV; }
static bool one_src(sk_coll_kind k) { return k == SK_ALLGATHER || k == SK_GATHER; }
static bool one_dst(sk_coll_kind k) { return k == SK_REDUCE_SCATTER || k == SK_SCATTER; }

static int src_cells(const walk *w, int me)
{
    bool from_root = w->kind == SK_BROADCAST || w->kind == SK_SCATTER;
    return one_src(w->kind) ? 1 : from_root && me != w->root ? 0 : w->cells;
}

static int dst_cells(const walk *w, int me)
{
    bool to_root = w->kind == SK_REDUCE || w->kind == SK_GATHER;
    return one_dst(w->kind) ? 1 : to_root && me != w->root ? 0 : w->cells;
}

static int room(const member *m, sk_space space)
{
    return space == SK_SRC ? m->n_src : space == SK_DST ? m->n_dst : m->n_tmp;
}

static int number(const member *m, sk_cell c)
{
    return c.space == SK_SRC   ? c.at
           : c.space == SK_DST ? m->n_src + c.at
                               : m->n_src + m->n_dst + c.at;
}

/* The memory of a cell.  In place DST is SRC; where values cannot differ (all-gather) it may. */
static place *place_of(const walk *w, const member *m, sk_cell c)
{
    bool rooted = w->kind == SK_BROADCAST || w->kind == SK_REDUCE;
    bool twins = w->kind == SK_ALLREDUCE || (rooted && m->me == w->root);
    if (c.space == SK_DST && twins) c.space = SK_SRC;
    if (c.space == SK_DST && w->kind == SK_REDUCE_SCATTER) c = sk_src(m->me);
    return &m->places[number(m, c)];
}

static sk_status read(const walk *w, const member *m, const sk_step *s, sk_cell c, int chunk,
                      value *out)
{
    *out = m->cells[number(m, c)];
    if (!out->set) return wrong(w, m, s, "%s is read before it is written", SHOW(c));
    if (out->chunk != chunk && !is_swap(w))
        return wrong(w, m, s, "%s holds chunk %d, not %d", SHOW(c), out->chunk, chunk);
    if (c.space == SK_SRC && place_of(w, m, c)->wrote)
        return wrong(w, m, s, "%s is read after its place in DST was written: in place it is gone",
                     SHOW(c));
    return SK_OK;
}

static void write(const walk *w, member *m, sk_cell c, value v)
{
    m->cells[number(m, c)] = v;
    if (c.space == SK_DST) place_of(w, m, c)->wrote = true;
}

static sk_status sum(const walk *w, const member *m, const sk_step *s, value a, value b, value *out)
{
    if (!sk_kind_sums(w->kind)) return wrong(w, m, s, "nothing is to be added");
    if (a.set & b.set)
        return wrong(w, m, s, "the contribution of member %d is added twice",
                     __builtin_ctzll(a.set & b.set));
    *out = (value){a.set | b.set, join(a.shape, b.shape), a.chunk};
    return SK_OK;
}

/* --- one step alone: is it possible at all? --- */

static sk_status check_cell(const walk *w, const member *m, const sk_step *s, sk_cell c)
{
    int have = c.space <= SK_TMP ? room(m, c.space) : -1;
    if (have < 0 || c.at < 0 || c.at > have - s->n)
        return wrong(w, m, s, "%d cells from %s on, and there are %d", s->n, SHOW(c), have);
    if (c.space == SK_TMP || is_swap(w)) return SK_OK;
    bool one = c.space == SK_SRC ? one_src(w->kind) : one_dst(w->kind);
    if (s->chunk != (one ? m->me : c.at))
        return wrong(w, m, s, "%s is not for this chunk", SHOW(c));
    return SK_OK;
}

static bool astride(sk_cell a, sk_cell b, int n)
{
    return a.space == b.space && a.at != b.at && a.at < b.at + n && b.at < a.at + n;
}

static sk_status check_tree(const walk *w, const member *m, const sk_step *s)
{
    if (s->n != 1 || s->k < 1 || s->k > MOST || s->own >= s->k)
        return wrong(w, m, s, "%d cells, %d operands, own is number %d", s->n, s->k, s->own);
    for (int j = 0; j < s->k; j++) {
        if (j != s->own) SK_TRY(check_cell(w, m, s, sk_cell_at(s->from, j)));
    }
    return s->own >= 0 ? check_cell(w, m, s, s->with) : SK_OK;
}

static sk_status check_step(const walk *w, const member *m, const sk_step *s)
{
    if (s->act < 0 || s->act >= SK_N_STEP_ACTS) return wrong(w, m, NULL, "no such act");
    if (s->n < 1 || s->chunk < 0 || s->chunk > w->cells - s->n)
        return wrong(w, m, s, "%d chunks of %d", s->n, w->cells);
    if (is_message(s) && (s->peer < 0 || s->peer >= w->n || s->peer == m->me))
        return wrong(w, m, s, "no such peer");
    bool writes = s->act != SK_STEP_SEND;
    if (writes && s->into.space == SK_SRC) return wrong(w, m, s, "SRC is written");
    if (writes) SK_TRY(check_cell(w, m, s, s->into));
    if (s->act == SK_STEP_TREE) return check_tree(w, m, s);
    if (reads_from(s)) SK_TRY(check_cell(w, m, s, s->from));
    if (reads_with(s)) SK_TRY(check_cell(w, m, s, s->with));
    if ((writes && reads_from(s) && astride(s->into, s->from, s->n)) ||
        (writes && reads_with(s) && astride(s->into, s->with, s->n)))
        return wrong(w, m, s, "operands overlap");
    return SK_OK;
}

static sk_status check_list(const walk *w, const member *m)
{
    const sk_steps *l = m->list;
    if (l->cells != w->cells) return wrong(w, m, NULL, "%d cells, not %d", l->cells, w->cells);
    for (int i = 0; i < l->list.n; i++) {
        SK_TRY(check_step(w, m, &l->list.v[i]));
        if (i && l->list.v[i].round < l->list.v[i - 1].round)
            return wrong(w, m, &l->list.v[i], "rounds go back");
    }
    return SK_OK;
}

/* --- one round of one member: who touches what --- */

static sk_status mark_send(const walk *w, member *m, const sk_step *s, int now)
{
    for (int j = 0; j < s->n; j++) {
        place *p = place_of(w, m, sk_cell_at(s->from, j));
        if (p->got == now) return wrong(w, m, s, "the round receives into what it sends");
        p->sent = now;
    }
    return SK_OK;
}

static sk_status mark_recv(const walk *w, member *m, const sk_step *s, int now)
{
    for (int j = 0; j < s->n; j++) {
        place *p = place_of(w, m, sk_cell_at(s->into, j));
        place *with = s->act == SK_STEP_RECV_SUM ? place_of(w, m, sk_cell_at(s->with, j)) : NULL;
        if (p->sent == now) return wrong(w, m, s, "the round receives into what it sends");
        if (p->got == now || p->used == now || (with && with->got == now))
            return wrong(w, m, s, "another receive of the round uses the same cell");
        if (with) with->used = now;
        p->got = now;
    }
    return SK_OK;
}

static sk_status mark_round(const walk *w, member *m)
{
    const sk_step *v = m->list->list.v;
    int now = v[m->from].round + 1;
    for (int i = m->from; i < m->to; i++) {
        if (v[i].act == SK_STEP_SEND) SK_TRY(mark_send(w, m, &v[i], now));
        else if (is_message(&v[i])) SK_TRY(mark_recv(w, m, &v[i], now));
    }
    return SK_OK;
}

/* --- copies and sums --- */

static sk_status sum_tree(const walk *w, const member *m, const sk_step *s, const value *v, int n,
                          value *out)
{
    value a, b;
    *out = v[0];
    if (n == 1) return SK_OK;
    int half = 1 << sk_log_floor(n - 1);
    SK_TRY(sum_tree(w, m, s, v, half, &a));
    SK_TRY(sum_tree(w, m, s, v + half, n - half, &b));
    return sum(w, m, s, a, b, out);
}

static sk_status do_tree(const walk *w, const member *m, const sk_step *s, value *out)
{
    value v[MOST];
    for (int j = 0; j < s->k; j++) {
        sk_cell c = j == s->own ? s->with : sk_cell_at(s->from, j);
        SK_TRY(read(w, m, s, c, s->chunk, &v[j]));
    }
    return sum_tree(w, m, s, v, s->k, out);
}

static sk_status do_cell(const walk *w, const member *m, const sk_step *s, int j, value *out)
{
    value with;
    if (s->act == SK_STEP_TREE) return do_tree(w, m, s, out);
    SK_TRY(read(w, m, s, sk_cell_at(s->from, j), s->chunk + j, out));
    if (s->act == SK_STEP_COPY) return SK_OK;
    SK_TRY(read(w, m, s, sk_cell_at(s->with, j), s->chunk + j, &with));
    return sum(w, m, s, *out, with, out);
}

static sk_status do_local(const walk *w, member *m, const sk_step *s)
{
    for (int j = 0; j < s->n; j++) {
        value v;
        sk_cell into = sk_cell_at(s->into, j);
        SK_TRY(do_cell(w, m, s, j, &v));
        if (place_of(w, m, into)->sent == s->round + 1)
            return wrong(w, m, s, "%s is written in the round that sends it", SHOW(into));
        write(w, m, into, v);
    }
    if (s->act == SK_STEP_SUM) m->summed += s->n;
    if (s->act == SK_STEP_TREE) m->summed += s->k - 1;
    return SK_OK;
}

/* --- messages --- */

static double most(double a, double b) { return a > b ? a : b; }

static sk_status deliver(walk *w, member *a, const sk_step *send, member *b, const sk_step *recv)
{
    if (send->chunk != recv->chunk || send->n != recv->n)
        return wrong(w, b, recv, "%d are wanted, but member %d sends %d of chunk %d", recv->n,
                     a->me, send->n, send->chunk);
    for (int j = 0; j < recv->n; j++) {
        value v, with;
        SK_TRY(read(w, a, send, sk_cell_at(send->from, j), send->chunk + j, &v));
        if (recv->act == SK_STEP_RECV_SUM) {
            SK_TRY(read(w, b, recv, sk_cell_at(recv->with, j), recv->chunk + j, &with));
            SK_TRY(sum(w, b, recv, v, with, &v));
            b->summed++;
        }
        write(w, b, sk_cell_at(recv->into, j), v);
    }
    a->end = most(a->end, a->start + 1);
    b->end = most(b->end, most(a->start, b->start) + 1);
    a->out += send->n;
    b->in += recv->n;
    w->messages++;
    return SK_OK;
}

static void happened(walk *w, member *m)
{
    if (!--m->open) w->ready[w->n_ready++] = m->me;
}

static const sk_step *step_of(const member *m, int number)
{
    return &m->list->list.v[number - m->base];
}

/* Its other end may be waiting already; if not, it waits now. */
static sk_status post(walk *w, member *m, int i)
{
    const sk_step *s = &m->list->list.v[i];
    bool sends = s->act == SK_STEP_SEND;
    member *peer = &w->m[s->peer];
    queue *q = &w->pairs[sends ? m->me * w->n + s->peer : s->peer * w->n + m->me];
    int number = q->head - 1;
    bool other = number >= 0 && number >= peer->base && number < peer->base + peer->list->list.n;
    if (!other) {
        int mine = m->base + i;
        if (q->head) w->next[q->tail - 1] = mine + 1;
        else q->head = mine + 1;
        q->tail = mine + 1;
        w->next[mine] = 0;
        return SK_OK;
    }
    q->head = w->next[number];
    if (sends) SK_TRY(deliver(w, m, s, peer, step_of(peer, number)));
    else SK_TRY(deliver(w, peer, step_of(peer, number), m, s));
    happened(w, peer);
    happened(w, m);
    return SK_OK;
}

/* --- the walk --- */

static sk_status enter(walk *w, member *m)
{
    const sk_step *v = m->list->list.v;
    int n = m->list->list.n;
    m->from = m->to;
    if (m->from == n) return SK_OK;
    m->in = m->out = 0;
    m->open = 1; /* for the entering itself */
    for (; m->to < n && v[m->to].round == v[m->from].round; m->to++)
        m->open += is_message(&v[m->to]);
    SK_TRY(mark_round(w, m));
    for (int i = m->from; i < m->to; i++)
        if (is_message(&v[i])) SK_TRY(post(w, m, i));
    happened(w, m);
    return SK_OK;
}

static sk_status leave(walk *w, member *m)
{
    const sk_step *v = m->list->list.v;
    for (int i = m->from; i < m->to; i++)
        if (!is_message(&v[i])) SK_TRY(do_local(w, m, &v[i]));
    m->sent += most(m->in, m->out);
    m->start = m->end;
    return SK_OK;
}

static sk_status check_waits(const walk *w)
{
    for (int p = 0; p < w->n * w->n; p++) {
        if (!w->pairs[p].head) continue;
        int number = w->pairs[p].head - 1, from = p / w->n, to = p % w->n;
        const member *m = &w->m[from];
        if (number < m->base || number >= m->base + m->list->list.n) m = &w->m[to];
        return wrong(w, m, step_of(m, number), "it waits for ever");
    }
    return SK_OK;
}

static sk_status walk_all(walk *w)
{
    for (int i = 0; i < w->n; i++) SK_TRY(enter(w, &w->m[i]));
    while (w->n_ready) {
        member *m = &w->m[w->ready[--w->n_ready]];
        SK_TRY(leave(w, m));
        SK_TRY(enter(w, m));
    }
    return check_waits(w);
}

/* --- the end --- */

/* What must be in cell `at` of DST: the set of contributions to which chunk. */
static value wanted(const walk *w, int me, int at)
{
    uint64_t all = everybody(w->n), here = UINT64_C(1) << (at % MOST),
             root = UINT64_C(1) << w->root;
    switch (w->kind) {
    case SK_ALLREDUCE:
    case SK_REDUCE:
        return (value){all, 0, at};
    case SK_REDUCE_SCATTER:
        return (value){all, 0, me};
    case SK_BROADCAST:
        return (value){root, 0, at};
    case SK_SCATTER:
        return (value){root, 0, me};
    case SK_ALLGATHER:
    case SK_GATHER:
        return (value){here, 0, at};
    default:
        return (value){here, 0, me};
    }
}

static sk_status check_end(const walk *w, const member *m, uint64_t tree)
{
    for (int at = 0; at < m->n_dst; at++) {
        value is = m->cells[m->n_src + at], want = wanted(w, m->me, at);
        if (is.set != want.set || is.chunk != want.chunk)
            return wrong(
                w, m, NULL, "DST %d ends with contributions %llx to chunk %d, not %llx to chunk %d",
                at, (unsigned long long)is.set, is.chunk, (unsigned long long)want.set, want.chunk);
        bool ordered = sk_kind_sums(w->kind) && w->coll->order == SK_ORDER_TREE;
        if (ordered && is.shape != tree)
            return wrong(w, m, NULL, "DST %d is not summed in the order of the tree", at);
    }
    return SK_OK;
}

static void count(const walk *w, sk_proof *out)
{
    *out = (sk_proof){.steps = w->steps, .messages = w->messages};
    for (int i = 0; i < w->n; i++) {
        const member *m = &w->m[i];
        out->cost.rounds = most(out->cost.rounds, m->start);
        out->cost.sent = most(out->cost.sent, m->sent / w->cells);
        out->cost.summed = most(out->cost.summed, m->summed / w->cells);
    }
}

/* --- the beginning --- */

static void fill(const walk *w, member *m)
{
    for (int i = 0; i < m->n_src; i++) {
        int chunk = one_src(w->kind) ? m->me : i;
        m->cells[i] = (value){UINT64_C(1) << m->me, leaf_shape(m->me), chunk};
    }
    if (w->kind == SK_ALLREDUCE || (w->kind == SK_BROADCAST && m->me == w->root))
        for (int i = 0; i < m->n_dst; i++) m->cells[m->n_src + i] = m->cells[i];
}

static void place_member(sk_arena *a, walk *w, int me, const sk_steps *list)
{
    member *m = &w->m[me];
    m->list = list;
    m->me = me;
    m->base = (int)w->steps;
    m->n_src = src_cells(w, me);
    m->n_dst = dst_cells(w, me);
    m->n_tmp = list->tmp_cells;
    int n = m->n_src + m->n_dst + m->n_tmp;
    m->cells = sk_many(a, value, n);
    m->places = sk_many(a, place, n);
    fill(w, m);
    w->steps += list->list.n;
}

static sk_status prove(sk_arena *a, walk *w, const sk_steps *lists, sk_proof *out)
{
    uint64_t tree = tree_shape(0, w->n);
    for (int i = 0; i < w->n; i++) place_member(a, w, i, &lists[i]);
    w->pairs = sk_many(a, queue, w->n * w->n);
    w->next = sk_many(a, int, w->steps);
    for (int i = 0; i < w->n; i++) SK_TRY(check_list(w, &w->m[i]));
    SK_TRY(walk_all(w));
    for (int i = 0; i < w->n; i++) SK_TRY(check_end(w, &w->m[i], tree));
    count(w, out);
    return SK_OK;
}

sk_status sk_prove(const sk_coll *c, const sk_steps *lists, int n, sk_proof *out)
{
    if (n < 1 || n > MOST)
        return sk_fail(SK_EUSAGE, "prove: %d members; lists are proved on 1 to %d", n, MOST);
    sk_arena *a = lists->arena;
    sk_mark mark = sk_arena_mark(a);
    walk *w = sk_new(a, walk);
    w->coll = c;
    w->kind = lists->ask.kind;
    w->n = n;
    w->root = lists->ask.root;
    w->cells = lists->cells;
    sk_status st = prove(a, w, lists, out);
    sk_arena_back(a, mark);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}

sk_status sk_prove_coll(sk_arena *arena, const sk_coll *c, const sk_coll_ask *a, sk_proof *out)
{
    if (a->n > MOST) return sk_prove(c, NULL, a->n, out);
    if (!sk_coll_can(c, a))
        return sk_fail(SK_EUSAGE, "%s does no %s on %d members", c->name, sk_coll_names[a->kind],
                       a->n);
    if (!c->build) return sk_fail(SK_EUSAGE, "%s has no list to prove", c->name);
    sk_mark mark = sk_arena_mark(arena);
    sk_steps *lists = sk_many(arena, sk_steps, a->n);
    sk_coll_ask one = *a;
    for (one.me = 0; one.me < a->n; one.me++) sk_steps_build(c, &one, arena, &lists[one.me]);
    sk_status st = sk_prove(c, lists, a->n, out);
    sk_arena_back(arena, mark);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}
