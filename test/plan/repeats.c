/* repeats.c - what is planned and simulated from lists of a few micro-batches is what the programs
 * of all would give: times to rounding, flops and bytes equal, of memory every region.
 *
 * The pairs of lib/draw.h, with more micro-batches than are listed, on machines of all kinds.
 * Where lists do not tell, sk_simulate_compile compiles all: then the two are equal for sure, and
 * the test counts how often that is.
 *
 *     plan_repeats [SEED [COUNT]]               1; 20, or 200 with SKEIN_LONG
 *     plan_repeats --pair "MODEL" "LAYOUT" MICRO "MACHINE"
 *
 * A machine is a preset, perhaps with a line of its file: "h100-8;slow: 1@1.3". */
#include "lib/draw.h"
#include "lib/check.h"

#include "base/rng.h"
#include "plan/step_jitter.h"
#include "plan/simulator.h"
#include "program/repeats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const sk_pair_most most = {
    .ranks = 24, .stages = 12, .micro = 1, .layers = 16, .batch = 8, .piped = false};

static const char *const machines[] = {
    "h100-8", "cpu", "unit", "a100-8", "h100-8;slow: 1@1.3", "h100-8;level: 2 over 2"};
enum { N_MACHINES = sizeof machines / sizeof *machines };

static int n_listed, n_whole, n_refused;

typedef struct told {
    sk_simulation s;
    sk_jitter_result random; /* zeros: its machine has no jitter */
    int listed;
} told;

static sk_status read_machine(sk_arena *a, const char *text, sk_machine *m)
{
    char copy[64], *line = copy, *key;
    snprintf(copy, sizeof copy, "%s", text);
    SK_TRY(sk_machine_read(a, strsep(&line, ";"), m));
    if (!line) return SK_OK;
    key = strsep(&line, ":");
    if (!strcmp(key, "jitter")) return sk_topology_jitter(&m->topology, line + 1, "3");
    check(sk_topology_set(&m->topology, key, line + 1));
    return sk_topology_check(&m->topology, text);
}

static sk_status tell(sk_arena *a, const sk_trial *t, const sk_graph *g, const sk_layout *l,
                      const sk_machine *m, bool listed, told *out)
{
    sk_compile_opts o;
    int *shape_of;
    sk_simulate_in in = {.machine = m, .by_class = true};
    sk_trial_options(t, &o);
    o.listed = listed;
    o.host_of = sk_machine_hosts(a, m, l, sk_mesh_ranks(&l->mesh));
    o.costs = &m->costs;
    SK_TRY(sk_simulate_compile(a, g, l, &o, &in.programs, &shape_of));
    in.shape_of = shape_of;
    out->listed = sk_program_listed(in.programs[0]);
    SK_TRY(sk_simulate(a, &in, &out->s));
    out->random = (sk_jitter_result){0};
    return m->topology.jitter.draws ? sk_jitter_steps(a, &in, 1, &out->random) : SK_OK;
}

static bool near(double x, double y, double of) { return fabs(x - y) <= 1e-9 * of + 1e-15; }

static bool same_axes(const double *x, const double *y, double step)
{
    for (int e = 0; e < SK_N_EXPOSED; e++)
        if (!near(x[e], y[e], step)) return false;
    return true;
}

static bool same_rank(const sk_simulated_rank *x, const sk_simulated_rank *y, double step)
{
    const sk_program *p = x->program, *q = y->program;
    return x->rank == y->rank && x->ranks == y->ranks && near(x->busy, y->busy, step) &&
           near(x->exposed, y->exposed, step) && near(x->bubble, y->bubble, step) &&
           same_axes(x->exposed_by, y->exposed_by, step) && near(x->flops, y->flops, y->flops) &&
           x->wire == y->wire && p->heap_bytes == q->heap_bytes && p->own_bytes == q->own_bytes &&
           !memcmp(p->kind_bytes, q->kind_bytes, sizeof p->kind_bytes) &&
           sk_device_bytes(p) == sk_device_bytes(q);
}

static bool same_jitter(const sk_jitter_result *x, const sk_jitter_result *y)
{
    return near(x->median, y->median, y->worst) && near(x->p99, y->p99, y->worst) &&
           near(x->worst, y->worst, y->worst);
}

static bool same(const told *few, const told *all)
{
    const sk_simulation *x = &few->s, *y = &all->s;
    bool same = x->n == y->n && near(x->seconds, y->seconds, y->seconds) &&
                near(x->busy, y->busy, y->seconds) && near(x->exposed, y->exposed, y->seconds) &&
                near(x->bubble, y->bubble, y->seconds) && near(x->flops, y->flops, y->flops) &&
                same_axes(x->exposed_by, y->exposed_by, y->seconds) &&
                same_jitter(&few->random, &all->random) && x->wire == y->wire &&
                x->wire_sends == y->wire_sends && x->wire_world == y->wire_world &&
                x->wire_near == y->wire_near &&
                !memcmp(x->wire_axis, y->wire_axis, sizeof x->wire_axis);
    for (int i = 0; same && i < x->n; i++) same = same_rank(&x->v[i], &y->v[i], y->seconds);
    return same;
}

static void differ(const told *few, const told *all)
{
    const sk_simulation *x = &few->s, *y = &all->s;
    printf("  seconds %.12g %.12g, busy %.12g %.12g, wire %lld %lld\n", x->seconds, y->seconds,
           x->busy, y->busy, (long long)x->wire, (long long)y->wire);
    for (int i = 0; i < x->n && i < y->n; i++)
        if (!same_rank(&x->v[i], &y->v[i], y->seconds))
            printf("  rank %d: busy %.12g %.12g, exposed %.12g %.12g, bytes %lld %lld\n",
                   x->v[i].rank, x->v[i].busy, y->v[i].busy, x->v[i].exposed, y->v[i].exposed,
                   (long long)x->v[i].program->own_bytes, (long long)y->v[i].program->own_bytes);
}

static sk_status compare(const sk_pair *p, int n_micro, const char *machine, told *few, told *all)
{
    sk_arena a = {0};
    sk_trial t;
    sk_graph g;
    sk_layout l;
    sk_machine m;
    sk_status st = sk_pair_read(p, &t);
    if (!st) st = sk_layout_read(t.layout, 0, &l);
    t.n_micro = n_micro;
    t.noise = t.late = t.gpu = t.fuse = false;
    if (!st) t.batch = (int64_t)n_micro * sk_mesh_ranks(&l.mesh);
    if (!st) st = sk_trial_graph(&a, &t, &g);
    if (!st) st = read_machine(&a, machine, &m);
    if (!st) st = tell(&a, &t, &g, &l, &m, false, all);
    if (!st) st = tell(&a, &t, &g, &l, &m, true, few);
    if (!st) check(same(few, all));
    if (!st && !same(few, all)) {
        printf("plan_repeats --pair \"%s\" \"%s\" %d \"%s\"\n", p->model, p->layout, n_micro,
               machine);
        differ(few, all);
    }
    sk_arena_end(&a);
    return st;
}

static void one(const sk_pair *p, int n_micro, const char *machine)
{
    told few, all;
    sk_status st = compare(p, n_micro, machine, &few, &all);
    if (st) n_refused++;
    else if (few.listed) n_listed++;
    else n_whole++;
    check(!st || st == SK_ECONF);
    if (st && st != SK_ECONF)
        printf("plan_repeats --pair \"%s\" \"%s\" %d \"%s\": %s\n", p->model, p->layout, n_micro,
               machine, sk_error_line());
}

/* What must be told from lists: schedules, sharding, recomputation and overlap. */
static void must_be_listed(void)
{
    static const char *const layouts[] = {"pp=4",
                                          "pp=7 dp=2 zero=1",
                                          "pp=2 dp=2 zero=3",
                                          "dp=4 zero=2",
                                          "dp=2 zero=3 prefetch=2",
                                          "tp=2 sp dp=2",
                                          "pp=3 tp=2 sp recompute=full",
                                          "pp=3 tp=2 sp recompute=selective overlap=2",
                                          "pp=12",
                                          "pp=3 cp=2"};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        sk_pair p = {.model = "llama layers=12 keys=2 queries=2 width=4 f=16 t=8"};
        int before = n_listed;
        snprintf(p.layout, sizeof p.layout, "%s", layouts[i]);
        one(&p, 40, i % 2 ? "h100-8" : "cpu");
        check(n_listed == before + 1);
        if (n_listed != before + 1) printf("'%s' was not told from lists\n", layouts[i]);
    }
}

/* The same on machines that are not alike everywhere, and of steps of two phases. */
static void must_be_listed_too(void)
{
    static const struct {
        const char *layout, *optim, *machine;
    } cases[] = {{"pp=4 dp=2", "adamw", "h100-8;slow: 1@1.3"},
                 {"pp=4", "adamw", "h100-8;slow: 2@1.3"},
                 {"dp=4 zero=3", "adamw", "cpu;slow: 2@1.3"},
                 {"pp=4 dp=6 zero=1", "adamw", "h100-8;level: 2 over 2"},
                 {"pp=4 dp=2", "adamw", "h100-8;jitter: 0.1"},
                 {"pp=2 tp=2", "adamw", "cpu;jitter: 0.1"},
                 {"pp=3 dp=2 zero=1", "sam", "h100-8"},
                 {"dp=4 zero=2", "sam", "cpu"},
                 {"dp=2 cp=2 zero=3:dp+cp", "adamw", "h100-8"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sk_pair p;
        int before = n_listed;
        snprintf(p.model, sizeof p.model,
                 "llama layers=12 keys=2 queries=2 width=4 f=16 t=8 optim=%s", cases[i].optim);
        snprintf(p.layout, sizeof p.layout, "%s", cases[i].layout);
        one(&p, 80, cases[i].machine);
        check(n_listed == before + 1);
        if (n_listed != before + 1) printf("'%s' was not told from lists\n", p.layout);
    }
}

/* The host of the last stage launches kernels while that waits for its first micro-batch, and each
 * pair takes it a little longer than the device: laps are alike until that lead is spent. */
static void spends_its_lead(void)
{
    sk_pair p = {.model = "llama layers=12 keys=2 queries=8 width=64 f=1024 t=1024 v=200",
                 .layout = "pp=4"};
    one(&p, 200, "h100-8:fsdp;slow: 0-3@2.02138");
}

/* Of runs of tasks: all micro-batches, and those that are listed. */
static void reads_runs(void)
{
    sk_arena a = {0};
    for (int pairs = 1; pairs < 30; pairs++)
        for (int ahead = 0; ahead + pairs <= 40; ahead++) {
            sk_tasks t = {.arena = &a};
            sk_runs r;
            int n = ahead + pairs, f = 0, b = 0;
            while (f < ahead) sk_task_add(&t, SK_WORK_F, f++, 0);
            for (int k = 0; k < pairs; k++) {
                sk_task_add(&t, SK_WORK_F, f++, 0);
                sk_task_add(&t, SK_WORK_B, b++, 0);
            }
            while (b < n) sk_task_add(&t, SK_WORK_B, b++, 0);
            check(sk_runs_read(&t, n, &r) && r.ahead == ahead && r.pairs == pairs);
            check(!sk_runs_read(&t, n + 1, &r));
            if (n <= SK_LISTED) continue;
            sk_runs few = sk_runs_listed(&(sk_runs){ahead, pairs, false});
            check(few.ahead + few.pairs == SK_LISTED && few.ahead <= ahead && few.pairs <= pairs);
        }
    sk_arena_end(&a);
}

int main(int argc, char **argv)
{
    sk_pair p = {0};
    int n = getenv("SKEIN_LONG") ? 200 : 20;
    if (argc == 6 && !strcmp(argv[1], "--pair")) {
        snprintf(p.model, sizeof p.model, "%s", argv[2]);
        snprintf(p.layout, sizeof p.layout, "%s", argv[3]);
        one(&p, atoi(argv[4]), argv[5]);
        printf("listed %d, whole %d, refused %d\n", n_listed, n_whole, n_refused);
        return bad != 0;
    }
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    n = argc > 2 ? atoi(argv[2]) : n;
    reads_runs();
    must_be_listed();
    must_be_listed_too();
    spends_its_lead();
    n_listed = n_whole = n_refused = 0;
    for (int i = 0; i < n; i++) {
        sk_draw d = sk_rng(seed, (uint64_t)i, 77);
        p = sk_pair_draw(seed, (uint64_t)i, &most);
        one(&p, 11 + (int)(d.a % 40), machines[d.b % N_MACHINES]);
    }
    printf("%d random pairs (seed %d): %d told from lists, %d compiled whole, %d refused\n", n,
           (int)seed, n_listed, n_whole, n_refused);
    printf("%d checks, %d wrong\n", checks, bad);
    return bad != 0;
}
