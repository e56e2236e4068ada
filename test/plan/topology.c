/* topology.c - machines that are not alike everywhere, against closed forms; and one rank of each
 * class against all ranks, to the last bit, on random layouts and machines. */
#include "lib/ranks.h"

#include "base/file_io.h"
#include "base/rng.h"
#include "base/strings.h"
#include "plan/step_jitter.h"
#include "plan/network.h"
#include "plan/simulator.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CASES = 150 };

static int checks, bad;
static sk_arena arena;
static uint64_t drawn;

static void check(bool ok, const char *what, double found, double wanted)
{
    checks++;
    if (ok) return;
    bad++;
    printf("%s: found %.17g, wanted %.17g\n", what, found, wanted);
}

static void same(const char *what, double found, double wanted)
{
    check(found == wanted, what, found, wanted);
}

static void near(const char *what, double found, double wanted)
{
    check(fabs(found - wanted) <= 1e-9 * fabs(wanted), what, found, wanted);
}

static bool must(sk_status st, const char *what)
{
    check(!st, what, (double)st, 0);
    if (st) printf("  %s\n", sk_error());
    return !st;
}

static int pick(int from, int to)
{
    return from + (int)(sk_rng_uniform(23, 1, drawn++) * (to - from + 1));
}

/* --- machines --- */

static sk_status read_text(const char *text, sk_machine *m)
{
    char path[] = "/tmp/skein-machine-XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    fputs(text, f);
    fclose(f);
    sk_status st = sk_machine_read(&arena, path, m);
    remove(path);
    return st;
}

/* Links that take no time, kernels that take their flops and nothing else. */
static const char work_alone[] = "flops: 1e9\nmemory_rate: 1e18\noverhead: 0\nalpha_inside: 0\n"
                                 "rate_inside: 1e18\nalpha_between: 0\nrate_between: 1e18\n";

/* Work that takes no time; links between hosts that take their bytes, a million a second. */
static const char bytes_alone[] = "flops: 1e21\nmemory_rate: 1e18\noverhead: 0\nalpha_inside: 0\n"
                                  "rate_inside: 1e18\nalpha_between: 0\nrate_between: 1e6\n"
                                  "collectives: ring\noverlap: yes\n";

static sk_machine machine(const char *base, int per_host, const char *more)
{
    sk_machine m = {0};
    const char *text = sk_print(&arena, "%sranks_per_host: %d\n%s", base, per_host, more);
    must(read_text(text, &m), text);
    return m;
}

/* --- one simulated trial --- */

typedef struct simulated {
    sk_trial t;
    sk_graph g;
    sk_layout l;
    sk_simulation p;
    const sk_program *const *programs;
    int *shape_of;
} simulated;

static sk_compile_opts opts(const sk_trial *t)
{
    return (sk_compile_opts){
        .optim = sk_optim_find("adamw"), .bucket_bytes = t->bucket_bytes, .threads = 1};
}

static bool compiles(simulated *k)
{
    sk_compile_opts o = opts(&k->t);
    return must(sk_layout_read(k->t.layout, 0, &k->l), k->t.layout) &&
           must(sk_trial_graph(&arena, &k->t, &k->g), k->t.layout) &&
           must(sk_simulate_compile(&arena, &k->g, &k->l, &o, &k->programs, &k->shape_of),
                k->t.layout);
}

static bool step(simulated *k, const sk_machine *m, bool fold)
{
    sk_simulate_in in = {
        .machine = m, .programs = k->programs, .shape_of = k->shape_of, .by_class = fold};
    return must(sk_simulate(&arena, &in, &k->p), k->t.layout);
}

static sk_trial small(const char *preset, int64_t layers, int64_t batch, const char *layout)
{
    sk_trial t = {.batch = batch, .seq = 8, .layout = layout};
    t.model = sk_model_preset(preset, &t.hyper);
    t.hyper.num_hidden_layers = layers;
    return t;
}

/* The step of a layout; 0: it has none. */
static double seconds_of(const char *layout, const sk_machine *m)
{
    simulated k = {.t = small("tiny", 4, 8, layout)};
    return compiles(&k) && step(&k, m, true) ? k.p.seconds : 0;
}

/* --- slow ranks, unlike hosts --- */

/* GPipe with p stages and m micro-batches, a stage of which takes f times as long, wherever it is:
 * what flows is as fast as that stage, and fills and drains the others. */
static void slow_stage(int p, int m, int slow, double f)
{
    sk_mark mark = sk_arena_mark(&arena);
    sk_machine unit;
    char text[64], who[32];
    snprintf(text, sizeof text, "pp=%d micro=%d schedule=gpipe", p, m);
    snprintf(who, sizeof who, "%d@%g", slow, f);
    simulated k = {.t = small("llama-tiny", p, m, text)};
    must(sk_machine_read(&arena, "unit", &unit), "unit");
    must(sk_topology_slow(&unit.topology, who), who);
    for (int fold = 0; fold < 2; fold++)
        if (compiles(&k) && step(&k, &unit, fold)) same(text, k.p.seconds, 3 * (p - 1) + 3 * f * m);
    sk_arena_back(&arena, mark);
}

/* Replicas that wait for a slow one: everybody takes its time, and the others wait for it. */
static void slow_replica(void)
{
    sk_machine m = machine(work_alone, 2, "");
    double plain = seconds_of("dp=4", &m);
    must(sk_topology_slow(&m.topology, "2@1.5"), "slow");
    simulated k = {.t = small("tiny", 4, 8, "dp=4")};
    if (!compiles(&k) || !step(&k, &m, true)) return;
    near("slow replica", k.p.seconds, 1.5 * plain);
    same("classes: the slow one, the others", k.p.n, 2);
    near("the others wait", k.p.v[0].bubble, 0.5 * plain);
    near("it does not", k.p.v[k.p.at[2]].busy, 1.5 * plain);
    must(sk_topology_slow(&m.topology, "host1@2"), "slow");
    near("factors multiply", seconds_of("dp=4", &m), 3 * plain);
}

static void unlike_hosts(void)
{
    sk_machine m = machine(work_alone, 2, ""),
               half = machine(work_alone, 2, "unlike: 1 flops 5e8\n");
    near("half the flops", seconds_of("dp=4", &half), 2 * seconds_of("dp=4", &m));
    near("not for other hosts", seconds_of("dp=2", &half), seconds_of("dp=2", &m));
}

/* --- networks --- */

typedef struct met { /* a network, opened for a layout */
    simulated k;
    sk_variants v;
    sk_network n;
} met;

static void meets(met *x, const char *layout, int per_host, const char *base, const char *more)
{
    sk_machine *m = sk_new(&arena, sk_machine);
    *m = machine(base, per_host, more);
    *x = (met){
        .k = {.t = small(strstr(layout, "ep=") ? "switch-tiny" : "llama-tiny", 4, 16, layout)}};
    if (!compiles(&x->k)) return;
    int n = sk_mesh_ranks(&x->k.l.mesh);
    sk_network_in in = {.machine = m,
                        .variants = &x->v,
                        .programs = x->k.programs,
                        .shape_of = x->k.shape_of,
                        .n_ranks = n};
    must(sk_variants_make(&arena, m, n, &x->v), more);
    must(sk_network_open(&arena, &in, &x->n), more);
}

/* How many times as long as on its own network a byte of these calls takes. */
static void call_takes(const char *layout, int per_host, const char *more, const char *axis,
                       sk_coll_kind kind, double wanted)
{
    met x;
    sk_mark mark = sk_arena_mark(&arena);
    meets(&x, layout, per_host, bytes_alone, more);
    int a = sk_mesh_axis(&x.k.l.mesh, axis);
    const sk_machine *m = sk_network_call(&x.n, a, kind, 0);
    double found = m->costs.between.beta * 1e6;
    check(fabs(found - wanted) < 1e-9, more, found, wanted);
    sk_arena_back(&arena, mark);
}

static void message_takes(const char *layout, int per_host, const char *more, int to, double wanted,
                          double alpha)
{
    met x;
    sk_mark mark = sk_arena_mark(&arena);
    meets(&x, layout, per_host, bytes_alone, more);
    const sk_machine *m = sk_network_message(&x.n, 0, to);
    check(fabs(m->costs.between.beta * 1e6 - wanted) < 1e-9, more, m->costs.between.beta, wanted);
    check(fabs(m->costs.between.alpha - alpha) < 1e-9, more, m->costs.between.alpha, alpha);
    sk_arena_back(&arena, mark);
}

/* Four groups of dp, one rank of each behind each switch: their rings share uplinks that carry
 * 4 / over; those of tp stay below.  In the other order it is the other way round. */
static void fat_trees(void)
{
    call_takes("dp=4 tp=4 order: dp tp", 1, "level: 4 over 2\n", "dp", SK_ALLREDUCE, 2);
    call_takes("dp=4 tp=4 order: dp tp", 1, "level: 4 over 2\n", "tp", SK_ALLREDUCE, 1);
    call_takes("dp=4 tp=4 order: tp dp", 1, "level: 4 over 2\n", "dp", SK_ALLREDUCE, 1);
    call_takes("dp=4 tp=4 order: tp dp", 1, "level: 4 over 2\n", "tp", SK_ALLREDUCE, 2);
    call_takes("dp=4 tp=4 order: dp tp", 1, "level: 4 over 0.5\n", "dp", SK_ALLREDUCE, 1);
    call_takes("dp=4 tp=4 order: dp tp", 1, "level: 4 rate 1e6\n", "dp", SK_ALLREDUCE, 4);
    call_takes("dp=4 tp=4 order: dp tp", 4, "level: 2 over 16\n", "dp", SK_ALLREDUCE, 8);
    call_takes("dp=8", 1, "level: 2\nlevel: 4 over 4\n", "dp", SK_ALLREDUCE, 1);
    call_takes("dp=8", 1, "level: 2 over 3\nlevel: 4 over 4\n", "dp", SK_ALLREDUCE, 1.5);
    call_takes("dp=2 tp=4 order: dp tp", 1, "level: 2 over 3\nlevel: 4 over 8\n", "dp",
               SK_ALLREDUCE, 8);
    /* 4 members to 4 behind the other switch: 16 pairs of 1/7 over links of 4 / 2 */
    call_takes("ep=8", 1, "level: 4 over 2\n", "ep", SK_ALLTOALL, 16.0 / 7 / 2);
    message_takes("pp=2 tp=4 order: pp tp", 1, "level: 4 over 2 alpha 3e-3\n", 4, 2, 3e-3);
    message_takes("pp=2 tp=4 order: tp pp", 1, "level: 4 over 2 alpha 3e-3\n", 1, 1, 0);
    message_takes("pp=4", 1, "level: 1 alpha 1e-3\nlevel: 2 alpha 2e-3\n", 1, 1, 1e-3);
}

/* Ranks of one place on their hosts stay on their rail; a single ring goes from the last rank of a
 * host to the first of the next, two of them over the uplinks of a rail's 2 ranks. */
static void rails(void)
{
    call_takes("dp=4 tp=4 order: dp tp", 4, "rails: 4 over 100\n", "dp", SK_ALLREDUCE, 1);
    call_takes("dp=8", 4, "rails: 4 over 4\n", "dp", SK_ALLREDUCE, 4);
    call_takes("dp=8", 4, "rails: 2 over 4\n", "dp", SK_ALLREDUCE, 2);
    call_takes("dp=8", 4, "rails: 4 hosts 1 over 4\n", "dp", SK_ALLREDUCE, 4);
    /* to 3 of 4 ranks of the other host, from each of a rail's 2 ranks, over 2 / 4 */
    call_takes("ep=8", 4, "rails: 4 over 4\n", "ep", SK_ALLTOALL, 2 * 3.0 / 7 / 0.5);
    met x;
    meets(&x, "dp=8", 4, "like: h100-8\n", "rails: 4 over 1e6\n"); /* rings over all cards */
    same("rings on rails", sk_network_call(&x.n, 0, SK_ALLREDUCE, 0)->costs.between.beta, 1 / 46e9);
    /* 8 cards of a host, a quarter of their rate above: 2 of 8, whatever the algorithm's share */
    meets(&x, "dp=16", 8, "like: h100-8\n", "level: 1 over 4\n");
    near("rings over all cards", sk_network_call(&x.n, 0, SK_ALLREDUCE, 0)->costs.between.beta,
         4 / 46e9);
    near("their price",
         sk_machine_coll(sk_network_call(&x.n, 0, SK_ALLGATHER, 0), SK_ALLGATHER, 1LL << 40,
                         (sk_reach){16, 2, 8}),
         (1LL << 40) * 15 / 16 / (2 * 46e9) + 14 * 3.4e-6 + 1.4e-5 + 30e-6); /* and the call */
}

/* A ring both ways has half of its bytes on each link; with every second host, its neighbours'
 * too.  All to all on a ring of 8: 1 + 2 + 3 + 4 links ahead. */
static void tori(void)
{
    call_takes("dp=4 tp=4", 1, "torus: 4x4 rate 5e5\n", "dp", SK_ALLREDUCE, 1);
    call_takes("dp=4 tp=4", 1, "torus: 4x4 rate 1e5\n", "dp", SK_ALLREDUCE, 5);
    call_takes("dp=4 tp=4", 1, "torus: 4x4 rate 1e5\n", "tp", SK_ALLREDUCE, 5);
    call_takes("dp=16", 1, "torus: 4x4 rate 1e5\n", "dp", SK_ALLREDUCE, 5);
    call_takes("dp=8", 1, "torus: 2x2x2 rate 1e5\n", "dp", SK_ALLREDUCE, 10);
    call_takes("dp=4 tp=2 order: dp tp", 1, "torus: 8 rate 1e5\n", "dp", SK_ALLREDUCE, 10);
    call_takes("ep=8", 1, "torus: 8 rate 1e5\n", "ep", SK_ALLTOALL, 100.0 / 7);
    message_takes("pp=4 tp=2 order: pp tp", 1, "torus: 8 rate 1e6 alpha 1e-3\n", 2, 2, 2e-3);
    message_takes("pp=2 tp=4 order: pp tp", 1, "torus: 2x4 rate 1e6 alpha 1e-3\n", 4, 1, 1e-3);
}

/* Two groups of two routers; two rings, from either router, share the link between the groups. */
static void dragonflies(void)
{
    call_takes("dp=2 tp=2 order: dp tp", 1, "dragonfly: 1x2 rate 1e6 global 1e6\n", "dp",
               SK_ALLREDUCE, 2);
    call_takes("dp=2 tp=2 order: dp tp", 1, "dragonfly: 1x2 rate 1e6 global 1e6\n", "tp",
               SK_ALLREDUCE, 1);
    call_takes("dp=2 tp=2 order: dp tp", 1, "dragonfly: 1x2 rate 1e5 global 1e6\n", "dp",
               SK_ALLREDUCE, 10);
    call_takes("dp=2 tp=2 order: dp tp", 1, "dragonfly: 2x1 rate 1e5 global 1e6\n", "tp",
               SK_ALLREDUCE, 1); /* on one router */
    call_takes("dp=8", 1, "dragonfly: 2x2 rate 1e9 global 1e5\n", "dp", SK_ALLREDUCE, 10);
    message_takes("pp=2 tp=2 order: pp tp", 1, "dragonfly: 1x2 rate 1e6 global 1e6 alpha 1e-3\n", 2,
                  2, 2e-3);
    /* Of four groups, the two ranks of one send to those of the next: a third of their bytes goes
     * straight (2 links), a third by each of the others (3 and 5 links). */
    message_takes("pp=4 tp=2 order: pp tp", 1, "dragonfly: 1x2 rate 1e9 global 1e5 alpha 1e-3\n", 2,
                  20.0 / 3, 10e-3 / 3);
    call_takes("dp=4 tp=2 order: dp tp", 1, "dragonfly: 1x2 rate 1e9 global 1e5\n", "dp",
               SK_ALLREDUCE, 20.0 / 3 * 2);
}

/* Of two axes, the bytes of one are free. */
static void exposed_axes(void)
{
    static const char *const layouts[] = {"dp=2 tp=2 order: dp tp", "dp=2 tp=2 order: tp dp",
                                          "pp=2 tp=2 order: pp tp",
                                          "cp=2 tp=2 by=ring order: cp tp"};
    sk_machine m = machine(bytes_alone, 2, "");
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        simulated k = {.t = small("llama-tiny", 4, 8, layouts[i])};
        if (!compiles(&k) || !step(&k, &m, true)) return;
        const double *by = k.p.exposed_by;
        double rest = by[SK_EXPOSED_WORLD] + by[SK_EXPOSED_MEMORY];
        near(layouts[i], by[0] + rest, k.p.exposed);
        check(by[0] > 100 * by[1] && by[0] > rest && by[1] > 0, layouts[i], by[0], by[1]);
    }
}

/* A step of calls alone takes as many times as long as they do. */
static void whole_steps(void)
{
    static const struct {
        const char *more;
        double factor;
    } cases[] = {{"level: 2 over 8\n", 4},
                 {"torus: 2x2 rate 1e5\n", 10},
                 {"torus: 4 rate 1e5\n", 5},
                 {"dragonfly: 2x1 rate 1e6 global 1e5\n", 10},
                 {"unlike: 2-3 rate_between 5e5\n", 2},
                 {"unlike: 2 rate_between 5e5\nunlike: 2 rate_between 1e5\n", 10}};
    sk_machine m = machine(bytes_alone, 1, "");
    double plain = seconds_of("dp=4", &m);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sk_machine other = machine(bytes_alone, 1, cases[i].more);
        near(cases[i].more, seconds_of("dp=4", &other), cases[i].factor * plain);
    }
    sk_machine far = machine(bytes_alone, 1, "unlike: 4-7 rate_between 5e5\n");
    near("hosts that are not there", seconds_of("dp=4", &far), plain);
}

/* --- jitter --- */

static double below(double z) { return 0.5 * erfc(-z / sqrt(2)); }

/* Of so many steps, how many last no longer than x times the step without jitter: as many as the
 * law of the slowest of n ranks says, within five deviations. */
static void follows(const char *what, const double *factor, int steps, double x, double law)
{
    int n = 0;
    for (int i = 0; i < steps; i++) n += factor[i] <= x;
    double off = fabs(n - law * steps), most = 5 * sqrt(law * (1 - law) * steps) + 1;
    check(off <= most, what, n, law * steps);
}

static void slowest(double sigma, double tail, double by, int n)
{
    enum { STEPS = 4000 };
    double factor[STEPS];
    sk_jitter j = {.sigma = sigma, .tail = tail, .factor = by, .draws = STEPS};
    char text[80];
    snprintf(text, sizeof text, "slowest of %d, %g,%g@%g", n, sigma, tail, by);
    for (int i = 0; i < STEPS; i++) factor[i] = sk_jitter_slowest(&j, 7, i, 3, n);
    for (double z = -2; z < 7; z += 0.25) {
        double x = exp(sigma * z), late = sigma > 0 ? below(z - log(by) / sigma) : x >= by;
        double one = (1 - tail) * (sigma > 0 ? below(z) : 1) + tail * late;
        follows(text, factor, STEPS, x * (1 + 1e-9), pow(one, n));
    }
}

/* Replicas that only work: a step is that of the slowest, by class as rank by rank. */
static void jittered_replicas(int n, bool fold)
{
    char text[32];
    sk_machine m = machine(work_alone, 64, "jitter: 0.1\n");
    sk_jitter_result r, again;
    snprintf(text, sizeof text, "dp=%d", n);
    simulated k = {.t = small("tiny", 2, 16, text)};
    m.topology.jitter.draws = 1000;
    if (!compiles(&k) || !step(&k, &m, fold)) return;
    sk_simulate_in in = {
        .machine = &m, .programs = k.programs, .shape_of = k.shape_of, .by_class = fold};
    must(sk_jitter_steps(&arena, &in, 5, &r), text);
    must(sk_jitter_steps(&arena, &in, 5, &again), text);
    check(!memcmp(&r, &again, sizeof r), "the same twice", r.median, again.median);
    double median = log(r.median / k.p.seconds) / 0.1, p99 = log(r.p99 / k.p.seconds) / 0.1;
    check(fabs(pow(below(median), n) - 0.5) < 0.08, text, pow(below(median), n), 0.5);
    check(fabs(pow(below(p99), n) - 0.99) < 0.015, text, pow(below(p99), n), 0.99);
    check(r.worst >= r.p99, text, r.worst, r.p99);
}

/* Pipelines that are not in step: one rank of each class is held up by the slowest of every stage,
 * which are of different replicas. */
static void jitter_bound(void)
{
    sk_machine m = machine(work_alone, 64, "jitter: 0.2\n");
    simulated k = {.t = small("llama-tiny", 4, 16, "pp=4 dp=4 micro=4")};
    sk_jitter_result few, all;
    if (!compiles(&k)) return;
    sk_simulate_in in = {.machine = &m, .programs = k.programs, .shape_of = k.shape_of};
    must(sk_jitter_steps(&arena, &in, 5, &all), "ranks");
    in.by_class = true;
    must(sk_jitter_steps(&arena, &in, 5, &few), "classes");
    check(few.median > all.median && few.median < 1.3 * all.median, "bound", few.median,
          all.median);
}

static void jitter(void)
{
    slowest(0.05, 0, 1, 1);
    slowest(0.02, 0, 1, 1000);
    slowest(0.05, 0.01, 1.2, 1);
    slowest(0.05, 0.01, 1.2, 64);
    slowest(0, 0.01, 2, 16);
    for (int fold = 0; fold < 2; fold++) jittered_replicas(1, fold), jittered_replicas(16, fold);
    jitter_bound();
}

static void refused(const char *text, const char *words)
{
    sk_machine m = {0};
    sk_status st = read_text(text, &m);
    bool ok = words ? st == SK_ECONF && strstr(sk_error_line(), words) : !st;
    check(ok, text, (double)st, words ? SK_ECONF : 0);
    if (!ok) printf("  %s\n", sk_error_line());
}

static void lines(void)
{
    refused("like: h100-8\nslow: 3@1.2 host2@1.1, 8-15@1.05\nunlike: 3-4 rate_between 24e9\n",
            NULL);
    refused("slow: 3\n", "RANK@FACTOR");
    refused("slow: 5-3@2\n", "RANK@FACTOR");
    refused("slow: -3@2\n", "RANK@FACTOR");
    refused("slow: 3@0\n", "RANK@FACTOR");
    refused("unlike: 3 memory 5e9\n", "HOST NUMBER VALUE");
    refused("unlike: flops 5e9\n", "HOST NUMBER VALUE");
    refused("unlike: 3 flops -1\n", "HOST NUMBER VALUE");
    refused("like: h100-8\nrails: 8 hosts 32 over 2\nlevel: 128 alpha 1e-6 over 4\n", NULL);
    refused("like: h100-8\ntorus: 4x4x4 rate 1e9\n", NULL);
    refused("level: 4 over 2 over 2\n", "'HOSTS over FACTOR");
    refused("level: 0\n", "'HOSTS over FACTOR");
    refused("level: 4 rate\n", "'HOSTS over FACTOR");
    refused("rails: 8 hosts 1.5\n", "'RAILS hosts N");
    refused("torus: 4x rate 1e9\n", "16x16x16");
    refused("torus: 4x4\n", "16x16x16");
    refused("torus: 1024x1024x1024 rate 1\n", "16x16x16");
    refused("dragonfly: 4 rate 1e9 global 1e9\n", "HOSTSxROUTERS");
    refused("like: h100-8\nlevel: 4\ntorus: 4 rate 1\n", "more than one network");
    refused("like: h100-8\njitter: 0.02, 0.001@1.5\n", NULL);
    refused("jitter: 0.02,0.001\n", "PROBABILITY@FACTOR");
    refused("jitter: 0\n", "PROBABILITY@FACTOR");
    refused("jitter: 0.1,0.1@0.5\n", "PROBABILITY@FACTOR");
    refused("jitter: fast\n", "PROBABILITY@FACTOR");
    refused("like: h100-8\nlevel: 4\nlevel: 6\n", "each a multiple");
    refused("like: h100-8\nlevel: 4\nrails: 8\n", "rails first");
    sk_topology t = {0};
    check(sk_topology_slow(&t, "3@fast") == SK_EUSAGE, "--slow", 0, 0);
    sk_machine m = machine(work_alone, 2, "");
    must(sk_topology_slow(&m.topology, "4@2"), "slow");
    simulated k = {.t = small("tiny", 4, 8, "dp=4")};
    if (!compiles(&k)) return;
    sk_simulate_in in = {.machine = &m, .programs = k.programs, .shape_of = k.shape_of};
    check(sk_simulate(&arena, &in, &k.p) == SK_ECONF &&
              strstr(sk_error_line(), "rank 4 is not there; the job has 4, 0 to 3"),
          "a rank that is not there", 0, 0);
    m = machine(work_alone, 2, "torus: 1x1 rate 1e9\n");
    check(sk_simulate(&arena, &in, &k.p) == SK_ECONF && strstr(sk_error_line(), "need 2"),
          "a torus that is too small", 0, 0);
    m = machine(work_alone, 2, "rails: 4\n");
    check(sk_simulate(&arena, &in, &k.p) == SK_ECONF && strstr(sk_error_line(), "4 rails"),
          "more rails than ranks", 0, 0);
}

/* What is written is what was read. */
static void written(void)
{
    static const char *const networks[] = {
        "level: 8 over 2\nlevel: 16 over 3 alpha 1e-6 rate 1e9\n",
        "rails: 4 hosts 8 over 2\nlevel: 16\n", "torus: 4x2x3 rate 1e9 alpha 2e-6\n",
        "dragonfly: 2x4 rate 1e9 global 2e9\n"};
    for (int i = 0; i < 4; i++) {
        sk_machine
            m = machine(
                "like: h100-8\n", 4,
                sk_print(&arena, "%s%s", networks[i],
                         "slow: 3@1.25, host2-3@1.5\nunlike: 1 flops 5e14\njitter: 0.5,0.25@2\n")),
            again;
        const char *path = sk_print(&arena, "/tmp/skein-topology-%d", (int)getpid());
        must(sk_machine_write(&arena, path, &m), path);
        must(sk_machine_read(&arena, path, &again), path);
        remove(path);
        check(!memcmp(&m.topology, &again.topology, sizeof m.topology), "written and read", 0, 0);
    }
}

/* --- folded and not --- */

static void random_layout(sk_trial *t, char *text, size_t n)
{
    static const char *const presets[] = {"tiny", "llama-tiny"};
    static const char *const orders[] = {"pp dp cp tp", "dp pp tp cp", "cp tp dp pp",
                                         "pp dp ep tp", "dp pp tp ep", "ep tp dp pp"};
    static const char *const bys[] = {"", " by=ring", " by=exchange"};
    static const char *const syncs[] = {"", "", " sync=gossip", " sync=diloco:4", " sync=local:2"};
    int dp, tp, pp, cp, zero = pick(0, 3), copy = pick(2, 4);
    do dp = pick(1, 8), tp = pick(1, 4), pp = pick(1, 4), cp = pick(0, 2) ? 1 : pick(2, 4);
    while (dp * tp * pp * cp > 64);
    int at = snprintf(text, n, "dp=%d tp=%d pp=%d zero=%d micro=%d schedule=%s%s", dp, tp, pp, zero,
                      pick(1, 5), pick(0, 1) ? "1f1b" : "gpipe", pick(0, 1) ? "" : " recompute=1");
    bool moe = cp == 1 && tp == 1 && !pick(0, 1);
    at += snprintf(text + at, n - (size_t)at, " %s=%d%s", moe ? "ep" : "cp", moe ? pick(1, 4) : cp,
                   cp > 1 ? bys[pick(0, 2)] : "");
    if (zero == 3 && dp % copy == 0) at += snprintf(text + at, n - (size_t)at, " copy=%d", copy);
    const char *sync = zero == 0 && dp > 1 && !moe ? syncs[pick(0, 4)] : "";
    at += snprintf(text + at, n - (size_t)at, "%s", sync);
    snprintf(text + at, n - (size_t)at, " order: %s", orders[3 * moe + pick(0, 2)]);
    int64_t batch = pick(1, 20) + (*sync ? dp : 0); /* each replica has a sample */
    *t = small(moe ? "switch-tiny" : presets[cp > 1 || pick(0, 1)], pick(1, 6), batch, text);
    t->hyper.intermediate_size = pick(30, 70);
    t->bucket_bytes = pick(0, 1) ? 4096 : 0;
}

static void random_network(sk_out *o, int hosts, int per_host)
{
    int leaf = pick(1, 4);
    switch (pick(0, 5)) {
    case 0:
        sk_out_add(o, "level: %d over %d alpha 1e-6\nlevel: %d over 3\n", leaf, pick(1, 5),
                   2 * leaf);
        break;
    case 1:
        sk_out_add(o, "rails: %d hosts %d over %d\n", pick(1, per_host), pick(0, 4), pick(1, 40));
        break;
    case 2:
        sk_out_add(o, "torus: %dx%d rate %d alpha 1e-6\n", leaf, (hosts + leaf - 1) / leaf,
                   pick(1, 10) * 1000000);
        break;
    case 3:
        sk_out_add(o, "dragonfly: %dx%d rate %d global 1e8\n", leaf, pick(1, 4),
                   pick(1, 10) * 100000000);
    }
}

static const char *random_topology(int hosts, int ranks)
{
    static const char *const numbers[] = {"flops", "memory_rate", "rate_between", "rate_inside",
                                          "alpha_between"};
    static const char *const values[] = {"1e12", "1e11", "1e8", "1e9", "3e-4"};
    sk_out o = {.arena = &arena};
    sk_out_add(&o, "# %d ranks on %d hosts\n", ranks, hosts);
    random_network(&o, hosts, (ranks + hosts - 1) / hosts);
    for (int i = pick(0, 2); i > 0; i--)
        sk_out_add(&o, "slow: %d@%g\n", pick(0, ranks - 1), 1 + 0.25 * pick(1, 8));
    if (!pick(0, 3)) sk_out_add(&o, "slow: host%d@1.5\n", pick(0, hosts - 1));
    for (int i = pick(-1, 2); i > 0; i--) {
        int which = pick(0, 4);
        sk_out_add(&o, "unlike: %d %s %s\n", pick(0, hosts - 1), numbers[which], values[which]);
    }
    return o.s;
}

/* Exposed time is that of all axes. */
static void sums_up(const char *text, const sk_simulated_rank *r)
{
    double sum = 0;
    for (int i = 0; i < SK_N_EXPOSED; i++) sum += r->exposed_by[i];
    check(fabs(sum - r->exposed) <= 1e-9 * r->exposed, text, sum, r->exposed);
}

static void same_steps(const char *text, const sk_simulation *x, const sk_simulation *y, int ranks)
{
    same(text, y->seconds, x->seconds);
    same(text, (double)y->wire, (double)x->wire);
    for (int r = 0; r < ranks; r++) {
        const sk_simulated_rank *a = &x->v[x->at[r]], *b = &y->v[y->at[r]];
        same(text, b->busy, a->busy);
        same(text, b->exposed, a->exposed);
        same(text, b->bubble, a->bubble);
        check(!memcmp(a->exposed_by, b->exposed_by, sizeof a->exposed_by), text, r, 0);
        sums_up(text, b);
    }
}

/* Was one rank of a class enough for some? */
static bool folded(void)
{
    static const char *const bases[] = {"like: h100-8\n", "like: cpu\n",
                                        "like: h100-8\ncollectives: ring\noverlap: no\n"};
    char text[240];
    sk_mark mark = sk_arena_mark(&arena);
    simulated k = {0}, all;
    int before = bad;
    bool fewer = false;
    random_layout(&k.t, text, sizeof text);
    if (compiles(&k)) {
        int n = sk_mesh_ranks(&k.l.mesh), hosts = pick(1, n), base = pick(0, 2);
        const char *more = random_topology(hosts, n);
        sk_machine m = machine(bases[base], (n + hosts - 1) / hosts, more);
        all = k;
        if (step(&k, &m, true) && step(&all, &m, false)) same_steps(text, &all.p, &k.p, n);
        fewer = k.p.n < n;
        if (bad > before) printf("  on %s%s", bases[base], more);
    }
    sk_arena_back(&arena, mark);
    return fewer;
}

int main(void)
{
    for (int slow = 0; slow < 3; slow++) slow_stage(3, 5, slow, 2);
    slow_stage(4, 8, 1, 1.5);
    slow_replica();
    unlike_hosts();
    fat_trees();
    rails();
    tori();
    dragonflies();
    jitter();
    exposed_axes();
    whole_steps();
    lines();
    written();
    int fewer = 0;
    for (int i = 0; i < CASES; i++) fewer += folded();
    sk_arena_end(&arena);
    printf("topology: %d checks, %d bad; %d of %d random cases folded\n", checks, bad, fewer,
           CASES);
    return bad != 0;
}
