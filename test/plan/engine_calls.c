/* engine_calls.c - what an engine's profile adds to a step, line by line: the step with the line
 * against the step without it, and the calls and products of the program counted one by one. */
#include "lib/ranks.h"

#include "plan/machine.h"
#include "plan/simulator.h"
#include "program/acts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int checks, bad;
static sk_arena arena;

static void check(bool ok, const char *what, double found, double wanted)
{
    checks++;
    if (ok) return;
    bad++;
    printf("%s: found %.17g, wanted %.17g\n", what, found, wanted);
}

static void close_to(const char *what, double found, double wanted)
{
    check(fabs(found - wanted) <= 1e-6 * fabs(wanted) && wanted > 0, what, found, wanted);
}

static sk_machine machine(bool overlap)
{
    sk_machine m;
    sk_status st = sk_machine_read(&arena, "h100-8", &m);
    check(!st, "machine", (double)st, 0);
    m.overlap = overlap;
    return m;
}

/* Seconds of a step of a small GPT-2, and the program of its first rank; 0: it failed. */
static double step(const sk_machine *m, const char *layout, sk_dtype type, const sk_program **p)
{
    sk_trial t = {.batch = 8, .seq = 8, .layout = layout, .dtype = type};
    sk_compile_opts o = {.optim = sk_optim_find("adamw"), .threads = 1};
    sk_graph g;
    sk_layout l;
    sk_simulation s;
    sk_simulate_in in = {.machine = m, .by_class = true};
    const sk_program *const *programs = NULL;
    int *shape_of = NULL;
    t.model = sk_model_preset("tiny", &t.hyper);
    t.hyper.num_hidden_layers = 4;
    sk_status st = sk_layout_read(layout, 0, &l);
    if (!st) st = sk_trial_graph(&arena, &t, &g);
    if (!st) st = sk_simulate_compile(&arena, &g, &l, &o, &programs, &shape_of);
    in.programs = programs, in.shape_of = shape_of;
    if (!st) st = sk_simulate(&arena, &in, &s);
    check(!st, layout, (double)st, 0);
    if (st) printf("  %s\n", sk_error());
    *p = st ? NULL : programs[0];
    return st ? 0 : s.seconds;
}

/* --- calls --- */

typedef double (*cost_of)(const sk_machine *m, const sk_program *p, const sk_inst *in, sk_reach r);

static const sk_reach four = {4, 1, 4};

/* Of all calls that start in a training step. */
static double calls(const sk_machine *m, const sk_program *p, cost_of cost)
{
    double sum = 0;
    for (int i = 0; i < p->n_train; i++)
        if (p->insts.v[i].act == SK_DO_START) sum += cost(m, p, &p->insts.v[i], four);
    return sum;
}

static const sk_call_plan *weights(const sk_program *p, const sk_inst *in)
{
    const sk_call_plan *c = &p->calls.v[in->call];
    return c->kind == SK_ALLGATHER ? c : NULL;
}

static const sk_call_plan *gradients(const sk_program *p, const sk_inst *in)
{
    const sk_call_plan *c = &p->calls.v[in->call];
    return c->kind == SK_REDUCE_SCATTER ? c : NULL;
}

static double priced(const sk_machine *m, const sk_call_plan *c, double times, sk_reach r)
{
    return c ? sk_machine_coll(m, c->kind, (int64_t)(times * (double)sk_call_bytes(c)), r) : 0;
}

/* What sums in 32 bits take more than those in 16. */
static double widened(const sk_machine *m, const sk_program *p, const sk_inst *in, sk_reach r)
{
    const sk_call_plan *c = gradients(p, in);
    return priced(m, c, 2, r) - priced(m, c, 1, r);
}

static void wide_sums(void)
{
    sk_machine m = machine(false);
    const sk_program *p;
    double narrow = step(&m, "dp=4 zero=3", SK_BF16, &p);
    m.engine.wide_sums = true;
    double wide = step(&m, "dp=4 zero=3", SK_BF16, &p);
    if (p) close_to("wide sums", wide - narrow, calls(&m, p, widened));
    narrow = step(&m, "dp=4 zero=3", SK_F32, &p);
    m.engine.wide_sums = false;
    check(narrow == step(&m, "dp=4 zero=3", SK_F32, &p), "wide already", narrow, 0);
}

static double of_memory(const sk_machine *m, const sk_program *p, const sk_inst *in, sk_reach r)
{
    const sk_call_plan *w = weights(p, in), *g = gradients(p, in);
    (void)r;
    return ((w ? 3.0 * (double)sk_call_bytes(w) : 0) + (g ? 5.0 * (double)sk_call_bytes(g) : 0)) /
           m->memory_rate;
}

static void passes(void)
{
    sk_machine m = machine(false);
    const sk_program *p;
    double without = step(&m, "dp=4 zero=3", SK_BF16, &p);
    m.engine.gather_passes = 3, m.engine.sum_passes = 5;
    double with = step(&m, "dp=4 zero=3", SK_BF16, &p);
    if (p) close_to("passes", with - without, calls(&m, p, of_memory));
}

/* Launches that are far longer than calls: behind a sum's, instead of a gather's. */
static double parts_of(const sk_machine *m, const sk_program *p, const sk_inst *in, sk_reach r)
{
    const sk_call_plan *w = weights(p, in), *g = gradients(p, in);
    double bytes = w ? 2 * (double)sk_call_bytes(w) / m->memory_rate : 0;
    double launches = r.n * m->engine.part_copy;
    return w ? launches + bytes - priced(m, w, 1, r) : g ? launches : 0;
}

static void parts(void)
{
    sk_machine m = machine(false);
    const sk_program *p;
    double without = step(&m, "dp=4 zero=3", SK_BF16, &p);
    m.engine.part_copy = 1;
    double with = step(&m, "dp=4 zero=3", SK_BF16, &p);
    if (p) close_to("parts", with - without, calls(&m, p, parts_of));
}

static double large(const sk_machine *m, const sk_program *p, const sk_inst *in, sk_reach r)
{
    const sk_call_plan *w = weights(p, in);
    int n = 0;
    for (int i = 0; w && i < w->n_segs; i++)
        n += (double)p->bufs.v[w->segs[i].dst].bytes / 2 >= m->engine.gather_least;
    return w && n > 1 ? (n - 1) * sk_machine_coll(m, SK_ALLGATHER, 0, r) : 0;
}

/* Vectors stay whole: only matrices are gathered by calls of their own. */
static void each_large(void)
{
    sk_machine m = machine(false);
    const sk_program *p;
    double together = step(&m, "dp=4 zero=3", SK_BF16, &p);
    m.engine.gather_each = true, m.engine.gather_least = 1e3;
    double each = step(&m, "dp=4 zero=3", SK_BF16, &p);
    if (p) close_to("large ones alone", each - together, calls(&m, p, large));
    m.engine.gather_least = 1e18;
    check(step(&m, "dp=4 zero=3", SK_BF16, &p) == together, "none is large", 0, together);
}

/* --- recomputation --- */

static double twice(const sk_machine *m, const sk_program *p, const sk_inst *in, sk_reach r)
{
    const sk_call_plan *w = weights(p, in);
    bool block = w && in->work == SK_WORK_B && w->param_set > 1 && w->param_set < 6;
    return block ? priced(m, w, 1, r) : 0; /* layers 1 to 4 */
}

static void gathered_again(void)
{
    sk_machine m = machine(false);
    const sk_program *p;
    double once = step(&m, "dp=4 zero=3 recompute=full", SK_BF16, &p);
    m.engine.gather_reuse = 1e-9;
    double all = step(&m, "dp=4 zero=3 recompute=full", SK_BF16, &p);
    if (p) close_to("gathered again", all - once, calls(&m, p, twice));
    m.engine.gather_reuse = 1e18;
    check(step(&m, "dp=4 zero=3 recompute=full", SK_BF16, &p) == once, "all stay", 0, once);
    double kept = step(&m, "dp=4 zero=3", SK_BF16, &p);
    m.engine.gather_reuse = 1e-9;
    check(step(&m, "dp=4 zero=3", SK_BF16, &p) == kept, "nothing is recomputed", 0, kept);
}

/* The second product of each MLP: it sums over the hidden units. */
static double down(const sk_machine *m, const sk_program *p, int64_t hidden)
{
    double sum = 0;
    for (int i = 0; i < p->n_train; i++) {
        const sk_inst *in = &p->insts.v[i];
        if (in->act != SK_DO_OP || in->shape.kind != SK_KERNEL_PRODUCT) continue;
        if (in->work != SK_WORK_F || in->shape.k != hidden || in->layer > 4) continue;
        double compute = sk_machine_compute(m, &in->shape, sk_inst_work(p, in), p->threads);
        sum += sk_machine_kernel(m, compute, sk_inst_bytes(p, in), SK_KERNEL_PRODUCT);
    }
    return sum;
}

static void whole(void)
{
    sk_machine m = machine(false);
    const sk_program *p;
    sk_trial t = {0};
    t.model = sk_model_preset("tiny", &t.hyper);
    double needed = step(&m, "dp=1 recompute=full", SK_BF16, &p);
    m.engine.whole_recompute = true;
    double all = step(&m, "dp=1 recompute=full", SK_BF16, &p);
    if (p) close_to("to its end", all - needed, down(&m, p, t.hyper.intermediate_size));
    double kept = step(&m, "dp=1", SK_BF16, &p);
    m.engine.whole_recompute = false;
    check(step(&m, "dp=1", SK_BF16, &p) == kept, "nothing is recomputed", 0, kept);
}

/* And its sum over tp=2, once for each of four blocks. */
static void whole_sums(void)
{
    sk_machine m = machine(false);
    const sk_program *p;
    sk_trial t = {0};
    sk_reach two = {2, 1, 2};
    t.model = sk_model_preset("tiny", &t.hyper);
    double needed = step(&m, "tp=2 recompute=full", SK_BF16, &p);
    m.engine.whole_recompute = true;
    double all = step(&m, "tp=2 recompute=full", SK_BF16, &p);
    double sum = sk_machine_coll(&m, SK_ALLREDUCE, 8 * 8 * t.hyper.hidden_size * 2, two);
    if (!p) return;
    double wanted = down(&m, p, t.hyper.intermediate_size / 2) + 4 * (sum + m.overhead);
    close_to("to its end, summed", all - needed, wanted);
}

/* --- late sums --- */

static double all_of(const sk_machine *m, const sk_program *p, const sk_inst *in, sk_reach r)
{
    const sk_call_plan *w = weights(p, in), *g = gradients(p, in);
    return priced(m, w ? w : g, 1, r);
}

/* Sums that nobody waits for hide behind work, but for links that take longer than all work. */
static void late_sums(void)
{
    sk_machine m = machine(true);
    const sk_program *p;
    double waited = step(&m, "dp=4 zero=3 prefetch=1", SK_BF16, &p);
    m.engine.late_sums = true;
    double late = step(&m, "dp=4 zero=3 prefetch=1", SK_BF16, &p);
    check(late < waited, "late sums", late, waited);
    m.costs.inside.beta *= 1e6;
    late = step(&m, "dp=4 zero=3 prefetch=1", SK_BF16, &p);
    if (p) check(late >= calls(&m, p, all_of), "all bytes move", late, calls(&m, p, all_of));
}

int main(void)
{
    wide_sums();
    passes();
    parts();
    each_large();
    gathered_again();
    whole();
    whole_sums();
    late_sums();
    sk_arena_end(&arena);
    printf("engine_calls: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
