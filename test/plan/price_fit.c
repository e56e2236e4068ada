/* price_fit.c - LogGP: what lists take when they are played, numbers recovered from times, and
 * choices held against played times.
 *
 * Played: closed forms where they are exact; the counts of the longest way times the numbers are
 * the time.  Fitted: times made by known numbers give these numbers back, in both models, and the
 * error that is stated is that of the noise.  Chosen: over a grid of members, hosts, sizes and
 * machines the choice is within 5 % of the best list that is played. */
#include "plan/price_fit.h"
#include "cli/bench_choice.h"
#include "plan/machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int checks, bad;
static sk_arena arena;

static bool check(bool ok, const char *what, double found, double wanted)
{
    checks++;
    if (ok) return true;
    bad++;
    printf("%s: found %.17g, wanted %.17g\n", what, found, wanted);
    return false;
}

static void near(double found, double wanted, double part, const char *what)
{
    check(fabs(found - wanted) <= part * fabs(wanted) + 1e-15, what, found, wanted);
}

static sk_coll_ask ask_for(sk_coll_kind kind, int n, int hosts)
{
    sk_coll_ask a = {.kind = kind, .n = n};
    if (hosts < 2) return a;
    a.n_axes = 2;
    a.axes[0] = hosts;
    a.axes[1] = n / hosts;
    return a;
}

static int find(const char *name)
{
    int at = sk_coll_find(name);
    check(at >= 0, name, at, 0);
    return at;
}

/* --- playing --- */

static const double some[SK_LOGGP_N] = {
    [SK_LOGGP_LATENCY] = 40e-6, [SK_LOGGP_OVERHEAD] = 3e-6, [SK_LOGGP_GAP] = 7e-6,
    [SK_LOGGP_BYTE] = 1e-8,     [SK_LOGGP_INCAST] = 2e-9,   [SK_LOGGP_SUM] = 1e-10};

static double burst;

static double played(const double *number, const char *name, sk_coll_kind kind, int n,
                     int64_t bytes)
{
    sk_coll_ask a = ask_for(kind, n, n);
    sk_loggp m = {.burst = burst}, path;
    memcpy(m.between, number, sizeof m.between);
    double t = sk_loggp_play(&m, find(name), &a, n, bytes, &path), sum = 0;
    for (int i = 0; i < SK_LOGGP_N; i++) sum += path.between[i] * number[i];
    near(sum, t, 1e-12, "counts times numbers");
    return t;
}

static void playing(void)
{
    const double *v = some;
    double hop = v[SK_LOGGP_LATENCY] + 2 * v[SK_LOGGP_OVERHEAD];
    for (int n = 2; n <= 12; n++) {
        double part = 12000, s = n * part;
        double want =
            2 * (n - 1) * (hop + part * v[SK_LOGGP_BYTE]) + (n - 1) * part * v[SK_LOGGP_SUM];
        near(played(v, "ring", SK_ALLREDUCE, n, (int64_t)s), want, 1e-12, "ring");
        /* everybody to everybody: a link carries n - 1 messages, g apart; the last is taken alone
         */
        double more = n > 2 ? log2(n - 1) * v[SK_LOGGP_INCAST] : 0;
        want = hop + (n - 1) * part * (v[SK_LOGGP_BYTE] + more) + (n - 2) * v[SK_LOGGP_GAP];
        near(played(v, "direct", SK_ALLGATHER, n, (int64_t)s), want, 1e-12, "direct");
    }
    near(played(v, "recursive_doubling", SK_ALLREDUCE, 8, 8000),
         3 * (hop + 8000 * (v[SK_LOGGP_BYTE] + v[SK_LOGGP_SUM])), 1e-12, "recursive doubling");
    near(played(v, "binomial", SK_BROADCAST, 8, 8000), 3 * hop + 24000 * v[SK_LOGGP_BYTE], 1e-12,
         "binomial broadcast: the root's links are free before the next round");
    /* a bucket is full at the beginning, and fills while its link is idle */
    for (burst = 1000; burst < 20000; burst += 1000) {
        double paid = fmax(8000 - burst, 0);
        near(played(v, "direct", SK_BROADCAST, 2, 8000), hop + paid * v[SK_LOGGP_BYTE], 1e-12,
             "a bucket");
        double less = played(v, "ring", SK_ALLGATHER, 4, 32000);
        check(less >= 3 * hop + fmax(24000 - burst, 0) * v[SK_LOGGP_BYTE] -
                          2 * (hop + 8000 * v[SK_LOGGP_BYTE]) &&
                  less <= 3 * hop + fmax(24000 - burst, 0) * v[SK_LOGGP_BYTE] + 1e-12,
              "a bucket fills", less, burst);
    }
    burst = 0;
}

/* Calls one after the other: a link that waits for latencies gathers tokens, as many as its bucket
 * holds, so that a call takes what its latencies or what its bytes do. */
static void steady(void)
{
    const double *v = some, hop = v[SK_LOGGP_LATENCY] + 2 * v[SK_LOGGP_OVERHEAD];
    sk_coll_ask a = ask_for(SK_ALLREDUCE, 2, 2);
    int at = find("recursive_doubling");
    for (int64_t bytes = 64; bytes < 1 << 20; bytes *= 2) {
        sk_loggp m = {.burst = 1 << 20, .steady = true}, path;
        double s = (double)bytes, once = hop + s * (v[SK_LOGGP_BYTE] + v[SK_LOGGP_SUM]), sum = 0;
        memcpy(m.between, some, sizeof m.between);
        double t = sk_loggp_play(&m, at, &a, 2, bytes, &path);
        near(t, fmax(hop + s * v[SK_LOGGP_SUM], s * v[SK_LOGGP_BYTE] + v[SK_LOGGP_GAP]), 1e-9,
             "latencies or bytes");
        for (int i = 0; i < SK_LOGGP_N; i++) sum += path.between[i] * some[i];
        near(sum, t, 1e-9, "counts of the second call");
        m.burst = 1000;
        t = sk_loggp_play(&m, at, &a, 2, bytes, NULL);
        check(t <= once + 1e-12 && t >= once - 1000 * v[SK_LOGGP_BYTE] - 1e-12,
              "no more than the bucket is gained", t, once);
        m.burst = 0;
        near(sk_loggp_play(&m, at, &a, 2, bytes, NULL), once, 1e-12, "without a bucket");
    }
}

/* A rank that is late does not stop those that need nothing of it: a closed form that asks the
 * busiest member is never below what is played by more than its messages. */
static void prices(void)
{
    for (int i = 0; sk_coll_parts[i]; i++)
        for (int n = 2; n <= 9; n++) {
            sk_coll_ask a = ask_for(SK_ALLREDUCE, n, n);
            const sk_coll *c = sk_coll_parts[i];
            if (!c->build || !c->price || c->native || !sk_coll_can(c, &a)) continue;
            sk_costs costs = sk_costs_preset;
            sk_loggp m = sk_loggp_of(&costs);
            double t = sk_loggp_play(&m, i, &a, n, 1 << 22, NULL);
            double p = sk_closed_price(&costs, i, &a, n, 1 << 22);
            check(t > 0 && t < 1.5 * p && t > 0.6 * p, c->name, t, p);
        }
}

/* --- fitting --- */

enum { MOST = 64 };

static double noise(int i) { return sin(12.9898 * (i + 1)); }

/* Times of a machine with these numbers. */
static int points(const double *number, bool loggp, int n, double part, sk_fit_point *v)
{
    static const char *const names[] = {"direct", "ring", "circulant", "binomial"};
    static const int64_t sizes[] = {64, 16384, 262144, 2097152};
    int k = 0;
    sk_fit f = {.median = 0};
    memcpy(f.number, number, sizeof f.number);
    for (int i = 0; i < 6; i++) /* what only moves tells bytes from sums */
        for (int s = 0; s < 4; s++) {
            sk_coll_kind kind = i < 4 ? SK_ALLREDUCE : SK_ALLGATHER;
            v[k] = (sk_fit_point){find(names[i % 4]), ask_for(kind, n, n), sizes[s], 1, 0};
            v[k].seconds = sk_fit_said(&f, loggp, &v[k]) * (1 + part * noise(k));
            k++;
        }
    return k;
}

static const double machines[][SK_LOGGP_N] = {
    {30e-6, 2e-6, 5e-6, 1 / 1.1e9, 0.3 / 1.1e9, 1e-10}, /* Ethernet */
    {300e-6, 5e-6, 20e-6, 1.6e-7, 3e-8, 2e-10},         /* 50 Mbit/s */
    {2e-6, 0.4e-6, 0.5e-6, 4e-11, 0, 5e-11},            /* no incast */
    {20e-3, 1e-3, 0, 1.6e-7, 5e-8, 1e-9},               /* ranks that wait for cores */
};
#define COUNT(x) ((int)(sizeof(x) / sizeof *(x)))

static void recovered(void)
{
    sk_fit_point v[MOST];
    sk_fit f;
    for (int k = 0; k < COUNT(machines); k++)
        for (int n = 3; n <= 6; n++) {
            const double *want = machines[k];
            int count = points(want, true, n, 0, v);
            check(!sk_fit_loggp(&arena, v, count, want[SK_LOGGP_OVERHEAD], &f), "fit", 1, 0);
            for (int j = 0; j < SK_LOGGP_N; j++)
                check(fabs(f.number[j] - want[j]) <=
                          1e-4 * want[j] + 1e-3 * want[SK_LOGGP_LATENCY] * (j == SK_LOGGP_GAP) +
                              1e-13,
                      "a number of LogGP", f.number[j], want[j]);
            check(f.median < 1e-6 && f.worst < 1e-4, "no error", f.worst, 0);
            double plain[SK_LOGGP_N];
            memcpy(plain, want, sizeof plain);
            plain[SK_LOGGP_GAP] = 0;
            count = points(plain, false, n, 0, v);
            check(!sk_fit_alpha_beta(&arena, v, count, &f), "fit", 1, 0);
            for (int j = 0; j < SK_LOGGP_N; j++)
                near(f.number[j], plain[j], 1e-5, "a number of alpha-beta");
        }
}

static void stated(void)
{
    sk_fit_point v[MOST];
    sk_fit f, g;
    int count = points(machines[1], true, 4, 0.03, v);
    check(!sk_fit_loggp(&arena, v, count, 5e-6, &f), "fit", 1, 0);
    check(f.median > 0.005 && f.median < 0.03 && f.worst < 0.09, "the noise", f.median, 0.03);
    near(f.number[SK_LOGGP_BYTE], 1.6e-7, 0.05, "G in noise");
    near(f.number[SK_LOGGP_LATENCY], 300e-6, 0.1, "L in noise");
    int sums = 0; /* without points that only move, bytes have all of it */
    for (int i = 0; i < count; i++)
        if (v[i].ask.kind == SK_ALLREDUCE) v[sums++] = v[i];
    check(!sk_fit_loggp(&arena, v, sums, 5e-6, &f), "fit", 1, 0);
    check(f.number[SK_LOGGP_SUM] == 0, "no sums", f.number[SK_LOGGP_SUM], 0);
    near(f.number[SK_LOGGP_BYTE], 1.6e-7, 0.05, "G of sums only");
    count = points(machines[1], true, 4, 0.03, v);
    v[3].seconds *= 2;
    check(!sk_fit_loggp(&arena, v, count, 5e-6, &f), "fit", 1, 0);
    check(f.worst > 0.3 && f.worst_at == 3, "the point that is off", f.worst_at, 3);
    count =
        points(machines[1], true, 4, 0.03, v); /* START waited for a core, longer than calls took */
    check(!sk_fit_alpha_beta(&arena, v, count, &g), "fit", 1, 0);
    for (double o = 1e-3; o < 10; o *= 10) {
        check(!sk_fit_loggp(&arena, v, count, o, &f), "fit", 1, 0);
        check(f.squares < 2 * g.squares, "an o that cannot be", f.squares, g.squares);
        check(f.median < 0.05, "the error beside it", f.median, 0.05);
        near(f.number[SK_LOGGP_BYTE], 1.6e-7, 0.05, "G beside an o that cannot be");
    }
    count = points(machines[3], true, 5, 0, v);
    check(!sk_fit_loggp(&arena, v, count, machines[3][SK_LOGGP_OVERHEAD], &f), "fit", 1, 0);
    check(!sk_fit_alpha_beta(&arena, v, count, &g), "fit", 1, 0);
    check(g.squares > f.squares, "messages that queue are not in alpha-beta", g.squares, f.squares);
    check(sk_fit_alpha_beta(&arena, v, 3, &g) == SK_EUSAGE, "three points", 0, SK_EUSAGE);
    check(strstr(sk_error_line(), "at least 6") != NULL, sk_error_line(), 0, 1);
    for (int i = 0; i < count; i++) v[i].bytes = 64;
    check(sk_fit_alpha_beta(&arena, v, count, &g) == SK_EUSAGE, "one size", 0, SK_EUSAGE);
}

/* Never below zero, and the best of those. */
static void rows(void)
{
    static const double row[] = {1, 1, 2, 1, 3, 1.1, 4, 0.9};
    double x[2];
    sk_fit_rows(row, 4, 2, x);
    check(x[0] >= 0 && x[1] >= 0, "not below zero", x[0], 0);
    double least = INFINITY, at[2] = {0};
    for (double a = 0; a < 1.5; a += 0.002)
        for (double b = 0; b < 1.5; b += 0.002) {
            double sum = 0;
            for (int i = 0; i < 4; i++) sum += pow(row[2 * i] * a + row[2 * i + 1] * b - 1, 2);
            if (sum < least) least = sum, at[0] = a, at[1] = b;
        }
    check(fabs(x[0] - at[0]) < 0.004 && fabs(x[1] - at[1]) < 0.004, "the least", x[0], at[0]);
}

/* --- choosing --- */

/* The ratio that is shown is that of the times beside it, and a miss is above noise. */
static void pairs(void)
{
    double turn[SK_CHOICE_PAIRS][3] = {{6, 2, 6}, {2, 2, 2}, {9, 1, 9}, {1, 4, 1}, {3, 2, 3},
                                       {9, 1, 9}, {6, 2, 6}, {1, 1, 1}, {1, 4, 1}};
    sk_choice_row r = {.hosts = 1};
    sk_choice_pair(&r, turn);
    near(r.ratio, 1.5, 1e-12, "the median ratio");
    near(r.pair[0], 3, 1e-12, "the chosen of that turn");
    near(r.pair[1], 2, 1e-12, "the best of that turn");
    near(r.noise, 0, 1e-12, "two times of the choice are alike in most turns");
    check(sk_choice_missed(&r), "half as long again is a miss", r.ratio, 1);
    for (int i = 0; i < SK_CHOICE_PAIRS; i++) turn[i][1] *= 2, turn[i][2] *= 2;
    sk_choice_pair(&r, turn);
    near(r.noise, 4.0 / 3, 1e-12, "twice the difference over the mean");
    check(!sk_choice_missed(&r), "noise is larger", r.ratio, r.noise);
    r = (sk_choice_row){.ratio = 1.04};
    check(!sk_choice_missed(&r), "near enough", r.ratio, 0);
}

/* The choice against every list that it might have taken, played.  any: of any order of sums. */
static double against_played(const sk_costs *c, sk_coll_kind kind, int n, int hosts, int64_t bytes,
                             bool any, int *best)
{
    sk_coll_ask a = ask_for(kind, n, hosts);
    sk_loggp m = sk_loggp_of(c);
    double price, least = INFINITY, cheapest = INFINITY;
    a.any_order = any;
    int chosen = sk_choose(c, &a, hosts, SK_SUM, bytes, &price);
    for (int i = 0; sk_coll_parts[i]; i++) {
        if (!sk_chosen_by_itself(sk_coll_parts[i], &a, SK_SUM) || sk_coll_parts[i]->adasum ||
            !sk_coll_can(sk_coll_parts[i], &a))
            continue;
        cheapest = fmin(cheapest, sk_call_price(c, i, &a, hosts, bytes));
        double t = sk_loggp_play(&m, i, &a, hosts, bytes, NULL);
        if (t < least) least = t, *best = i;
    }
    check(price == cheapest, "the cheapest by its price", price, cheapest);
    return sk_loggp_play(&m, chosen, &a, hosts, bytes, NULL) / least;
}

static void choices(void)
{
    static const int64_t sizes[] = {64, 4096, 65536, 1 << 20, 1 << 24};
    static const int members[] = {2, 3, 4, 5, 6, 7, 8, 12, 16};
    static const sk_coll_kind kinds[] = {SK_ALLREDUCE, SK_REDUCE_SCATTER, SK_ALLGATHER};
    double worst = 1;
    int n_all = 0, n_near = 0;
    for (int k = 0; k < COUNT(machines); k++)
        for (int i = 0; i < COUNT(members); i++)
            for (int hosts = members[i]; hosts >= 2; hosts--)
                for (int s = 0; s < COUNT(sizes) * COUNT(kinds) * 2 && members[i] % hosts == 0;
                     s++) {
                    sk_costs c = sk_costs_preset;
                    const double *v = machines[k];
                    c.between = (sk_link){.alpha = v[SK_LOGGP_LATENCY],
                                          .beta = v[SK_LOGGP_BYTE],
                                          .each = v[SK_LOGGP_OVERHEAD],
                                          .incast = v[SK_LOGGP_INCAST] / v[SK_LOGGP_BYTE]};
                    int best = -1, kind = s / COUNT(sizes) % COUNT(kinds);
                    bool any = s >= COUNT(sizes) * COUNT(kinds);
                    double r = against_played(&c, kinds[kind], members[i], hosts,
                                              sizes[s % COUNT(sizes)], any, &best);
                    n_all++;
                    n_near += r <= 1.05;
                    if (r > worst) worst = r;
                    if (r > 1.05 && getenv("SKEIN_SHOW"))
                        printf("machine %d %s %d/%d %lld any %d: %.3f, best %s\n", k,
                               sk_coll_names[kinds[kind]], members[i], hosts,
                               (long long)sizes[s % COUNT(sizes)], any, r, sk_algorithm_name(best));
                }
    printf("choices within 5 %% of the best that is played: %d of %d, worst %.3f\n", n_near, n_all,
           worst);
    check(n_near == n_all, "choices within 5 %", n_near, n_all);
}

int main(void)
{
    playing();
    steady();
    prices();
    rows();
    recovered();
    stated();
    pairs();
    choices();
    sk_arena_end(&arena);
    printf("price_fit: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
