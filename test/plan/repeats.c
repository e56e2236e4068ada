/* repeats.c - what is planned and simulated from lists of a few micro-batches is what the programs
 * of all would give: times to rounding, flops and bytes equal, of memory every region.
 *
 * The pairs of lib/draw.h, with more micro-batches than are listed, on machines of all kinds.
 * Where lists do not tell, sk_simulate_compile compiles all: then the two are equal for sure, and
 * the test counts how often that is.
 *
 *     plan_repeats [SEED [COUNT]]               1; 20, or 2000 with SKEIN_LONG
 *     plan_repeats --pair "MODEL" "LAYOUT" MICRO MACHINE */
#include "lib/draw.h"
#include "lib/check.h"

#include "base/rng.h"
#include "plan/simulator.h"
#include "program/repeats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const sk_pair_most most = {
    .ranks = 24, .stages = 12, .micro = 1, .layers = 16, .batch = 8, .piped = false};

static const char *const machines[] = {"h100-8", "cpu", "unit", "a100-8"};

static int n_listed, n_whole, n_refused;

typedef struct told {
    sk_simulation s;
    int listed;
} told;

static sk_status tell(sk_arena *a, const sk_trial *t, const sk_graph *g, const sk_layout *l,
                      const sk_machine *m, bool listed, told *out)
{
    sk_compile_opts o;
    int *shape_of;
    sk_simulate_in in = {.machine = m, .by_class = true};
    sk_trial_options(t, &o);
    o.listed = listed;
    o.host_of = sk_machine_hosts(a, m, sk_mesh_ranks(&l->mesh));
    o.costs = &m->costs;
    SK_TRY(sk_simulate_compile(a, g, l, &o, &in.programs, &shape_of));
    in.shape_of = shape_of;
    out->listed = sk_program_listed(in.programs[0]);
    return sk_simulate(a, &in, &out->s);
}

static bool near(double x, double y, double of) { return fabs(x - y) <= 1e-9 * of + 1e-15; }

static bool same_rank(const sk_simulated_rank *x, const sk_simulated_rank *y, double step)
{
    const sk_program *p = x->program, *q = y->program;
    return x->rank == y->rank && x->ranks == y->ranks && near(x->busy, y->busy, step) &&
           near(x->exposed, y->exposed, step) && near(x->bubble, y->bubble, step) &&
           near(x->flops, y->flops, y->flops) && x->wire == y->wire &&
           p->heap_bytes == q->heap_bytes && p->own_bytes == q->own_bytes &&
           !memcmp(p->kind_bytes, q->kind_bytes, sizeof p->kind_bytes) &&
           sk_device_bytes(p) == sk_device_bytes(q);
}

static bool same(const sk_simulation *x, const sk_simulation *y)
{
    bool same = x->n == y->n && near(x->seconds, y->seconds, y->seconds) &&
                near(x->busy, y->busy, y->seconds) && near(x->exposed, y->exposed, y->seconds) &&
                near(x->bubble, y->bubble, y->seconds) && near(x->flops, y->flops, y->flops) &&
                x->wire == y->wire && x->wire_sends == y->wire_sends &&
                x->wire_world == y->wire_world && x->wire_near == y->wire_near &&
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
    if (!st) st = sk_machine_read(&a, machine, &m);
    if (!st) st = tell(&a, &t, &g, &l, &m, false, all);
    if (!st) st = tell(&a, &t, &g, &l, &m, true, few);
    if (!st) check(same(&few->s, &all->s));
    if (!st && !same(&few->s, &all->s)) {
        printf("plan_repeats --pair \"%s\" \"%s\" %d %s\n", p->model, p->layout, n_micro, machine);
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
        printf("plan_repeats --pair \"%s\" \"%s\" %d %s: %s\n", p->model, p->layout, n_micro,
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
    int n = getenv("SKEIN_LONG") ? 2000 : 20;
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
    n_listed = n_whole = n_refused = 0;
    for (int i = 0; i < n; i++) {
        sk_draw d = sk_rng(seed, (uint64_t)i, 77);
        p = sk_pair_draw(seed, (uint64_t)i, &most);
        one(&p, 11 + (int)(d.a % 40), machines[d.b % 4]);
    }
    printf("%d random pairs (seed %d): %d told from lists, %d compiled whole, %d refused\n", n,
           (int)seed, n_listed, n_whole, n_refused);
    printf("%d checks, %d wrong\n", checks, bad);
    return bad != 0;
}
