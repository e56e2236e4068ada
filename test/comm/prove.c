/* prove.c - every algorithm on 1 to 33 ranks, proved without a run; and what the prover must
 * refuse.
 *
 * Algorithms that take degrees are asked with all vectors of up to three.
 * Each list is proved, its counted cost compared with the closed form, and for few
 * ranks also run by a small machine of this file's own, in random orders of
 * messages, apart and in place.  Then lists are spoiled at random.  A mutant that
 * the prover lets pass must still give the right result on the machine; if it does
 * not, it was missed. */
#include "base/rng.h"
#include "coll/prove.h"
#include "lib/check.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

enum { RANKS = 33, FEW = 9, SEED = 3 };

static uint64_t drawn;
static int draw(int n) { return (int)(sk_rng(SEED, 0, drawn++).a % (uint64_t)n); }

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- every ask --- */

typedef void visit(sk_arena *a, const sk_coll *c, const sk_coll_ask *ask);

static void each_root(sk_arena *a, const sk_coll *c, sk_coll_ask ask, visit *f)
{
    const int roots[] = {0, 1, ask.n - 1};
    for (int i = 0; i < (sk_kind_rooted(ask.kind) ? 3 : 1); i++) {
        sk_mark mark = sk_arena_mark(a);
        ask.root = roots[i];
        bool again = i && roots[i] <= roots[i - 1];
        if (!again && sk_coll_can(c, &ask)) f(a, c, &ask);
        sk_arena_back(a, mark);
    }
}

/* All degrees whose product is n at most. */
static void each_degrees(sk_arena *a, const sk_coll *c, sk_coll_ask ask, int round, visit *f)
{
    for (int d = 2; round < 3 && d * sk_degrees_product(ask.degrees) <= ask.n; d++) {
        sk_coll_ask one = ask;
        one.degrees |= (uint64_t)d << 8 * round;
        each_root(a, c, one, f);
        each_degrees(a, c, one, round + 1, f);
    }
}

static void each(sk_arena *a, int most, visit *f)
{
    for (int i = 0; sk_coll_parts[i]; i++)
        for (int k = 0; k < SK_N_COLLS && sk_coll_parts[i]->build; k++)
            for (int n = 1; n <= most; n++) {
                sk_coll_ask ask = {.kind = (sk_coll_kind)k, .n = n};
                each_root(a, sk_coll_parts[i], ask, f);
                if (sk_coll_parts[i]->degrees) each_degrees(a, sk_coll_parts[i], ask, 0, f);
            }
}

static sk_steps *lists_of(sk_arena *a, const sk_coll *c, const sk_coll_ask *ask)
{
    sk_steps *lists = sk_many(a, sk_steps, ask->n);
    sk_coll_ask one = *ask;
    for (one.me = 0; one.me < one.n; one.me++) sk_steps_build(c, &one, a, &lists[one.me]);
    return lists;
}

/* --- proofs and prices --- */

static int64_t n_lists;

static bool same(double a, double b) { return fabs(a - b) < 1e-9; }

static void prove(sk_arena *a, const sk_coll *c, const sk_coll_ask *ask)
{
    sk_proof p;
    n_lists += ask->n;
    checks++;
    if (sk_prove_coll(a, c, ask, &p)) {
        bad++;
        printf("%s\n", sk_error_line());
        return;
    }
    sk_coll_cost want = sk_coll_price(c, ask), is = p.cost;
    checks++;
    if (same(is.rounds, want.rounds) && same(is.sent, want.sent) && same(is.summed, want.summed))
        return;
    bad++;
    char degrees[SK_DEGREES_TEXT];
    printf("%s%s %s on %d, root %d: counted %.6g rounds %.6g sent %.6g summed, the price says %.6g "
           "%.6g %.6g\n",
           c->name, sk_degrees_print(ask->degrees, degrees), sk_coll_names[ask->kind], ask->n,
           ask->root, is.rounds, is.sent, is.summed, want.rounds, want.sent, want.summed);
}

/* Pieces of a pipeline may be any number. */
static void prove_parts(sk_arena *a, const sk_coll *c, const sk_coll_ask *ask)
{
    static const int parts[] = {1, 2, 3, 7, 32};
    sk_coll_ask one = *ask;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        one.parts = parts[i];
        if (sk_coll_can(c, &one)) prove(a, c, &one);
    }
}

/* --- a small machine that runs lists --- */

typedef struct machine {
    const sk_coll *c;
    const sk_steps *lists;
    int n;
    bool in_place;
    struct rank {
        uint64_t *src, *dst, *tmp;
        int from, to;     /* the round at hand */
        int sends, recvs; /* its messages to come */
        bool summed;      /* its copies and sums are done: they wait for receives only */
        bool *done;       /* per step */
        int *turn;        /* per message: the how-manieth with its peer that way */
    } r[FEW];
} machine;

static uint64_t scramble(uint64_t x) { return (x ^ x >> 29) * 0x9E3779B97F4A7C15u; }

static uint64_t given(int member, int chunk)
{
    return scramble(scramble((uint64_t)(member * 1000 + chunk + 1)) + 77);
}

/* A sum whose order can be seen where it matters: a + b is b + a, but (a + b) + c is another. */
static uint64_t add(const machine *m, uint64_t a, uint64_t b)
{
    return sk_coll_order(m->c, &m->lists->ask) == SK_ORDER_TREE ? scramble(a + b) : a + b;
}

static uint64_t add_tree(const machine *m, const uint64_t *v, int n)
{
    int half = 1;
    if (n == 1) return v[0];
    while (2 * half < n) half *= 2;
    return add(m, add_tree(m, v, half), add_tree(m, v + half, n - half));
}

static uint64_t *cell(const machine *m, int me, sk_cell c)
{
    const struct rank *r = &m->r[me];
    return (c.space == SK_SRC ? r->src : c.space == SK_DST ? r->dst : r->tmp) + c.at;
}

static bool one_src(sk_coll_kind k) { return k == SK_ALLGATHER || k == SK_GATHER; }
static bool one_dst(sk_coll_kind k) { return k == SK_REDUCE_SCATTER || k == SK_SCATTER; }

/* Memory of a rank, full of rubbish but for what the caller gave. */
static void lay(sk_arena *a, machine *m, int me)
{
    const sk_steps *l = &m->lists[me];
    sk_coll_kind k = l->ask.kind;
    struct rank *r = &m->r[me];
    uint64_t *whole = sk_many(a, uint64_t, 4 * l->cells + l->tmp_cells);
    for (int i = 0; i < 4 * l->cells + l->tmp_cells; i++) whole[i] = scramble(drawn++);
    bool same_buffer =
        k == SK_ALLREDUCE || k == SK_SCAN || (k == SK_BROADCAST && me == l->ask.root);
    r->src = whole;
    r->dst = m->in_place && same_buffer ? whole : whole + 2 * l->cells;
    r->tmp = whole + 4 * l->cells;
    if (m->in_place && k == SK_REDUCE_SCATTER) r->dst = r->src + me;
    if (m->in_place && k == SK_ALLGATHER) r->src = r->dst + me;
    for (int i = 0; i < (one_src(k) ? 1 : l->cells); i++) {
        r->src[i] = given(me, one_src(k) ? me : i);
        if (same_buffer) r->dst[i] = r->src[i];
    }
    r->done = sk_many(a, bool, l->list.n + 1);
    r->turn = sk_many(a, int, l->list.n + 1);
}

static bool is_message(const sk_step *s) { return s->act <= SK_STEP_RECV_SUM; }

static void number(const sk_steps *l, int *turn)
{
    int sends[FEW] = {0}, recvs[FEW] = {0};
    for (int i = 0; i < l->list.n; i++) {
        const sk_step *s = &l->list.v[i];
        if (is_message(s)) turn[i] = (s->act == SK_STEP_SEND ? sends : recvs)[s->peer]++;
    }
}

static void local(const machine *m, int me, const sk_step *s)
{
    uint64_t v[64];
    if (s->act == SK_STEP_TREE) {
        for (int j = 0; j < s->k; j++)
            v[j] = *cell(m, me, j == s->own ? s->with : sk_cell_at(s->from, j));
        *cell(m, me, s->into) = add_tree(m, v, s->k);
        return;
    }
    for (int j = 0; j < s->n; j++) {
        uint64_t x = *cell(m, me, sk_cell_at(s->from, j));
        if (s->act == SK_STEP_SUM) x = add(m, x, *cell(m, me, sk_cell_at(s->with, j)));
        *cell(m, me, sk_cell_at(s->into, j)) = x;
    }
}

static void enter(machine *m, int me)
{
    struct rank *r = &m->r[me];
    const sk_steps *l = &m->lists[me];
    r->from = r->to;
    r->summed = false;
    for (; r->to < l->list.n && l->list.v[r->to].round == l->list.v[r->from].round; r->to++) {
        sk_step_act act = l->list.v[r->to].act;
        r->sends += act == SK_STEP_SEND;
        r->recvs += act == SK_STEP_RECV || act == SK_STEP_RECV_SUM;
    }
}

/* As far as it goes without a message. */
static void advance(machine *m, int me)
{
    struct rank *r = &m->r[me];
    const sk_steps *l = &m->lists[me];
    while (!r->recvs && r->from < l->list.n) {
        for (int i = r->from; i < r->to && !r->summed; i++)
            if (!is_message(&l->list.v[i])) local(m, me, &l->list.v[i]);
        r->summed = true;
        if (r->sends) return;
        enter(m, me);
    }
}

/* The other end of a message, if its member is in the round. */
static int other_end(const machine *m, int me, int i)
{
    const sk_step *s = &m->lists[me].list.v[i];
    const struct rank *peer = &m->r[s->peer];
    for (int j = peer->from; j < peer->to; j++) {
        const sk_step *t = &m->lists[s->peer].list.v[j];
        if (is_message(t) && t->peer == me && peer->turn[j] == m->r[me].turn[i] &&
            (t->act == SK_STEP_SEND) != (s->act == SK_STEP_SEND))
            return j;
    }
    return -1;
}

static bool move(machine *m, int me, int i)
{
    const sk_step *send = &m->lists[me].list.v[i];
    int to = send->peer, j = other_end(m, me, i);
    if (j < 0) return false;
    const sk_step *recv = &m->lists[to].list.v[j];
    for (int k = 0; k < recv->n; k++) {
        uint64_t x = *cell(m, me, sk_cell_at(send->from, k));
        if (recv->act == SK_STEP_RECV_SUM) x = add(m, x, *cell(m, to, sk_cell_at(recv->with, k)));
        *cell(m, to, sk_cell_at(recv->into, k)) = x;
    }
    m->r[me].done[i] = m->r[to].done[j] = true;
    m->r[me].sends--;
    m->r[to].recvs--;
    advance(m, me);
    advance(m, to);
    return true;
}

/* Any message that can happen now, from a random place on; false: none can. */
static bool turn(machine *m)
{
    int first = draw(m->n);
    for (int k = 0; k < m->n; k++) {
        int me = (first + k) % m->n, from = m->r[me].from, n = m->r[me].to - from;
        for (int i = 0, at = n ? draw(n) : 0; i < n; i++) {
            int step = from + (at + i) % n;
            bool sends = m->lists[me].list.v[step].act == SK_STEP_SEND;
            if (sends && !m->r[me].done[step] && move(m, me, step)) return true;
        }
    }
    return false;
}

static uint64_t wanted(const machine *m, int me, int at)
{
    const sk_coll_ask *ask = &m->lists[me].ask;
    int chunk = one_dst(ask->kind) || sk_kind_blocks(ask->kind) ? me : at;
    uint64_t v[FEW], sum = 0;
    int n = ask->kind == SK_SCAN ? me + 1 : m->n;
    for (int i = 0; i < n; i++) sum += v[i] = given(i, chunk);
    if (sk_kind_sums(ask->kind))
        return sk_coll_order(m->c, ask) == SK_ORDER_TREE ? add_tree(m, v, n) : sum;
    bool from_root = ask->kind == SK_BROADCAST || ask->kind == SK_SCATTER;
    return given(from_root ? ask->root : at, chunk);
}

static bool right(const machine *m)
{
    for (int me = 0; me < m->n; me++) {
        const sk_steps *l = &m->lists[me];
        sk_coll_kind k = l->ask.kind;
        if (m->r[me].from < l->list.n) return false; /* it waits for ever */
        if ((k == SK_REDUCE || k == SK_GATHER) && me != l->ask.root) continue;
        for (int i = 0; i < (one_dst(k) ? 1 : l->cells); i++)
            if (m->r[me].dst[i] != wanted(m, me, i)) return false;
    }
    return true;
}

static bool works(sk_arena *a, const sk_coll *c, const sk_steps *lists, int n, bool in_place)
{
    sk_mark mark = sk_arena_mark(a);
    machine *m = sk_new(a, machine);
    *m = (machine){.c = c, .lists = lists, .n = n, .in_place = in_place};
    for (int i = 0; i < n; i++) {
        lay(a, m, i);
        number(&lists[i], m->r[i].turn);
    }
    for (int i = 0; i < n; i++) advance(m, i);
    while (turn(m)) continue;
    bool good = right(m);
    sk_arena_back(a, mark);
    return good;
}

static bool works_always(sk_arena *a, const sk_coll *c, const sk_steps *lists, int n)
{
    bool good = true;
    for (int i = 0; i < 4; i++) good = good && works(a, c, lists, n, i % 2);
    return good;
}

static void run(sk_arena *a, const sk_coll *c, const sk_coll_ask *ask)
{
    checks++;
    if (works_always(a, c, lists_of(a, c, ask), ask->n)) return;
    bad++;
    printf("%s %s on %d, root %d: proved, and wrong when run\n", c->name, sk_coll_names[ask->kind],
           ask->n, ask->root);
}

/* --- mutants --- */

static int64_t n_mutants, n_harmless, n_missed;

static int other(int x, int n) { return n > 1 ? (x + 1 + draw(n - 1)) % n : x; }
static void nudge(int *x) { *x += draw(2) ? 1 : -1; }

static sk_cell *operand(sk_step *s)
{
    sk_cell *all[] = {&s->into, &s->from, &s->with};
    return all[draw(3)];
}

static void drop(sk_steps *l, int i)
{
    memmove(&l->list.v[i], &l->list.v[i + 1], sizeof *l->list.v * (size_t)(l->list.n - 1 - i));
    l->list.n--;
}

static void twice(sk_steps *l, int i)
{
    sk_step one = l->list.v[i];
    sk_push(l->arena, &l->list);
    memmove(&l->list.v[i + 1], &l->list.v[i], sizeof *l->list.v * (size_t)(l->list.n - 1 - i));
    l->list.v[i] = one;
}

static void swap(sk_steps *l, int i, bool peers_only)
{
    sk_step *a = &l->list.v[i], *b = &l->list.v[draw(l->list.n)], keep = *a;
    if (peers_only) {
        a->peer = b->peer;
        b->peer = keep.peer;
        return;
    }
    int ra = a->round, rb = b->round;
    *a = *b;
    *b = keep;
    a->round = ra;
    b->round = rb;
}

static void turn_act(sk_step *s)
{
    static const sk_step_act into[SK_N_STEP_ACTS] = {SK_STEP_RECV, SK_STEP_RECV_SUM, SK_STEP_RECV,
                                                     SK_STEP_SUM,  SK_STEP_COPY,     SK_STEP_COPY};
    s->act = into[s->act];
}

/* From here on a round later, or this one alone a round earlier. */
static void shift(sk_steps *l, int i)
{
    if (draw(2)) l->list.v[i].round--;
    else
        for (; i < l->list.n; i++) l->list.v[i].round++;
}

enum { N_WAYS = 14 };
static void spoil(sk_steps *l, int way)
{
    int i = draw(l->list.n);
    sk_step *s = &l->list.v[i];
    switch (way) {
    case 0:
        drop(l, i);
        break;
    case 1:
        twice(l, i);
        break;
    case 2:
        swap(l, i, true);
        break;
    case 3:
        swap(l, i, false);
        break;
    case 4:
        s->chunk = other(s->chunk, l->cells);
        break;
    case 5:
        nudge(&operand(s)->at);
        break;
    case 6:
        operand(s)->space = (sk_space)draw(3);
        break;
    case 7:
        s->peer = other(s->peer, l->ask.n);
        break;
    case 8:
        turn_act(s);
        break;
    case 9:
        shift(l, i);
        break;
    case 10:
        nudge(&s->n);
        break;
    case 11:
        nudge(draw(2) ? &s->k : &s->own);
        break;
    case 12:
        s->into = s->with;
        break;
    default:
        s->with = s->from;
        break;
    }
}

static bool same_cell(sk_cell a, sk_cell b) { return a.space == b.space && a.at == b.at; }

/* In what its act looks at. */
static bool differs(const sk_step *a, const sk_step *b)
{
    if (a->act != b->act || a->round != b->round || a->n != b->n || a->chunk != b->chunk)
        return true;
    bool sends = a->act == SK_STEP_SEND, gets = is_message(a) && !sends,
         tree = a->act == SK_STEP_TREE;
    bool adds = a->act == SK_STEP_RECV_SUM || a->act >= SK_STEP_SUM;
    return (is_message(a) && a->peer != b->peer) || (!sends && !same_cell(a->into, b->into)) ||
           (!gets && !same_cell(a->from, b->from)) || (adds && !same_cell(a->with, b->with)) ||
           (tree && (a->k != b->k || a->own != b->own));
}

static bool changed(const sk_steps *a, const sk_steps *b)
{
    if (a->list.n != b->list.n) return true;
    for (int i = 0; i < a->list.n; i++)
        if (differs(&a->list.v[i], &b->list.v[i])) return true;
    return false;
}

static void mutant(sk_arena *a, const sk_coll *c, const sk_steps *lists, int n, int way)
{
    sk_steps *spoilt = sk_many(a, sk_steps, n);
    int who = draw(n);
    sk_proof p;
    memcpy(spoilt, lists, sizeof *lists * (size_t)n);
    sk_steps *l = &spoilt[who];
    if (!l->list.n) return;
    l->list.v = sk_many(a, sk_step, l->list.cap);
    memcpy(l->list.v, lists[who].list.v, sizeof *l->list.v * (size_t)l->list.n);
    spoil(l, way);
    if (!changed(l, &lists[who])) return;
    n_mutants++;
    if (sk_prove(c, spoilt, n, &p)) return;
    n_harmless++;
    if (works_always(a, c, spoilt, n)) return;
    n_missed++;
    printf("%s %s on %d: way %d of spoiling member %d was missed\n", c->name,
           sk_coll_names[lists->ask.kind], n, way, who);
}

static int per_way = 2;

static void mutants(sk_arena *a, const sk_coll *c, const sk_coll_ask *ask)
{
    if (ask->n < 2) return;
    const sk_steps *lists = lists_of(a, c, ask);
    for (int way = 0; way < N_WAYS; way++)
        for (int k = 0; k < per_way; k++) {
            sk_mark mark = sk_arena_mark(a);
            mutant(a, c, lists, ask->n, way);
            sk_arena_back(a, mark);
        }
}

/* --- sentences --- */

/* Two members that exchange, by hand. */
static sk_steps *two(sk_arena *a, sk_coll_kind kind, int cells)
{
    sk_steps *l = sk_many(a, sk_steps, 2);
    for (int i = 0; i < 2; i++)
        l[i] = (sk_steps){.arena = a, .ask = {.kind = kind, .n = 2, .me = i}, .cells = cells};
    return l;
}

static void error_messages(sk_arena *a)
{
    const sk_coll *c = sk_coll_parts[sk_coll_find("ring")];
    sk_proof p;
    sk_steps *l = two(a, SK_ALLREDUCE, 1);
    for (int i = 0; i < 2; i++) { /* each sends first and receives in the next round */
        sk_steps_send(&l[i], 1 - i, sk_src(0), 0, 1);
        sk_steps_next(&l[i]);
        sk_steps_recv_sum(&l[i], 1 - i, sk_dst(0), sk_src(0), 0, 1);
    }
    fails(sk_prove(c, l, 2, &p), SK_EBUG, "waits for ever");
    l = two(a, SK_ALLREDUCE, 1);
    for (int i = 0; i < 2; i++) { /* DST may be what is being sent */
        sk_steps_send(&l[i], 1 - i, sk_src(0), 0, 1);
        sk_steps_recv_sum(&l[i], 1 - i, sk_dst(0), sk_src(0), 0, 1);
    }
    fails(sk_prove(c, l, 2, &p), SK_EBUG, "receives into what it sends");
    l = two(a, SK_ALLREDUCE, 1);
    sk_steps_sum(&l[0], sk_dst(0), sk_src(0), sk_src(0), 0, 1);
    fails(sk_prove(c, l, 2, &p), SK_EBUG, "contribution of member 0 is added twice");
    l = two(a, SK_ALLREDUCE, 1);
    sk_steps_copy(&l[1], sk_dst(0), sk_tmp(0), 0, 1);
    fails(sk_prove(c, l, 2, &p), SK_EBUG, "TMP 0 is read before it is written");
    fails(sk_prove(c, two(a, SK_ALLREDUCE, 1), 2, &p), SK_EBUG, "DST 0 ends with contributions 1");
    fails(sk_prove_coll(a, c, &(sk_coll_ask){.kind = SK_GATHER, .n = 2}, &p), SK_EUSAGE,
          "ring does no gather");
    fails(sk_prove_coll(a, c, &(sk_coll_ask){.n = 65}, &p), SK_EUSAGE, "1 to 64");
}

/* The order that a sum of three has under another name than the tree's is seen. */
static void order_is_seen(sk_arena *a)
{
    sk_coll ring = *sk_coll_parts[sk_coll_find("ring")];
    sk_proof p;
    ring.order = SK_ORDER_TREE;
    check(!sk_prove_coll(a, &ring, &(sk_coll_ask){.n = 2}, &p));
    fails(sk_prove_coll(a, &ring, &(sk_coll_ask){.n = 3}, &p), SK_EBUG, "order of the tree");
}

/* --- all of it --- */

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || !defined(__OPTIMIZE__)
enum { FAST = 0 };
#else
enum { FAST = 1 };
#endif

int main(void)
{
    sk_arena a = {0};
    sk_alloc(&a, 1 << 24); /* one block for everything, so that marks give nothing back */
    sk_arena_back(&a, (sk_mark){.top = a.top});
    int n_algorithms = 0;
    for (int i = 0; sk_coll_parts[i]; i++) n_algorithms += sk_coll_parts[i]->build != NULL;
    double start = cpu_now();
    each(&a, RANKS, prove);
    double seconds = cpu_now() - start;
    int64_t lists = n_lists;
    if (FAST) check(seconds < 1);
    each(&a, FEW, prove_parts);
    each(&a, FEW, run);
    per_way = getenv("SKEIN_LONG") ? 40 : 2;
    each(&a, FEW, mutants);
    error_messages(&a);
    order_is_seen(&a);
    check(n_mutants > 1000 && !n_missed);
    sk_arena_end(&a);
    printf("%d checks, %d bad; %lld mutants were let pass and gave the right result\n", checks, bad,
           (long long)n_harmless);
    printf("prove: %lld lists of %d algorithms on 1-%d ranks, proved in %.2f s, %lld mutants, "
           "%lld missed\n",
           (long long)lists, n_algorithms, RANKS, seconds, (long long)n_mutants,
           (long long)n_missed);
    return bad != 0;
}
