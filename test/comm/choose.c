/* choose.c - the algorithm that a call gets, what it is chosen by, and where that comes from.
 *
 * The choice is the cheapest of all that may be chosen, over a grid of kinds, members, hosts
 * and sizes; prices agree with what is counted in the lists; as sizes grow the choice
 * sends less, as messages grow dearer it sends fewer of them; pins; machine files there and
 * back; choices in programs.  With SKEIN_SHOW=1 it prints a table of choices. */
#include "lib/ranks.h"

#include "coll/choose.h"
#include "plan/coll_calibration.h"
#include "plan/machine.h"
#include "plan/simulator.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static bool must(sk_status st, const char *what)
{
    bool ok = check(!st, what, (double)st, 0);
    if (!ok) printf("  %s\n", sk_error());
    return ok;
}

static bool near(double x, double y) { return fabs(x - y) <= 1e-8 * fabs(y); }

/* A sentence that holds all of these words. */
static void refused(sk_status st, sk_status code, const char *const *words)
{
    check(st == code, words[0], (double)st, (double)code);
    for (; *words; words++)
        if (!check(strstr(sk_error_line(), *words) != NULL, *words, 0, 1))
            printf("  %s\n", sk_error_line());
}
#define REFUSED(st, code, ...) refused((st), (code), (const char *const[]){__VA_ARGS__, NULL})

/* --- the grid --- */

static const sk_coll_kind kinds[] = {SK_ALLREDUCE, SK_REDUCE_SCATTER, SK_ALLGATHER,
                                     SK_BROADCAST, SK_REDUCE,         SK_ALLTOALL};
static const int members[] = {1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32};
static const int64_t sizes[] = {0, 4, 256, 4096, 65536, 1 << 20, 1 << 24, 1 << 28};
#define COUNT(x) ((int)(sizeof(x) / sizeof *(x)))

static sk_coll_ask ask_for(sk_coll_kind kind, int n, int hosts)
{
    sk_coll_ask a = {.kind = kind, .n = n};
    if (hosts < 2) return a;
    a.n_axes = 2;
    a.axes[0] = hosts;
    a.axes[1] = n / hosts;
    return a;
}

static bool may(const sk_coll *c, const sk_coll_ask *a)
{
    bool order = sk_coll_order(c, a) == SK_ORDER_TREE || !sk_kind_sums(a->kind);
    return order && !c->native && !c->packs && !c->adasum && c->price && sk_coll_can(c, a);
}

/* Of one algorithm, with every degree vector of up to three. */
static void least_of(const sk_costs *c, int i, sk_coll_ask a, int round, int hosts, int64_t bytes,
                     double *least, int *best)
{
    for (int d = 2; sk_coll_parts[i]->degrees && round < 3 && d <= a.n; d++) {
        sk_coll_ask one = a;
        one.degrees |= (uint64_t)d << 8 * round;
        if (sk_degrees_product(one.degrees) > a.n) break;
        least_of(c, i, one, round + 1, hosts, bytes, least, best);
    }
    if (!may(sk_coll_parts[i], &a)) return;
    double price = sk_call_price(c, i, &a, hosts, bytes);
    check(isfinite(price) && price > 0, "a price", price, 1);
    if (price < *least) *least = price, *best = i;
}

static void one_choice(const sk_costs *c, sk_coll_ask *a, int hosts, int64_t bytes)
{
    double seconds = -1, least = INFINITY;
    int best = SK_NO_CHOICE, found = sk_choose(c, a, hosts, SK_SUM, bytes, &seconds);
    if (found >= 0)
        check(seconds == sk_call_price(c, found, a, hosts, bytes), "the price of the choice", 0, 1);
    a->degrees = 0;
    if (hosts < 2) {
        check(found == SK_BUILTIN, "one host: in the heaps", found, SK_BUILTIN);
        check(seconds == sk_shm_price(c, a->kind, a->n, bytes), "its price", seconds, 0);
        return;
    }
    for (int i = 0; sk_coll_parts[i]; i++) least_of(c, i, *a, 0, hosts, bytes, &least, &best);
    check(seconds == least && found >= 0, "the cheapest", found, best);
}

static void grid(const sk_costs *c)
{
    for (int k = 0; k < COUNT(kinds); k++)
        for (int i = 0; i < COUNT(members); i++)
            for (int hosts = 1; hosts <= members[i]; hosts++) {
                if (members[i] % hosts) continue;
                sk_coll_ask a = ask_for(kinds[k], members[i], hosts);
                for (int s = 0; s < COUNT(sizes); s++) one_choice(c, &a, hosts, sizes[s]);
            }
}

/* What is known to be sparse goes in streams between hosts, the sparser the cheaper; as streams
 * become full, as dense vectors.  It is the cheapest of all degrees. */
static void sparse(void)
{
    const sk_costs *c = &sk_costs_preset;
    for (int n = 2; n <= 32; n += 2) {
        double before = 0;
        int packed = 0, dense = 0;
        for (double fill = 1e-5; fill <= 1; fill *= 1.7) {
            sk_coll_ask a = {.kind = SK_ALLREDUCE, .n = n, .fill = fill, .wide = 2}, b = a;
            double seconds = 0, least = INFINITY;
            int at = sk_choose(c, &a, n, SK_SUM, 64 << 20, &seconds), best = 0;
            check(at >= 0 && seconds >= before, "fuller is dearer", seconds, before);
            before = seconds;
            packed += sk_coll_parts[at]->packs;
            dense += !sk_coll_parts[at]->packs;
            check(!dense || !sk_coll_parts[at]->packs, "dense from some fill on", fill, n);
            for (int i = 0; sk_coll_parts[i]; i++)
                if (!sk_coll_parts[i]->packs) least_of(c, i, b, 0, n, 64 << 20, &least, &best);
            check(seconds <= least, "never dearer than dense", seconds, least);
        }
        check(packed && dense, "streams and dense vectors", packed, dense);
        sk_coll_ask here = {.kind = SK_ALLREDUCE, .n = n, .fill = 0.3, .wide = 2};
        int at = sk_choose(c, &here, 1, SK_SUM, 64 << 20, NULL);
        check(at == SK_BUILTIN, "one host, and not sparse", at, SK_BUILTIN);
    }
}

/* Uneven hosts, or members in another order: no axes, everything may leave the host. */
static void uneven(void)
{
    const sk_costs *c = &sk_costs_preset;
    static const int host_of[] = {0, 0, 0, 1, 1, 2}, turns[] = {0, 1, 0, 1, 2, 0};
    static const int all[] = {0, 1, 2, 3, 4, 5}, some[] = {3, 4};
    check(sk_hosts_count(all, 6, host_of) == 3, "hosts", sk_hosts_count(all, 6, host_of), 3);
    check(sk_hosts_count(all, 6, turns) == 3, "hosts in turns", sk_hosts_count(all, 6, turns), 3);
    check(sk_hosts_count(some, 2, host_of) == 1, "one of them", 0, 1);
    check(sk_hosts_count(all, 6, NULL) == 1, "no table", 0, 1);
    sk_coll_ask a = {.kind = SK_ALLREDUCE, .n = 6}, b = ask_for(SK_ALLREDUCE, 6, 6);
    int direct = sk_coll_find("direct");
    check(sk_call_price(c, direct, &a, 3, 4096) == sk_call_price(c, direct, &b, 6, 4096),
          "uneven is as if all were apart", 0, 1);
}

/* With every member on a host of its own a price is what its list says. */
static void prices(void)
{
    sk_costs plain = sk_costs_preset;
    const sk_costs *c = &plain;
    plain.between.incast = 0;
    for (int i = 0; sk_coll_parts[i]; i++)
        for (int n = 2; n <= 17; n++) {
            sk_coll_ask a = ask_for(SK_ALLREDUCE, n, n);
            const sk_coll *p = sk_coll_parts[i];
            if (p->native || !p->build || !sk_coll_can(p, &a)) continue;
            sk_steps list;
            int messages = 0;
            sk_steps_build(p, &a, &arena, &list);
            for (int s = 0; s < list.list.n; s++)
                messages += list.list.v[s].act <= SK_STEP_RECV_SUM;
            sk_coll_cost k = sk_coll_price(p, &a);
            double want = k.rounds * c->between.alpha + messages * c->between.each +
                          1e6 * (k.sent * c->between.beta + k.summed * c->gamma);
            double found = sk_closed_price(c, i, &a, n, 1000000);
            check(near(found, want), p->name, found, want);
        }
}

/* Streams that meet at a link make bytes dearer: n - 1 of them in direct, one in halving. */
static void incast(void)
{
    sk_costs plain = sk_costs_preset, dear = sk_costs_preset;
    plain.between.incast = 0;
    dear.between.incast = 0.5;
    int direct = sk_coll_find("direct"), halving = sk_coll_find("halving_doubling");
    for (int n = 2; n <= 16; n *= 2) {
        sk_coll_ask a = ask_for(SK_ALLREDUCE, n, n);
        double bytes = 1e6, sent = sk_coll_price(sk_coll_parts[direct], &a).sent;
        double more = sk_call_price(&dear, direct, &a, n, 1000000) -
                      sk_call_price(&plain, direct, &a, n, 1000000);
        double want = 0.5 * log2(n - 1) * sent * bytes * dear.between.beta;
        check(fabs(more - want) < 1e-12, "incast of direct", more, want);
        check(sk_call_price(&dear, halving, &a, n, 1000000) ==
                  sk_call_price(&plain, halving, &a, n, 1000000),
              "no incast of halving", n, n);
    }
}

/* --- where choices switch --- */

static double fixed(const sk_costs *c, const sk_coll_ask *a, int hosts, int alg)
{
    return sk_call_price(c, alg, a, hosts, 0);
}

static double slope(const sk_costs *c, const sk_coll_ask *a, int hosts, int alg)
{
    return sk_call_price(c, alg, a, hosts, 1 << 20) - fixed(c, a, hosts, alg);
}

/* Larger vectors never get an algorithm that moves more, but for the bytes that hide in a gap
 * between rounds; returns how often the choice changes. */
static int along_sizes(const sk_costs *c, sk_coll_ask *a, int hosts)
{
    int switches = 0, last = sk_choose(c, a, hosts, SK_SUM, 0, NULL);
    double more = slope(c, a, hosts, last);
    for (int64_t bytes = 1; bytes < (int64_t)1 << 32; bytes *= 2) {
        uint64_t degrees = a->degrees;
        int now = sk_choose(c, a, hosts, SK_SUM, bytes, NULL);
        double less = slope(c, a, hosts, now);
        check(less <= more * (1 + 1e-3), "larger and moves more", less, more);
        switches += now != last || degrees != a->degrees;
        more = less;
        last = now;
    }
    return switches;
}

/* The first size whose algorithm moves least. */
static int64_t switch_point(const sk_costs *c, sk_coll_ask *a, int hosts)
{
    int large = sk_choose(c, a, hosts, SK_SUM, (int64_t)1 << 40, NULL);
    int64_t at = 1;
    while (at < (int64_t)1 << 40 && sk_choose(c, a, hosts, SK_SUM, at, NULL) != large)
        at += at / 8 + 1;
    return at;
}

static sk_costs scaled(double alpha, double beta)
{
    sk_costs c = sk_costs_preset;
    c.inside.alpha *= alpha, c.between.alpha *= alpha;
    c.inside.each *= alpha, c.between.each *= alpha;
    c.inside.beta *= beta, c.between.beta *= beta;
    c.gamma *= beta;
    return c;
}

static void switches(void)
{
    int seen = 0;
    sk_costs base = scaled(1, 1), slow = scaled(10, 1), narrow = scaled(1, 10);
    for (int n = 2; n <= 32; n *= 2)
        for (int hosts = 2; hosts <= n; hosts *= 2) {
            sk_coll_ask a = ask_for(SK_ALLREDUCE, n, hosts);
            seen += along_sizes(&base, &a, hosts);
            int64_t at = switch_point(&base, &a, hosts);
            check(switch_point(&slow, &a, hosts) >= at, "dear messages: later", 0, 1);
            check(switch_point(&narrow, &a, hosts) <= at, "dear bytes: earlier", 0, 1);
            for (int s = 0; s < COUNT(sizes); s++) {
                int now = sk_choose(&base, &a, hosts, SK_SUM, sizes[s], NULL);
                double usual = fixed(&base, &a, hosts, now);
                int dear = sk_choose(&slow, &a, hosts, SK_SUM, sizes[s], NULL);
                check(fixed(&base, &a, hosts, dear) <= usual * (1 + 1e-12), "dear messages: fewer",
                      0, 1);
            }
        }
    check(seen > 0, "switch points", seen, 1);
}

/* The table of doc/collectives.md: SKEIN_SHOW=1 */
static void show(void)
{
    static const int places[][2] = {{2, 2}, {8, 8}, {12, 12}, {32, 32}, {8, 2}, {16, 4}, {32, 4}};
    static const int64_t bytes[] = {64, 4096, 65536, 1 << 20, 16 << 20};
    printf("| n | k | 64 B | 4 KiB | 64 KiB | 1 MiB | 16 MiB |\n|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < COUNT(places); i++) {
        int n = places[i][0], hosts = places[i][1];
        sk_coll_ask a = ask_for(SK_ALLREDUCE, n, hosts);
        printf("| %d | %d |", n, hosts);
        for (int s = 0; s < COUNT(bytes); s++) {
            double seconds = 0;
            int alg = sk_choose(&sk_costs_preset, &a, hosts, SK_SUM, bytes[s], &seconds);
            char degrees[SK_DEGREES_TEXT];
            printf(" %s%s %.0f us |", sk_algorithm_name(alg), sk_degrees_print(a.degrees, degrees),
                   1e6 * seconds);
        }
        printf("\n");
    }
}

/* --- in the heaps --- */

static void heaps(void)
{
    sk_costs c = sk_costs_preset;
    c.cores = 4;
    c.cache = 1 << 20;
    c.far = 1 << 22;
    for (int k = 0; k < SK_N_COLLS; k++)
        for (int n = 2; n <= 16; n++) {
            double small = sk_shm_price(&c, (sk_coll_kind)k, n, 4), before = 0;
            check(small >= c.shm.tiny, "latency", small, c.shm.tiny);
            for (int64_t bytes = 1; bytes < 1 << 26; bytes *= 4) {
                double now = sk_shm_price(&c, (sk_coll_kind)k, n, bytes);
                check(now > before, "grows with size", now, before);
                before = now;
            }
        }
    double wide = sk_shm_price(&c, SK_ALLREDUCE, 4, 1 << 16);
    check(near(wide, c.shm.tiny + 2 * c.shm.member + 65536 * c.shm.sum), "in cache", wide, 0);
    double far = sk_shm_price(&c, SK_ALLREDUCE, 4, 1 << 24);
    check(near(far, c.shm.tiny + 2 * c.shm.member + 16777216 * fmax(c.shm.sum, 4 * c.shm.sum_far)),
          "out of it", far, 0);
    double half = (65536 * c.shm.sum + 262144 * fmax(c.shm.sum, 4 * c.shm.sum_far)) / 2;
    double between = sk_shm_price(&c, SK_ALLREDUCE, 4, 1 << 19);
    check(between > half, "between", between, half);
    double crowd = sk_shm_price(&c, SK_ALLREDUCE, 8, 1 << 10);
    check(near(crowd, 8 * c.shm.crowded + 2048 * c.shm.sum), "crowded", crowd, 0);
}

/* --- pins --- */

static int pinned(const char *name)
{
    uint64_t degrees = 0;
    int pin = 99;
    must(sk_pin_find("comm.algorithm", name, &pin, &degrees), name);
    return pin;
}

static void pins(void)
{
    const sk_costs *c = &sk_costs_preset;
    sk_coll_ask two = ask_for(SK_ALLREDUCE, 4, 2), here = ask_for(SK_ALLREDUCE, 4, 1);
    sk_coll_ask swap = ask_for(SK_ALLTOALL, 4, 2), lone = ask_for(SK_ALLTOALL, 1, 1);
    uint64_t degrees = 0;
    int alg = 99, pin = 99;
    check(pinned("") == SK_PIN_NONE && pinned("auto") == SK_PIN_NONE, "no pin", 0, 1);
    check(pinned("shm") == SK_BUILTIN, "shm", pinned("shm"), SK_BUILTIN);
    for (int i = 0; sk_coll_parts[i]; i++) {
        const sk_coll *p = sk_coll_parts[i];
        if (p->native || p->adasum || !sk_coll_can(p, &here)) continue;
        must(sk_choose_call(c, pinned(p->name), &here, 1, SK_SUM, 64, &alg), p->name);
        check(alg == i, p->name, alg, i);
    }
    must(sk_choose_call(c, SK_BUILTIN, &here, 1, SK_SUM, 64, &alg), "shm here");
    check(alg == SK_BUILTIN, "shm here", alg, SK_BUILTIN);
    REFUSED(sk_choose_call(c, SK_BUILTIN, &two, 2, SK_SUM, 64, &alg), SK_ECONF,
            "shm does not do allreduce", "on 2 hosts", "direct");
    REFUSED(sk_choose_call(c, pinned("ring"), &swap, 2, SK_SUM, 64, &alg), SK_ECONF,
            "ring does not do alltoall", "these do: ", "direct");
    must(sk_choose_call(c, pinned("ring"), &lone, 1, SK_SUM, 64, &alg), "alone");
    check(alg == SK_BUILTIN, "alone", alg, SK_BUILTIN);
    two.degrees = 0x0404;
    REFUSED(sk_choose_call(c, pinned("butterfly"), &two, 2, SK_SUM, 64, &alg), SK_ECONF,
            "butterfly:4x4 is for 16 ranks, and this allreduce has 4", "half of it");
    two.degrees = 0x0202;
    must(sk_choose_call(c, pinned("butterfly"), &two, 2, SK_SUM, 64, &alg), "degrees");
    check(two.degrees == 0x0202, "degrees that are pinned stay", (double)two.degrees, 0x0202);
    must(sk_pin_find("k", "sparse:4x2", &pin, &degrees), "degrees");
    check(degrees == 0x0204 && pin == pinned("sparse"), "sparse:4x2", (double)degrees, 0x0204);
    REFUSED(sk_pin_find("k", "ring:4x2", &pin, &degrees), SK_EUSAGE, "ring takes no degrees");
    REFUSED(sk_pin_find("k", "sparse:4x1", &pin, &degrees), SK_EUSAGE, "degrees of 2 to 255");
    REFUSED(sk_pin_find("comm.algorithm", "rign", &pin, &degrees), SK_EUSAGE, "'rign' is unknown",
            "'ring'", "skein list coll");
}

/* Adasum is a sum of its own: its algorithms do it, and nothing else. */
static void adasum(void)
{
    const sk_costs *c = &sk_costs_preset;
    int own = sk_coll_find("adasum"), alg = 99;
    for (int hosts = 1; hosts <= 4; hosts *= 2) {
        sk_coll_ask a = ask_for(SK_ALLREDUCE, 4, hosts);
        must(sk_choose_call(c, SK_PIN_NONE, &a, hosts, SK_ADASUM, 4096, &alg), "adasum");
        check(alg == own && own >= 0, "adasum", alg, own);
        REFUSED(sk_choose_call(c, pinned("direct"), &a, hosts, SK_ADASUM, 4096, &alg), SK_ECONF,
                "direct sums, and this allreduce combines by adasum", "these do it: adasum");
        REFUSED(sk_choose_call(c, own + 1, &a, hosts, SK_SUM, 4096, &alg), SK_ECONF,
                "adasum combines by adasum, and this allreduce sums");
    }
}

/* --- files --- */

static char folder[] = "/tmp/skein-choose-XXXXXX";

static const char *in_folder(const char *name) { return sk_print(&arena, "%s/%s", folder, name); }

static void same_costs(const sk_costs *x, const sk_costs *y)
{
    const double *a = &x->inside.alpha, *b = &y->inside.alpha;
    for (size_t i = 0; i < offsetof(sk_costs, cache) / sizeof(double); i++)
        check(near(a[i], b[i]), "a number of a file", a[i], b[i]);
    check(x->cache == y->cache && x->far == y->far && x->cores == y->cores, "cache and cores",
          (double)x->cores, (double)y->cores);
    check(!strcmp(x->host, y->host), x->host, 0, 1);
}

static void there_and_back(void)
{
    sk_machine m, r;
    sk_costs c = scaled(3.7, 0.31);
    c.shm = (sk_shm_cost){1.25e-7, 0, 5e-6, 1 / 7.1e9, 1 / 9.3e9, 1 / 21e9, 1 / 33e9};
    c.cores = 48;
    c.cache = 123456789;
    c.far = 987654321;
    sk_host_mark(c.host, sizeof c.host);
    const char *path = in_folder("deep/er/machine.txt");
    if (!must(sk_calibrate_machine(&arena, &c, &m), "machine")) return;
    if (!must(sk_machine_write(&arena, path, &m), "write")) return;
    if (!must(sk_machine_read(&arena, path, &r), "read")) return;
    same_costs(&c, &r.costs);
    check(r.chosen && !r.ring && r.per_thread && !r.overlap, "flags", 0, 1);
    check(near(r.flops, m.flops) && r.ranks_per_host == m.ranks_per_host, "the rest", 0, 1);
    check(!strcmp(r.name, "calibrated"), r.name, 0, 1);
}

static void usual(void)
{
    sk_machine m;
    const char *warning = "";
    setenv("XDG_CONFIG_HOME", folder, 1);
    must(sk_machine_default(&arena, NULL, &m, &warning), "no file");
    check(!strcmp(m.name, "cpu") && !warning && !*m.costs.host, "preset", 0, 1);
    sk_costs c = scaled(2, 2);
    sk_host_mark(c.host, sizeof c.host);
    must(sk_calibrate_machine(&arena, &c, &m), "machine");
    must(sk_machine_write(&arena, sk_machine_path(&arena), &m), "write");
    must(sk_machine_default(&arena, "", &m, &warning), "calibrated");
    check(!strcmp(m.name, "calibrated") && !warning, "calibrated", 0, 1);
    same_costs(&c, &m.costs);
    must(sk_machine_default(&arena, "h100-8", &m, &warning), "asked for");
    check(!strcmp(m.name, "h100-8") && !warning, "asked for", 0, 1);
    must(sk_calibrate_machine(&arena, &c, &m), "machine");
    snprintf(m.costs.host, sizeof m.costs.host, "another host");
    must(sk_machine_write(&arena, sk_machine_path(&arena), &m), "write");
    must(sk_machine_default(&arena, NULL, &m, &warning), "of another host");
    check(!strcmp(m.name, "cpu") && warning && strstr(warning, "another host"), "warning", 0, 1);
}

static sk_status reading(const char *text)
{
    sk_machine m;
    const char *path = in_folder("bad.txt");
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
    return sk_machine_read(&arena, path, &m);
}

static void files(void)
{
    if (!check(mkdtemp(folder) != NULL, "folder", 0, 1)) return;
    there_and_back();
    usual();
    must(reading("like: cpu\nversion: 1\ncollectives: chosen\ncache: 1Mi\n"), "a good file");
    REFUSED(reading("like: cpu\nshm_tini: 1e-6\n"), SK_ECONF, ":2: a machine has no 'shm_tini'",
            "'shm_tiny'");
    REFUSED(reading("like: cpu\nversion: 3\n"), SK_ECONF, "version is '3'");
    REFUSED(reading("like: cpu\nalpha_between: fast\n"), SK_ECONF, "alpha_between is 'fast'");
    REFUSED(reading("like: cpu\nalpha_between: -1\n"), SK_ECONF, "alpha_between is '-1'");
    REFUSED(reading("like: cpu\nadd_rate: 0\n"), SK_ECONF, "add_rate is '0'");
    REFUSED(reading("like: cpu\neach_inside: nan\n"), SK_ECONF, "each_inside is 'nan'");
    REFUSED(reading("like: cpu\ncores: 0\n"), SK_ECONF, "cores is '0'");
    REFUSED(reading("like: cpu\ncores: 2\ncores: 2\n"), SK_ECONF, "a second time");
    REFUSED(reading("like: cpu\ncollectives: best ones\n"), SK_ECONF, "best, ring, nccl or chosen");
    char *clean = sk_print(&arena, "rm -rf '%s'", folder);
    check(!system(clean), "clean", 0, 1);
}

static void fits(void)
{
    double size[] = {8, 4096, 65536, 1 << 20}, seconds[4], a, b;
    for (int i = 0; i < 4; i++) seconds[i] = 3e-6 + size[i] * 2e-10;
    sk_fit_line(size, seconds, 4, &a, &b);
    check(fabs(a - 3e-6) < 1e-12 && fabs(b - 2e-10) < 1e-16, "a line", a, 3e-6);
    for (int i = 0; i < 4; i++) seconds[i] *= i % 2 ? 1.02 : 0.98;
    sk_fit_line(size, seconds, 4, &a, &b);
    check(fabs(a / 3e-6 - 1) < 0.1 && fabs(b / 2e-10 - 1) < 0.1, "a noisy line", a, 3e-6);
    for (int i = 0; i < 4; i++) seconds[i] = 1 / size[i];
    sk_fit_line(size, seconds, 4, &a, &b);
    check(a >= 0 && b >= 0, "nothing negative", b, 0);
}

/* --- programs --- */

typedef struct world {
    sk_graph graph;
    sk_layout layout;
    sk_program *p[8];
    int n;
} world;

static sk_status compile(world *w, const char *layout, const sk_compile_opts *more)
{
    sk_trial t = {.batch = 8, .seq = 8};
    sk_compile_opts o = *more;
    o.optim = sk_optim_find("adamw");
    o.threads = 1;
    o.bucket_bytes = 4096;
    t.model = sk_model_preset("llama-tiny", &t.hyper);
    SK_TRY(sk_layout_read(layout, 0, &w->layout));
    SK_TRY(sk_trial_graph(&arena, &t, &w->graph));
    w->n = sk_mesh_ranks(&w->layout.mesh);
    for (int r = 0; r < w->n; r++)
        SK_TRY(sk_compile(&arena, &w->graph, &w->layout, &o, r, &w->p[r]));
    return sk_verify((const sk_program *const *)w->p, w->n);
}

/* Calls between hosts have a list and a workspace for it, those inside one have neither. */
static void placed(const world *w, const int *host_of)
{
    int lists = 0;
    for (int r = 0; r < w->n; r++)
        for (int i = 0; i < w->p[r]->calls.n; i++) {
            const sk_call_plan *c = &w->p[r]->calls.v[i];
            const sk_group *g = &w->p[r]->groups[c->group];
            bool apart = sk_hosts_count(g->ranks, g->n, host_of) > 1;
            check((c->algorithm >= 0) == apart, c->what, c->algorithm, apart);
            check((c->workspace >= 0) == (c->workspace_bytes > 0), "workspace",
                  (double)c->workspace_bytes, 0);
            if (c->algorithm < 0) check(c->workspace < 0, "no workspace", c->workspace, -1);
            lists += apart;
        }
    check(lists > 0, "calls between hosts", lists, 1);
}

static void programs(void)
{
    static const int host_of[] = {0, 0, 1, 1};
    static const char layout[] = "dp=2 tp=2 zero=1";
    world *one = sk_new(&arena, world), *two = sk_new(&arena, world), *ring = sk_new(&arena, world);
    sk_compile_opts none = {0}, hosts = {.host_of = host_of},
                    pin = {.pins = {.all = pinned("ring")}};
    if (!must(compile(one, layout, &none), layout)) return;
    if (!must(compile(two, layout, &hosts), layout)) return;
    if (!must(compile(ring, layout, &pin), layout)) return;
    placed(two, host_of);
    for (int r = 0; r < 4; r++) {
        check(sk_program_hash(two->p[r]) == sk_program_hash(two->p[0]), "hash of ranks", r, 0);
        check(sk_program_hash(ring->p[r]) == sk_program_hash(ring->p[0]), "hash of ranks", r, 0);
    }
    check(sk_program_hash(one->p[0]) != sk_program_hash(two->p[0]), "hash of choices", 0, 1);
    check(sk_program_hash(one->p[0]) != sk_program_hash(ring->p[0]), "hash of pins", 0, 1);
    check(!strstr(sk_program_print(one->p[0], &arena), " by "), "explain, one host", 0, 1);
    check(strstr(sk_program_print(ring->p[0], &arena), " x f32 by ring\n") != NULL,
          "explain, pinned", 0, 1);
    sk_call_plan *c = two->p[1]->calls.v;
    while (c->algorithm < 0) c++;
    c->algorithm = c->algorithm ? 0 : 1;
    REFUSED(sk_verify((const sk_program *const *)two->p, 4), SK_EBUG, "P1:", "by ");
    world *bad_pin = sk_new(&arena, world);
    REFUSED(compile(bad_pin, "dp=2 tp=2", &(sk_compile_opts){.pins = {.all = pinned("adasum")}}),
            SK_ECONF, "adasum combines by adasum", "these do it: ");
}

/* Pins of some kinds and axes: the narrower one counts, and other calls are chosen as ever. */
static void some_pins(void)
{
    static const char *const axes[] = {"dp", "tp"};
    sk_pins p;
    must(sk_pins_read("k", "direct, all-reduce/dp: ring, allgather: bruck, all_reduce: auto", axes,
                      2, &p),
         "pins");
    check(sk_pins_of(&p, SK_ALLREDUCE, 0) == pinned("ring"), "kind and axis", 0, 1);
    check(sk_pins_of(&p, SK_ALLREDUCE, 1) == SK_PIN_NONE, "kind", 0, 1);
    check(sk_pins_of(&p, SK_ALLREDUCE, -1) == SK_PIN_NONE, "no axis", 0, 1);
    check(sk_pins_of(&p, SK_ALLGATHER, 1) == pinned("bruck"), "kind of any axis", 0, 1);
    check(sk_pins_of(&p, SK_BROADCAST, 0) == pinned("direct"), "all others", 0, 1);
    must(sk_pins_read("k", "butterfly:4x2, all-reduce/dp: sparse:2x8, all-gather: ring", axes, 2,
                      &p),
         "degrees");
    check(sk_pins_of(&p, SK_ALLREDUCE, 0) == pinned("sparse") &&
              sk_pins_degrees(&p, SK_ALLREDUCE, 0) == 0x0802,
          "degrees of kind and axis", 0, 1);
    check(sk_pins_of(&p, SK_ALLREDUCE, 1) == pinned("butterfly") &&
              sk_pins_degrees(&p, SK_ALLREDUCE, 1) == 0x0204,
          "degrees of all", 0, 1);
    check(!sk_pins_degrees(&p, SK_ALLGATHER, 0), "a kind without", 0, 1);
    must(sk_pins_read("k", "auto", axes, 2, &p), "auto");
    check(!sk_pins_any(&p), "none", 0, 1);
    REFUSED(sk_pins_read("k", "all-redice: ring", axes, 2, &p), SK_EUSAGE, "'all-redice'",
            "did you mean 'allreduce'");
    REFUSED(sk_pins_read("k", "all-reduce/pd: ring", axes, 2, &p), SK_EUSAGE, "axis of the layout",
            "there are: dp, tp");
    REFUSED(sk_pins_read("k", "all-reduce: rign", axes, 2, &p), SK_EUSAGE, "'rign' is unknown",
            "'ring'");
    REFUSED(sk_pins_read("k", "ring, all-reduce:", axes, 2, &p), SK_EUSAGE, "KIND/AXIS",
            "are needed");
    REFUSED(sk_pins_read("k", "allreduce: ring, all-reduce: shm", axes, 2, &p), SK_EUSAGE, "twice",
            "all-reduce");
    REFUSED(sk_pins_read("k", "ring, shm", axes, 2, &p), SK_EUSAGE, "twice", "all collectives");
}

/* Each call of a program has what is pinned for its kind and axis. */
static void some_calls(void)
{
    static const char *const axes[] = {"dp", "tp"};
    world *w = sk_new(&arena, world);
    sk_compile_opts o = {0};
    int ring = 0, bruck = 0, other = 0;
    must(sk_pins_read("k", "all-reduce/tp: ring, all-gather: bruck", axes, 2, &o.pins), "pins");
    if (!must(compile(w, "dp=2 tp=2 zero=1", &o), "pins of some")) return;
    for (int i = 0; i < w->p[0]->calls.n; i++) {
        const sk_call_plan *c = &w->p[0]->calls.v[i];
        int want = SK_BUILTIN;
        if (c->kind == SK_ALLGATHER) want = sk_coll_find("bruck"), bruck++;
        else if (c->kind == SK_ALLREDUCE && c->group == sk_mesh_axis(&w->p[0]->layout.mesh, "tp"))
            want = sk_coll_find("ring"), ring++;
        else other++;
        check(c->algorithm == want, "the algorithm of a call", c->algorithm, want);
    }
    check(ring && bruck && other, "calls of all kinds", ring, bruck);
}

/* With any order of sums the balanced list for any number of members is chosen by itself; without
 * it, and in canonical order, none but those of the tree are. */
static void any_orders(void)
{
    static const int host_of[] = {0, 1, 2, 3, 4, 5};
    sk_costs c = scaled(0.001, 1);
    for (int any = 0; any < 2; any++)
        for (int canonical = 0; canonical < 2; canonical++) {
            world *w = sk_new(&arena, world);
            sk_compile_opts o = {.host_of = host_of, .costs = &c, .any_order = any};
            const char *layout = canonical ? "dp=6; canonical order" : "dp=6";
            int own = 0;
            if (!must(compile(w, layout, &o), layout)) return;
            for (int i = 0; i < w->p[0]->calls.n; i++) {
                const sk_call_plan *k = &w->p[0]->calls.v[i];
                if (k->algorithm < 0 || sk_coll_parts[k->algorithm]->order == SK_ORDER_TREE)
                    continue;
                own++;
                check(k->algorithm == sk_coll_find("circulant"), "balanced halving", k->algorithm,
                      sk_coll_find("circulant"));
            }
            check((own > 0) == (any && !canonical), layout, own, any);
        }
    for (int n = 3; n <= 24; n++) {
        sk_coll_ask a = ask_for(SK_ALLREDUCE, n, n);
        a.any_order = true;
        int at = sk_choose(&c, &a, n, SK_SUM, 1 << 22, NULL);
        double tree = sk_call_price(
            &c, sk_choose(&c, &(sk_coll_ask){.kind = a.kind, .n = n}, n, SK_SUM, 1 << 22, NULL), &a,
            n, 1 << 22);
        check(sk_call_price(&c, at, &a, n, 1 << 22) <= tree, "any order is no dearer", at, n);
        if (sk_power_of_two(n)) continue;
        check(at == sk_coll_find("circulant"), "n is no power of two", at, n);
    }
}

/* In the simulator a call costs what its algorithm costs. */
static double step_of(const sk_machine *m, int pin)
{
    world *w = sk_new(&arena, world);
    sk_simulation simulated;
    sk_compile_opts o = {.host_of = sk_machine_hosts(&arena, m, &w->layout, 4),
                         .costs = &m->costs,
                         .pins = {.all = pin}};
    if (!must(compile(w, "dp=4", &o), "dp=4")) return 0;
    sk_simulate_in in = {.machine = m, .programs = (const sk_program *const *)w->p};
    if (!must(sk_simulate(&arena, &in, &simulated), "walk")) return 0;
    return simulated.exposed;
}

/* One rank of each class stands for the others also where calls are chosen by hosts. */
static void folded(const sk_machine *m, const char *layout)
{
    const sk_program *const *programs = NULL;
    int *shape_of = NULL;
    world *w = sk_new(&arena, world);
    sk_trial t = {.batch = 16, .seq = 8};
    sk_simulation all, few;
    t.model = sk_model_preset("llama-tiny", &t.hyper);
    if (!must(sk_layout_read(layout, 0, &w->layout), layout)) return;
    if (!must(sk_trial_graph(&arena, &t, &w->graph), layout)) return;
    int n = sk_mesh_ranks(&w->layout.mesh);
    sk_compile_opts o = {.optim = sk_optim_find("adamw"),
                         .threads = 1,
                         .host_of = sk_machine_hosts(&arena, m, &w->layout, n),
                         .costs = &m->costs};
    if (!must(sk_simulate_compile(&arena, &w->graph, &w->layout, &o, &programs, &shape_of), layout))
        return;
    sk_simulate_in in = {.machine = m, .programs = programs, .shape_of = shape_of};
    must(sk_simulate(&arena, &in, &all), layout);
    in.by_class = true;
    must(sk_simulate(&arena, &in, &few), layout);
    check(all.seconds == few.seconds && all.wire == few.wire, layout, few.seconds, all.seconds);
    check(few.n <= all.n, layout, few.n, all.n);
}

static void simulated_calls(void)
{
    sk_machine m;
    must(sk_machine_read(&arena, "cpu", &m), "cpu");
    double here = step_of(&m, SK_PIN_NONE), played = step_of(&m, pinned("ring"));
    m.ranks_per_host = 2;
    double chosen = step_of(&m, SK_PIN_NONE), ring = step_of(&m, pinned("ring"));
    check(here > 0 && here < played, "heaps and a ring", here, played);
    check(played < ring, "a ring here and between hosts", played, ring);
    check(chosen < ring, "chosen and a ring", chosen, ring);
    folded(&m, "dp=16");
    folded(&m, "dp=4 tp=2 zero=1");
    m.ranks_per_host = 4;
    folded(&m, "dp=8 tp=2 zero=3");
    folded(&m, "pp=2 dp=6 tp=2 micro=2");
    m.ranks_per_host = 3; /* groups of one axis lie differently on hosts */
    folded(&m, "dp=4 tp=2");
}

int main(void)
{
    sk_costs cheap = scaled(0.01, 1), dear = scaled(100, 1);
    grid(&sk_costs_preset);
    grid(&cheap);
    grid(&dear);
    sparse();
    uneven();
    prices();
    incast();
    switches();
    if (getenv("SKEIN_SHOW")) show();
    heaps();
    pins();
    adasum();
    files();
    fits();
    programs();
    some_pins();
    some_calls();
    any_orders();
    simulated_calls();
    sk_arena_end(&arena);
    printf("choose: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
