/* calibrate_jobs.c - the jobs that a machine is measured by, and what is made of their times.
 *
 * Every job of both lists is a program of one rank that fits in the smallest GPU that it is for.  A
 * machine that is made of made-up times of a program simulates a step that takes these times, in
 * every one of its launches, and jobs between two that were measured come out between them.  Its
 * file, read again, says the same. */
#include "cli/calibrate_jobs.h"
#include "base/strings.h"
#include "plan/launch_kind.h"
#include "plan/machine_fit.h"
#include "plan/simulator.h"
#include "program/acts.h"

#include "lib/check.h"

#include <math.h>
#include <unistd.h>

static sk_arena arena;

static const sk_program *program_of(const char *words, const char *more)
{
    sk_calibrate_job *j = sk_new(&arena, sk_calibrate_job);
    sk_status st = sk_calibrate_open(&arena, words, more, j);
    check(!st);
    if (st) printf("%s\n", words);
    return st ? NULL : j->setup->programs[0];
}

/* --- made-up times --- */

/* Of some device: seconds of a launch are none of the forms of prices. */
static double made_up(const sk_launch_kind *k)
{
    double name = 1 + 0.1 * (double)(strlen(k->name) % 7);
    if (!k->n_shaped) return 2e-6 + name * 1e-10 * pow((double)k->bytes, 0.97);
    double rate = k->shape.kind == SK_KERNEL_PRODUCT ? 3e10 : 1e10;
    return 2e-6 + k->flops / rate * (1 + 20 / (double)k->shape.k);
}

static double fill(const sk_program *p, sk_launch_times *t)
{
    double sum = 0;
    *t = (sk_launch_times){.seconds = sk_many(&arena, double, p->n_train), .steps = 1};
    for (int pc = 0; pc < p->n_train; pc++) {
        sk_launch_kind k;
        if (sk_act_row_of(&p->insts.v[pc])->moves || !sk_launch_kind_of(p, pc, &k)) continue;
        sum += t->seconds[pc] = made_up(&k);
    }
    t->plain = t->traced = sum;
    return sum;
}

static double simulated(const sk_program *p, const sk_machine *m)
{
    sk_simulation s = {.n = 0};
    sk_simulate_in in = {.machine = m, .programs = &p};
    check(!sk_simulate(&arena, &in, &s));
    return s.seconds;
}

static bool within(double found, double wanted, double by)
{
    bool ok = fabs(found / wanted - 1) <= by;
    if (!ok) printf("found %.9g, wanted %.9g: off by %.4f\n", found, wanted, found / wanted - 1);
    return ok;
}

#define SMALL \
    "model=tiny model.hidden_size=96 model.num_attention_heads=3 train.batch=4 train.seq=32"
#define LARGE \
    "model=tiny model.hidden_size=384 model.num_attention_heads=12 train.batch=4 train.seq=64"
#define BETWEEN \
    "model=tiny model.hidden_size=192 model.num_attention_heads=6 train.batch=4 train.seq=48"

static void of_times(const char *device, const char *like)
{
    const char *words[] = {SMALL, LARGE};
    const sk_program *p[2], *other = program_of(BETWEEN, device);
    sk_launch_times t;
    double sum[2], unseen = fill(other, &t);
    sk_machine m = {.step = 0}, again;
    sk_machine_fit *f = sk_machine_fit_begin(&arena);
    check(!sk_machine_read(&arena, like, &m));
    for (int i = 0; i < 2; i++) {
        p[i] = program_of(words[i], device);
        sum[i] = fill(p[i], &t);
        sk_machine_fit_add(f, p[i], &t);
    }
    sk_machine_fit_op(f, "any", SK_F32, 1e6, 1e-3);
    sk_machine_fit_end(f, &m);
    for (int i = 0; i < 2; i++) check(within(simulated(p[i], &m), sum[i], 0.01));
    check(within(simulated(other, &m), unseen, 0.06));
    check(within(sk_machine_op(&m, "not known", SK_BF16, 2000000, 1), 2e-3, 1e-9));

    const char *path = sk_print(&arena, "machine-%d.txt", (int)getpid());
    check(!sk_machine_write(&arena, path, &m) && !sk_machine_read(&arena, path, &again));
    for (int i = 0; i < 2; i++) check(within(simulated(p[i], &again), simulated(p[i], &m), 1e-6));
    check(again.kernels.n_ops == m.kernels.n_ops && m.kernels.n_ops > 12);
    check(again.kernels.n_products == m.kernels.n_products && m.kernels.n_products > 12);
    check(again.kernels.n_attention_at == 2);
    (void)unlink(path);
}

/* Marks that a traced step takes longer for are none of the launches' time. */
static void marks(void)
{
    const sk_program *p = program_of(SMALL, "device=cuda");
    sk_launch_times t;
    sk_machine m;
    double sum = fill(p, &t), mark = 1e-6;
    check(!sk_machine_read(&arena, "h100-8", &m));
    for (int pc = 0; pc < p->n_train; pc++) /* instructions of other launches have marks, too */
        if (t.seconds[pc] > 0) t.seconds[pc] += mark;
    t.plain = sum + 5e-4;
    t.traced = t.plain + mark * p->n_train;
    t.outside = 5e-4;
    sk_machine_fit *f = sk_machine_fit_begin(&arena);
    sk_machine_fit_add(f, p, &t);
    sk_machine_fit_end(f, &m);
    check(within(simulated(p, &m), t.plain, 0.01) && within(m.step, 5e-4, 1e-9));
}

/* All rows of a list have room in a file. */
static int64_t all_of(const char *const *list, const char *device, const char *like)
{
    int64_t most = 0;
    sk_machine m;
    sk_machine_fit *f = sk_machine_fit_begin(&arena);
    check(!sk_machine_read(&arena, like, &m));
    for (int i = 0; list[i]; i++) {
        sk_launch_times t;
        const sk_program *p = program_of(list[i], device);
        if (!p) continue;
        if (sk_device_bytes(p) > most) most = sk_device_bytes(p);
        (void)fill(p, &t);
        sk_machine_fit_add(f, p, &t);
    }
    sk_machine_fit_end(f, &m);
    const sk_kernel_rates *k = &m.kernels;
    printf("%s: %d products, %d attention, %d ops\n", device, k->n_products, k->n_attention_at,
           k->n_ops);
    check(k->n_products > 40 && k->n_products < SK_MOST_PRODUCTS);
    check(k->n_attention_at > 5 && k->n_attention_at < SK_MOST_ATTENTION_AT);
    check(k->n_ops > 80 && k->n_ops < SK_MOST_OPS);
    return most;
}

static void lists(void)
{
    check(all_of(sk_calibrate_on_gpu, "device=cuda", "h100-8") < (int64_t)15 << 30); /* 16 GB do */
    check(all_of(sk_calibrate_on_cpu, "device=cpu train.threads=1", "cpu") < (int64_t)1 << 30);
    for (int i = 0; sk_calibrate_crowd[i]; i++) {
        const sk_program *p = program_of(sk_calibrate_crowd[i], "device=cpu train.threads=1");
        check(p && p->n_ranks == 16);
    }
}

int main(void)
{
    lists();
    of_times("device=cpu train.threads=1", "cpu");
    of_times("device=cuda", "h100-8");
    marks();
    sk_arena_end(&arena);
    printf("calibrate_jobs: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
