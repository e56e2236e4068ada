/* topology.c - machines that are not alike everywhere, against closed forms; and one rank of each
 * class against all ranks, to the last bit, on random layouts and machines. */
#include "lib/ranks.h"

#include "base/file_io.h"
#include "base/rng.h"
#include "base/strings.h"
#include "plan/machine.h"
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
    refused("like: h100-8\nslow: 3@1.2 host2@1.1, 8-15@1.05\nunlike: 3-4 memory_rate 24e9\n", NULL);
    refused("slow: 3\n", "RANK@FACTOR");
    refused("slow: 5-3@2\n", "RANK@FACTOR");
    refused("slow: -3@2\n", "RANK@FACTOR");
    refused("slow: 3@0\n", "RANK@FACTOR");
    refused("unlike: 3 memory 5e9\n", "HOST NUMBER VALUE");
    refused("unlike: flops 5e9\n", "HOST NUMBER VALUE");
    refused("unlike: 3 flops -1\n", "HOST NUMBER VALUE");
    sk_topology t = {0};
    check(sk_topology_slow(&t, "3@fast") == SK_EUSAGE, "--slow", 0, 0);
    sk_machine m = machine(work_alone, 2, "");
    must(sk_topology_slow(&m.topology, "4@2"), "slow");
    simulated k = {.t = small("tiny", 4, 8, "dp=4")};
    sk_simulate_in in = {.machine = &m, .by_class = true};
    if (!compiles(&k)) return;
    in.programs = k.programs, in.shape_of = k.shape_of;
    check(sk_simulate(&arena, &in, &k.p) == SK_ECONF && strstr(sk_error_line(), "no rank 4"),
          "a rank that is not there", 0, 0);
}

/* What is written is what was read. */
static void written(void)
{
    sk_machine m = machine("like: h100-8\n", 4,
                           "slow: 3@1.25, host2-3@1.5\nunlike: 1 flops 5e14\n"),
               again;
    const char *path = sk_print(&arena, "/tmp/skein-topology-%d", (int)getpid());
    must(sk_machine_write(&arena, path, &m), path);
    must(sk_machine_read(&arena, path, &again), path);
    remove(path);
    check(!memcmp(&m.topology, &again.topology, sizeof m.topology), "written and read", 0, 0);
}

/* --- folded and not --- */

static void random_layout(sk_trial *t, char *text, size_t n)
{
    static const char *const presets[] = {"tiny", "llama-tiny"};
    static const char *const orders[] = {"pp dp cp tp", "dp pp tp cp", "cp tp dp pp"};
    static const char *const bys[] = {"", " by=ring", " by=exchange"};
    int dp, tp, pp, cp, zero = pick(0, 3);
    do dp = pick(1, 8), tp = pick(1, 4), pp = pick(1, 4), cp = pick(0, 2) ? 1 : pick(2, 4);
    while (dp * tp * pp * cp > 64);
    int at = snprintf(text, n, "dp=%d tp=%d pp=%d zero=%d micro=%d schedule=%s%s", dp, tp, pp, zero,
                      pick(1, 5), pick(0, 1) ? "1f1b" : "gpipe", pick(0, 1) ? "" : " recompute=1");
    at += snprintf(text + at, n - (size_t)at, " cp=%d%s", cp, cp > 1 ? bys[pick(0, 2)] : "");
    snprintf(text + at, n - (size_t)at, " order: %s", orders[pick(0, 2)]);
    *t = small(presets[cp > 1 || pick(0, 1)], pick(1, 6), pick(1, 20), text);
    t->hyper.intermediate_size = pick(30, 70);
    t->bucket_bytes = pick(0, 1) ? 4096 : 0;
}

static const char *random_topology(int hosts, int ranks)
{
    static const char *const numbers[] = {"flops", "memory_rate", "overhead"};
    static const char *const values[] = {"1e12", "1e11", "3e-4"};
    sk_out o = {.arena = &arena};
    sk_out_add(&o, "# %d ranks on %d hosts\n", ranks, hosts);
    for (int i = pick(0, 2); i > 0; i--)
        sk_out_add(&o, "slow: %d@%g\n", pick(0, ranks - 1), 1 + 0.25 * pick(1, 8));
    if (!pick(0, 3)) sk_out_add(&o, "slow: host%d@1.5\n", pick(0, hosts - 1));
    for (int i = pick(-1, 2); i > 0; i--) {
        int which = pick(0, 2);
        sk_out_add(&o, "unlike: %d %s %s\n", pick(0, hosts - 1), numbers[which], values[which]);
    }
    return o.s;
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
    lines();
    written();
    int fewer = 0;
    for (int i = 0; i < CASES; i++) fewer += folded();
    sk_arena_end(&arena);
    printf("topology: %d checks, %d bad; %d of %d random cases folded\n", checks, bad, fewer,
           CASES);
    return bad != 0;
}
