/* prove2.c - proofs of what the walk over all algorithms (prove.c) does not ask for:
 * meshes that are given, links that differ, and which links carry how much.
 * Output: each failed check, then "prove2: N checks, N bad". */
#include "coll/prove.h"
#include "base/rng.h"
#include "lib/check.h"

#include <math.h>

enum { MEMBERS = 64 };

static sk_arena arena;

static const sk_coll *coll(const char *name)
{
    int i = sk_coll_find(name);
    sk_assert(i >= 0);
    return sk_coll_parts[i];
}

/* The list is right, and its count is its price. */
static void proved(const sk_coll *c, const sk_coll_ask *a)
{
    sk_proof p = {0};
    sk_status st = sk_prove_coll(&arena, c, a, &p);
    check(!st);
    if (st) return;
    sk_coll_cost want = sk_coll_price(c, a);
    bool alike = fabs(p.cost.rounds - want.rounds) < 1e-9 && fabs(p.cost.sent - want.sent) < 1e-9 &&
                 fabs(p.cost.summed - want.summed) < 1e-9;
    check(alike);
    if (!alike)
        printf("  %s %s on %d: counted %g %g %g, priced %g %g %g\n", c->name,
               sk_coll_names[a->kind], a->n, p.cost.rounds, p.cost.sent, p.cost.summed, want.rounds,
               want.sent, want.summed);
}

/* --- meshes --- */

static sk_coll_ask on_mesh(sk_coll_kind kind, const int size[SK_COLL_AXES])
{
    sk_coll_ask a = {.kind = kind, .n = 1};
    for (; a.n_axes < SK_COLL_AXES && size[a.n_axes]; a.n_axes++) {
        a.axes[a.n_axes] = size[a.n_axes];
        a.n *= size[a.n_axes];
    }
    return a;
}

static const sk_coll_kind ways[] = {SK_ALLREDUCE, SK_REDUCE_SCATTER, SK_ALLGATHER};

static void hierarchical(void)
{
    const int good[][SK_COLL_AXES] = {
        {2, 2},       {3, 2},    {2, 4},    {5, 4},       {7, 8},    {4, 16},      {1, 4}, {4, 1},
        {7},          {2, 1, 4}, {2, 2, 2}, {3, 2, 2},    {2, 4, 4}, {5, 2, 4},    {1, 1}, {3, 1},
        {1, 8, 1, 2}, {33},      {11, 2},   {3, 2, 2, 2}, {6, 8},    {2, 2, 2, 2}, {1, 3}};
    const int declined[][SK_COLL_AXES] = {{2, 3}, {3, 3}, {2, 2, 3}, {2, 6}, {4, 5, 2}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        for (int k = 0; k < 3; k++) {
            sk_coll_ask a = on_mesh(ways[k], good[i]);
            proved(coll("hierarchical"), &a);
        }
    for (size_t i = 0; i < sizeof declined / sizeof *declined; i++) {
        sk_coll_ask a = on_mesh(SK_ALLREDUCE, declined[i]);
        check(!sk_coll_can(coll("hierarchical"), &a));
        sk_coll careless = *coll("hierarchical"); /* it has a reason to decline */
        sk_proof p;
        careless.can = NULL;
        fails(sk_prove_coll(&arena, &careless, &a, &p), SK_EBUG, "order of the tree");
    }
}

static void torus(void)
{
    const int mesh[][SK_COLL_AXES] = {{2, 2}, {2, 3},    {3, 3}, {3, 5},    {5, 3},
                                      {7},    {1, 5},    {5, 1}, {2, 3, 4}, {2, 2, 3, 2},
                                      {8, 8}, {4, 1, 3}, {1, 1}, {3, 3, 3}, {2, 31}};
    for (size_t i = 0; i < sizeof mesh / sizeof *mesh; i++) {
        sk_coll_ask a = on_mesh(SK_ALLREDUCE, mesh[i]);
        proved(coll("torus"), &a);
    }
    for (int n = 1; n <= 33; n++)
        for (int fast = 1; fast <= n; fast++) {
            sk_coll_ask a = on_mesh(SK_ALLREDUCE, (int[SK_COLL_AXES]){n / fast, fast});
            if (n % fast == 0) proved(coll("torus"), &a);
        }
}

/* --- who sends how much to whom, as a share of S --- */

static void traffic(const sk_coll *c, sk_coll_ask a, double *share)
{
    sk_mark mark = sk_arena_mark(&arena);
    for (int i = 0; i < a.n * a.n; i++) share[i] = 0;
    for (a.me = 0; a.me < a.n; a.me++) {
        sk_steps s;
        sk_steps_build(c, &a, &arena, &s);
        for (int i = 0; i < s.list.n; i++) {
            const sk_step *t = &s.list.v[i];
            if (t->act == SK_STEP_SEND) share[a.me * a.n + t->peer] += (double)t->n / s.cells;
        }
    }
    sk_arena_back(&arena, mark);
}

/* Between hosts a member sends 1/ranks of what an all-reduce of hosts would. */
static void slow_axis(const char *name)
{
    static double share[MEMBERS * MEMBERS];
    enum { HOSTS = 4, RANKS = 8, N = HOSTS * RANKS };
    sk_coll_ask a = on_mesh(SK_ALLREDUCE, (int[SK_COLL_AXES]){HOSTS, RANKS});
    traffic(coll(name), a, share);
    for (int i = 0; i < N; i++) {
        double far = 0;
        for (int j = 0; j < N; j++)
            if (i / RANKS != j / RANKS) far += share[i * N + j];
        check(fabs(far - 2.0 * (HOSTS - 1) / HOSTS / RANKS) < 1e-9);
    }
}

/* --- uneven links --- */

/* Seconds for S = 1 when every link works by itself: the busiest one's. */
static double seconds(const sk_coll *c, const sk_coll_ask *a, const double *rate)
{
    static double share[MEMBERS * MEMBERS];
    double most = 0;
    traffic(c, *a, share);
    for (int i = 0; i < a->n * a->n; i++)
        if (share[i] > 0 && share[i] / rate[i] > most) most = share[i] / rate[i];
    return most;
}

static void both(double *rate, int n, int i, int j, double r)
{
    rate[i * n + j] = rate[j * n + i] = r;
}

/* Four members, all linked at 10, but two of them at 1.  A chain in the order of numbers crosses
 * the slow link; the best single tree avoids it and needs 1/10; packed trees share the rest. */
static void one_slow_link(void)
{
    double rate[16];
    for (int i = 0; i < 16; i++) rate[i] = 10;
    both(rate, 4, 1, 2, 1);
    const sk_coll_kind kinds[] = {SK_ALLREDUCE, SK_BROADCAST, SK_REDUCE};
    for (int k = 0; k < 3; k++)
        for (int root = 0; root < 4; root++) {
            sk_coll_ask a = {.kind = kinds[k], .n = 4, .root = root};
            if (k == 0 || root == 0) check(seconds(coll("blink"), &a, rate) > 0.99);
            a.rate = rate;
            proved(coll("blink"), &a);
            check(seconds(coll("blink"), &a, rate) < 0.75 * 0.1);
            a.parts = 48; /* finer chunks follow the rates more closely */
            proved(coll("blink"), &a);
            check(seconds(coll("blink"), &a, rate) < 0.7 * 0.1);
        }
}

/* A missing link is never used; where it splits the members there is no algorithm. */
static void no_link(void)
{
    double rate[16] = {0};
    both(rate, 4, 0, 2, 5);
    both(rate, 4, 2, 1, 5);
    both(rate, 4, 1, 3, 5);
    sk_coll_ask a = {.kind = SK_ALLREDUCE, .n = 4, .rate = rate};
    proved(coll("blink"), &a);
    check(fabs(seconds(coll("blink"), &a, rate) - 1.0 / 5) < 1e-9);
    rate[1 * 4 + 3] = 0; /* 3 can still be heard, but not reached */
    check(!sk_coll_can(coll("blink"), &a));
    a.kind = SK_BROADCAST;
    check(!sk_coll_can(coll("blink"), &a));
    a.root = 3;
    check(sk_coll_can(coll("blink"), &a));
    proved(coll("blink"), &a);
    a = (sk_coll_ask){.kind = SK_REDUCE, .n = 4, .rate = rate};
    proved(coll("blink"), &a);
}

/* Can all be reached from the root, or reach it, over links of at least r? */
static bool spans(const sk_coll_ask *a, double r)
{
    bool in[MEMBERS] = {false};
    int found = 1;
    in[a->root] = true;
    for (int turn = 0; turn < a->n; turn++)
        for (int i = 0; i < a->n * a->n; i++) {
            int p = i / a->n, c = i % a->n;
            double down = a->rate[p * a->n + c], up = a->rate[c * a->n + p];
            bool wide = (a->kind == SK_REDUCE || down >= r) && (a->kind == SK_BROADCAST || up >= r);
            if (!in[p] || in[c] || !wide) continue;
            in[c] = true;
            found++;
        }
    return found == a->n;
}

/* Right, priced as counted, and never slower than the best single tree by more than chunks of
 * 1/64 let it. */
static void links_of(const sk_coll_ask *a)
{
    sk_coll_ask fine = *a;
    double r = 5;
    while (r > 0 && !spans(a, r)) r--;
    check(sk_coll_can(coll("blink"), a) == (r > 0));
    if (r < 1) return;
    proved(coll("blink"), a);
    fine.parts = 64;
    check(seconds(coll("blink"), &fine, a->rate) < 1 / r + 4.0 / 64);
}

static void any_links(void)
{
    static double rate[33 * 33];
    const sk_coll_kind kinds[] = {SK_ALLREDUCE, SK_BROADCAST, SK_REDUCE};
    uint64_t at = 0;
    for (int n = 2; n <= 33; n += n < 9 ? 1 : 6)
        for (int k = 0; k < 9; k++) {
            for (int i = 0; i < n * n; i++) {
                double u = sk_rng_uniform(3, 0, at++);
                rate[i] = u < 0.15 * (k / 3) ? 0 : 1 + floor(4 * u);
            }
            sk_coll_ask a = {.kind = kinds[k % 3], .n = n, .root = k % n, .rate = rate};
            a.parts = k == 0 ? 1 : 5 * k;
            links_of(&a);
        }
}

static void chains(void)
{
    const sk_coll_kind kinds[] = {SK_ALLREDUCE, SK_BROADCAST, SK_REDUCE};
    for (int n = 1; n <= 12; n++)
        for (int parts = 0; parts <= 9; parts++)
            for (int k = 0; k < 3; k++) {
                sk_coll_ask a = {.kind = kinds[k], .n = n, .root = parts % n, .parts = parts};
                proved(coll("blink"), &a);
            }
}

/* --- work --- */

/* Shares of S that the members add: the least and the most of them, and a chunk. */
static void work(const sk_coll *c, sk_coll_ask a, double *least, double *most, double *chunk)
{
    sk_mark mark = sk_arena_mark(&arena);
    *least = INFINITY;
    *most = *chunk = 0;
    for (a.me = 0; a.me < a.n; a.me++) {
        sk_steps s;
        double sum = 0;
        sk_steps_build(c, &a, &arena, &s);
        for (int i = 0; i < s.list.n; i++) {
            const sk_step *t = &s.list.v[i];
            if (t->act == SK_STEP_TREE) sum += t->k - 1;
            if (t->act == SK_STEP_RECV_SUM || t->act == SK_STEP_SUM) sum += t->n;
        }
        *chunk = 1.0 / s.cells;
        *least = fmin(*least, sum / s.cells);
        *most = fmax(*most, sum / s.cells);
    }
    sk_arena_back(&arena, mark);
}

/* n - 1 sums of S are shared out: (n-1)/n of them for each member.  Blocks of powers of two and
 * folding do not: where n is not one their members differ by more than 1/n. */
static void balance(void)
{
    const char *const even[] = {"circulant", "direct", "ring"}, *const odd[] = {"binary_blocks",
                                                                                "rabenseifner"};
    double least, most, chunk;
    for (int n = 2; n <= 33; n++) {
        sk_coll_ask a = {.kind = SK_ALLREDUCE, .n = n};
        for (int i = 0; i < 3; i++) {
            work(coll(even[i]), a, &least, &most, &chunk);
            check(fabs(chunk - 1.0 / n) < 1e-9 && most - least < 1e-9);
            check(fabs(most - (n - 1.0) / n) < 1e-9);
        }
        for (int i = 0; i < 2; i++) {
            work(coll(odd[i]), a, &least, &most, &chunk);
            check(sk_power_of_two(n) ? most - least < 1e-9 : most - least > 1.0 / n);
        }
        a.kind = SK_REDUCE_SCATTER;
        work(coll("circulant"), a, &least, &most, &chunk);
        check(most - least < 1e-9 && fabs(most - (n - 1.0) / n) < 1e-9);
    }
}

/* For powers of two the pairs of Adasum are those of the tree. */
static void adasum_pairs(void)
{
    sk_coll c = *coll("adasum");
    c.order = SK_ORDER_TREE;
    for (int n = 1; n <= MEMBERS; n *= 2) {
        sk_coll_ask a = {.kind = SK_ALLREDUCE, .n = n};
        proved(&c, &a);
    }
}

int main(void)
{
    hierarchical();
    torus();
    slow_axis("hierarchical");
    slow_axis("torus");
    one_slow_link();
    no_link();
    any_links();
    chains();
    balance();
    adasum_pairs();
    sk_arena_end(&arena);
    printf("prove2: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
