/* simulated_costs.c - what simulated programs cost, against closed forms.
 *
 * Bubbles of pipelines on the unit machine; bytes of every kind of parallelism, alone and
 * multiplied; one rank of each class against all ranks, to the last bit; sixteen thousand ranks in
 * a second; the identities that every simulation must keep. */
#include "lib/ranks.h"

#include "base/rng.h"
#include "base/strings.h"
#include "plan/price.h"
#include "plan/machine.h"
#include "plan/simulator.h"
#include "program/acts.h"
#include "run/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
#define LIMIT_S 20.0
#else
#define LIMIT_S 1.0
#endif

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

static bool must(sk_status st, const char *what)
{
    check(!st, what, (double)st, 0);
    if (st) printf("  %s\n", sk_error());
    return !st;
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

static const sk_machine *machine(const char *name)
{
    sk_machine *m = sk_new(&arena, sk_machine);
    must(sk_machine_read(&arena, name, m), name);
    return m;
}

static sk_compile_opts opts(const sk_trial *t)
{
    return (sk_compile_opts){.optim = sk_optim_find("adamw"),
                             .n_micro = t->n_micro,
                             .bucket_bytes = t->bucket_bytes,
                             .threads = 1};
}

static bool walk(simulated *k, const sk_machine *m, bool fold)
{
    sk_compile_opts o = opts(&k->t);
    if (!must(sk_layout_read(k->t.layout, 0, &k->l), k->t.layout)) return false;
    if (!must(sk_trial_graph(&arena, &k->t, &k->g), k->t.layout)) return false;
    if (!must(sk_simulate_compile(&arena, &k->g, &k->l, &o, &k->programs, &k->shape_of),
              k->t.layout))
        return false;
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

/* --- bubbles --- */

static void bubble(const char *schedule, int p, int m, int per_stage)
{
    char text[128];
    sk_mark mark = sk_arena_mark(&arena);
    snprintf(text, sizeof text, "pp=%d micro=%d schedule=%s", p, m, schedule);
    simulated k = {.t = small("llama-tiny", (int64_t)p * per_stage, m, text)};
    if (walk(&k, machine("unit"), p % 2)) {
        double ideal = 3.0 * m * per_stage;
        same(text, k.p.seconds, ideal + 3.0 * (p - 1) * per_stage);
        for (int i = 0; i < k.p.n; i++) {
            same(text, k.p.v[i].busy, ideal);
            same(text, k.p.v[i].exposed, 0);
            same(text, k.p.v[i].bubble / k.p.v[i].busy, (double)(p - 1) / m);
        }
    }
    sk_arena_back(&arena, mark);
}

static void bubbles(void)
{
    static const int stages[] = {1, 2, 3, 4, 6, 8}, micros[] = {1, 2, 3, 4, 5, 8, 13, 16};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        for (size_t k = 0; k < sizeof micros / sizeof *micros; k++) {
            bubble("gpipe", stages[i], micros[k], 1);
            bubble("1f1b", stages[i], micros[k], 1);
        }
    bubble("1f1b", 4, 6, 3);
    bubble("gpipe", 3, 7, 2);
}

/* --- every schedule: the walk of its programs takes what its list of tasks takes by itself --- */

typedef struct timer {
    double now[64];         /* by stage */
    double done[2][64][64]; /* forward, backward: by chunk and micro-batch; 0: not yet */
    int at[64];
} timer;

/* The next task of a stage, if what it waits for is done. */
static bool tick(const sk_pipe *pipe, const sk_tasks *tasks, timer *c, int stage)
{
    int last = pipe->n_stages * pipe->n_chunks - 1;
    if (c->at[stage] == tasks[stage].n) return false;
    sk_task t = tasks[stage].v[c->at[stage]];
    bool back = t.work != SK_WORK_F;
    if (t.work == SK_WORK_U) return ++c->at[stage]; /* takes no time */
    double from = 0;
    if (t.work == SK_WORK_F && t.chunk) from = c->done[0][t.chunk - 1][t.micro];
    if (t.work != SK_WORK_F && t.work != SK_WORK_W && t.chunk < last)
        from = c->done[1][t.chunk + 1][t.micro];
    bool first = t.work == SK_WORK_W || t.chunk == (back ? last : 0);
    if (!first && from <= 0) return false;
    c->now[stage] = fmax(c->now[stage], from) + (t.work == SK_WORK_B ? 2 : 1);
    if (t.work != SK_WORK_W) c->done[back][t.chunk][t.micro] = c->now[stage];
    c->at[stage]++;
    return true;
}

static double replay(const sk_schedule *s, const sk_pipe *pipe)
{
    timer *c = sk_new(&arena, timer);
    sk_tasks *tasks = sk_many(&arena, sk_tasks, pipe->n_stages);
    double end = 0;
    for (int i = 0; i < pipe->n_stages; i++) tasks[i].arena = &arena;
    if (!must(s->list_tasks(pipe, tasks), s->name)) return -1;
    for (bool went = true; went;) {
        went = false;
        for (int i = 0; i < pipe->n_stages; i++)
            while (tick(pipe, tasks, c, i)) went = true;
    }
    for (int i = 0; i < pipe->n_stages; i++) end = fmax(end, c->now[i]);
    return end;
}

static void one_schedule(const sk_schedule *s, int p, int v, int m)
{
    char text[128];
    sk_mark mark = sk_arena_mark(&arena);
    sk_pipe pipe = {.n_stages = p, .n_chunks = v, .n_micro = m};
    snprintf(text, sizeof text, "pp=%d micro=%d schedule=%s chunks=%d", p, m, s->name, v);
    simulated k = {.t = small("llama-tiny", (int64_t)p * v, m, text)};
    if (walk(&k, machine("unit"), p % 2)) same(text, k.p.seconds, replay(s, &pipe));
    sk_arena_back(&arena, mark);
}

static void all_schedules(void)
{
    for (const sk_schedule *const *s = sk_schedule_parts; *s; s++) {
        if (!strcmp((*s)->name, "file")) continue;
        for (int p = 1; p <= 5; p++)
            for (int m = 1; m <= 17; m += m < 5 ? 1 : 6)
                for (int v = 1; v <= 3; v++)
                    if (!(*s)->chunks ? v == 1 || !strcmp((*s)->name, "interleaved")
                                      : v == (*s)->chunks)
                        one_schedule(*s, p, v, m);
    }
}

/* --- bytes --- */

static int64_t params(const simulated *k, const char *only)
{
    int64_t sum = 0;
    for (int i = 0; i < k->g.tensors.n; i++) {
        const sk_tensor *t = k->g.tensors.v[i];
        if (t->role != SK_PARAM || (only && strcmp(t->name, only))) continue;
        sk_shape s = sk_tensor_shape(&k->g, t);
        int64_t n = 4;
        for (int d = 0; d < s.n; d++) n *= s.d[d];
        sum += n;
    }
    return sum;
}

/* Parameters that tensor parallelism keeps whole on every rank: those with the width alone. */
static int64_t norms(const simulated *k)
{
    return 4 * k->t.hyper.hidden_size * (2 * k->t.hyper.num_hidden_layers + 1);
}

static int64_t along(const simulated *k, const char *axis)
{
    int a = sk_mesh_axis(&k->l.mesh, axis);
    return a < 0 ? 0 : k->p.wire_axis[a];
}

/* The sum over the programs of all ranks must be what the walk counted. */
static void sums(const simulated *k)
{
    sk_compile_opts o = opts(&k->t);
    int64_t sum = 0;
    for (int r = 0; r < sk_mesh_ranks(&k->l.mesh); r++) {
        sk_program *p = NULL;
        if (!must(sk_compile(&arena, &k->g, &k->l, &o, r, &p), k->t.layout)) return;
        for (int i = 0; i < p->n_train; i++) sum += p->insts.v[i].wire;
    }
    same(k->t.layout, (double)k->p.wire, (double)sum);
}

/* Sums of all ranks.  dp: each cell of tp and pp reduces what it holds; tp: 4 all-reduces of the
 * width a layer, one for the embedding, one for the head's gradient, three of a number a token for
 * the loss; pp: the width forward and back over every boundary. */
static void bytes(int dp, int tp, int pp, int zero, int m, bool fold)
{
    char text[128];
    sk_mark mark = sk_arena_mark(&arena);
    snprintf(text, sizeof text, "dp=%d tp=%d pp=%d zero=%d micro=%d", dp, tp, pp, zero, m);
    simulated k = {.t = small("llama-tiny", 4, 19 * dp, text)};
    if (walk(&k, machine("cpu"), fold)) {
        const sk_hyper *h = &k.t.hyper;
        int64_t S = params(&k, NULL) + (tp - 1) * norms(&k); /* over the cells, with copies */
        int64_t wte = params(&k, "wte"), tokens = k.t.batch * k.t.seq;
        int64_t wide = tokens * h->hidden_size * 4, L = h->num_hidden_layers;
        int64_t ways = zero == 0   ? 2 * S
                       : zero == 1 ? 2 * S
                       : zero == 2 ? (m + 1) * S
                                   : m * (3 * S - wte);
        same(text, (double)along(&k, "dp"), (double)(ways * (dp - 1)));
        int64_t split = 4 * L * wide + 2 * wide + 3 * 4 * tokens;
        same(text, (double)along(&k, "tp"), (double)(tp > 1 ? 2 * (tp - 1) * split : 0));
        same(text, (double)k.p.wire_sends, (double)(2 * (pp - 1) * wide * tp));
        int n = dp * tp * pp;
        same(text, (double)k.p.wire_world, (double)(2 * (n - 1) * 3 * 8));
        sums(&k);
    }
    sk_arena_back(&arena, mark);
}

/* --- the other techniques, on 2 or 4 ranks; bytes of all ranks --- */

static int64_t elements(const simulated *k, const char *letters)
{
    int64_t n = 4;
    for (const char *p = letters; *p; p++) n *= k->g.size[(int)*p];
    return n;
}

/* Megatron's sequence parallelism: every all-reduce of the width has become a reduce-scatter and an
 * all-gather, the inputs of two products a layer and of the head are gathered once more for their
 * gradients, and the weights of norms see a part of the time. */
static void sequence_bytes(int tp)
{
    char text[64];
    snprintf(text, sizeof text, "tp=%d sp", tp);
    simulated k = {.t = small("llama-tiny", 4, 6, text)};
    if (!walk(&k, machine("cpu"), true)) return;
    int64_t L = k.t.hyper.num_hidden_layers, wide = elements(&k, "btc"),
            tokens = elements(&k, "bt");
    same(text, (double)along(&k, "tp"),
         (double)((tp - 1) * ((10 * L + 5) * wide + 6 * tokens + 2 * norms(&k))));
    sums(&k);
}

/* Members that have blocks of unequal sizes keep unequal ones: what leaves them all is the sum of
 * what leaves each, which no mean says. */
static void uneven_bytes(const char *layout, bool fold)
{
    sk_mark mark = sk_arena_mark(&arena);
    simulated k = {.t = small("tiny", 2, 2, layout)};
    if (walk(&k, machine("cpu"), fold)) sums(&k);
    sk_arena_back(&arena, mark);
}

/* Keys and values come whole, or go round, or are exchanged for heads with the queries; gradients
 * of all weights are summed. */
static void context_bytes(int cp, const char *by)
{
    char text[64];
    snprintf(text, sizeof text, "cp=%d by=%s", cp, by);
    simulated k = {.t = small("llama-tiny", 4, 6, text)};
    if (!walk(&k, machine("cpu"), true)) return;
    int64_t L = k.t.hyper.num_hidden_layers, kv = elements(&k, "bthzd"), q = elements(&k, "bthrd");
    int64_t grads = 2 * (cp - 1) * params(&k, NULL), axis = grads, sends = 0;
    if (!strcmp(by, "gather")) axis += 2 * L * (cp - 1) * kv;
    if (!strcmp(by, "exchange")) axis += L * (4 * q + 2 * kv) * (cp - 1) / cp;
    if (!strcmp(by, "ring")) sends = L * (2 * (cp - 1) + cp) * kv;
    same(text, (double)along(&k, "cp"), (double)axis);
    same(text, (double)k.p.wire_sends, (double)sends);
    sums(&k);
}

/* Four all-to-alls of the experts' slots a layer, as many as tokens at capacity 1; the other
 * weights are summed as in dp. */
static void expert_bytes(int ep)
{
    char text[64];
    snprintf(text, sizeof text, "ep=%d", ep);
    simulated k = {.t = small("switch-tiny", 4, 40, text)};
    k.t.hyper.capacity_factor = 1;
    if (!walk(&k, machine("cpu"), true)) return;
    int64_t L = k.t.hyper.num_hidden_layers, rest = 0, bank = elements(&k, "ebxc");
    same(text, (double)bank, (double)elements(&k, "btc"));
    for (int i = 0; i < k.g.tensors.n; i++)
        if (k.g.tensors.v[i]->role == SK_PARAM && !strchr(k.g.tensors.v[i]->letters, 'e'))
            rest += elements(&k, k.g.tensors.v[i]->letters);
    same(text, (double)along(&k, "ep"),
         (double)(4 * L * bank * (ep - 1) / ep + 2 * (ep - 1) * rest));
    sums(&k);
}

/* Replicas of shards: scattered inside, and only pieces are summed outside. */
static void hybrid_bytes(void)
{
    const char *text = "mesh r=2 s=2; split b over r; split b over s; shard state over s";
    simulated k = {.t = small("llama-tiny", 4, 8, text)};
    if (!walk(&k, machine("cpu"), true)) return;
    int64_t S = params(&k, NULL);
    same(text, (double)along(&k, "s"), (double)(2 * 2 * S));
    same(text, (double)along(&k, "r"), (double)(2 * S));
    sums(&k);
}

static void other_bytes(void)
{
    static const char *const ways[] = {"gather", "exchange", "ring"};
    uneven_bytes("cp=3 by=exchange", false);
    uneven_bytes("cp=3 by=exchange", true);
    uneven_bytes("dp=2 cp=3 by=exchange", true);
    for (int n = 2; n <= 4; n += 2) {
        sequence_bytes(n);
        if (n == 2) expert_bytes(n);
        for (int w = 0; w < 3; w++)
            if (n == 2 || w != 1) context_bytes(n, ways[w]); /* there are two key heads */
    }
    hybrid_bytes();
}

static void all_bytes(void)
{
    other_bytes();
    for (int zero = 0; zero <= 3; zero++) {
        bytes(2, 1, 1, zero, 1, true);
        bytes(3, 1, 1, zero, 2, true);
        bytes(8, 1, 1, zero, 3, false);
        bytes(2, 2, 1, zero, 2, true);
        bytes(2, 1, 2, zero, 2, true);
        bytes(2, 2, 2, zero, 3, true);
        bytes(3, 2, 4, zero, 5, false);
    }
    bytes(1, 2, 1, 0, 1, true);
    bytes(1, 2, 1, 0, 4, false);
    bytes(1, 1, 2, 0, 4, true);
    bytes(1, 1, 4, 0, 2, false);
    bytes(1, 2, 4, 0, 2, true);
}

/* --- folded is unfolded --- */

static int pick(int from, int to)
{
    return from + (int)(sk_rng(5, 0, drawn++).a % (uint64_t)(to - from + 1));
}

static void random_trial(sk_trial *t, char *text, size_t n)
{
    static const char *const presets[] = {"tiny", "llama-tiny"};
    static const char *const orders[] = {"pp dp tp", "dp pp tp"};
    int dp, tp, pp, zero = pick(0, 3);
    do dp = pick(1, 8), tp = pick(1, 4), pp = pick(1, 4);
    while (dp * tp * pp > 64);
    int at = snprintf(text, n, "dp=%d tp=%d pp=%d zero=%d micro=%d schedule=%s%s%s", dp, tp, pp,
                      zero, pick(1, 5), pick(0, 1) ? "1f1b" : "gpipe",
                      zero == 3 && pick(0, 1) ? " weights=int8" : "",
                      pick(0, 1) ? " grads=int4 feedback" : "");
    int copy = pick(2, 8);
    if (zero == 3 && dp % copy == 0) at += snprintf(text + at, n - (size_t)at, " copy=%d", copy);
    if (pick(0, 2) == 0) at += snprintf(text + at, n - (size_t)at, " slices=%d", pick(2, 9));
    at += snprintf(text + at, n - (size_t)at, "%s%s%s", pick(0, 1) ? " partition" : "",
                   pick(0, 3) ? "" : " gist=40", pick(0, 2) ? "" : " recompute=1");
    snprintf(text + at, n - (size_t)at, " order: %s", orders[pick(0, 1)]);
    *t = small(presets[pick(0, 1)], pick(1, 6), pick(1, 20), text);
    t->hyper.intermediate_size = pick(30, 70);
    t->hyper.vocab_size = pick(50, 90);
    t->bucket_bytes = pick(0, 1) ? 4096 : 0;
}

static void same_walks(const char *text, const sk_simulation *x, const sk_simulation *y, int ranks)
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

/* Programs of every rank, each compiled for itself, against one per class. */
static void folded(int per_host, bool overlap)
{
    char text[240];
    sk_mark mark = sk_arena_mark(&arena);
    simulated k = {0};
    sk_machine m = *machine(overlap ? "h100-8" : "cpu");
    random_trial(&k.t, text, sizeof text);
    m.ranks_per_host = per_host;
    if (walk(&k, &m, true)) {
        sk_compile_opts o = opts(&k.t);
        int n = sk_mesh_ranks(&k.l.mesh);
        sk_program **all = sk_many(&arena, sk_program *, n);
        sk_simulation un;
        for (int r = 0; r < n; r++)
            if (!must(sk_compile(&arena, &k.g, &k.l, &o, r, &all[r]), text)) return;
        sk_simulate_in in = {.machine = &m, .programs = (const sk_program *const *)all};
        if (must(sk_simulate(&arena, &in, &un), text)) same_walks(text, &un, &k.p, n);
        sums(&k);
        check(k.p.n <= n, "walkers", k.p.n, n);
    }
    sk_arena_back(&arena, mark);
}

/* --- identities --- */

static void identities(const char *layout, const char *name)
{
    sk_mark mark = sk_arena_mark(&arena);
    simulated k = {.t = small("tiny", 4, 8, layout)};
    if (walk(&k, machine(name), true)) {
        for (int i = 0; i < k.p.n; i++) {
            const sk_simulated_rank *r = &k.p.v[i];
            double sum = r->busy + r->exposed + r->bubble;
            check(fabs(sum - k.p.seconds) < 1e-9 * k.p.seconds, layout, sum, k.p.seconds);
            check(r->exposed >= 0 && r->bubble > -1e-12 && r->busy > 0, layout, r->bubble, 0);
        }
    }
    sk_arena_back(&arena, mark);
}

/* Bytes that may move beside work cost no more than those that wait for it, and some are hidden. */
static void overlap(void)
{
    sk_machine with = *machine("h100-8"), without = with;
    without.overlap = false;
    simulated k = {.t = small("tiny", 6, 8, "dp=8")};
    k.t.bucket_bytes = 4096;
    if (!walk(&k, &with, true)) return;
    double hidden = k.p.seconds;
    if (!walk(&k, &without, true)) return;
    check(hidden < k.p.seconds, "overlap", hidden, k.p.seconds);
}

/* A difference of two long sums. */
static void close_to(const char *what, double found, double wanted)
{
    check(fabs(found - wanted) <= 1e-6 * fabs(wanted), what, found, wanted);
}

/* A host that needs a second for each kernel: the step is as long as launching them all, and the
 * last of them. */
static void host_launches(void)
{
    sk_machine m = *machine("h100-8");
    simulated k = {.t = small("tiny", 4, 8, "dp=1")};
    m.engine.host_launch = 1;
    if (!walk(&k, &m, false)) return;
    const sk_program *p = k.programs[0];
    double kernels = p->n_train;
    check(k.p.seconds > kernels && k.p.seconds < kernels + 1e-3, "launches", k.p.seconds, kernels);
    m.engine.host_launch = 1e-12; /* never late */
    double before = k.p.seconds;
    if (!walk(&k, &m, false)) return;
    check(k.p.seconds < 1e-2 * before, "fast host", k.p.seconds, 0);
}

/* A collective beside work takes its part of the device for as long as bytes move: no more than
 * that part of all exposed and hidden time is added, and something is. */
static void contention(void)
{
    sk_machine m = *machine("h100-8");
    simulated k = {.t = small("tiny", 6, 8, "dp=8")};
    k.t.bucket_bytes = 4096;
    if (!walk(&k, &m, true)) return;
    double alone = k.p.seconds, busy = k.p.busy;
    m.engine.contention = 0.5;
    if (!walk(&k, &m, true)) return;
    check(k.p.busy > busy && k.p.busy < busy + 0.5 * alone, "contention", k.p.busy, busy);
    check(k.p.seconds <= 1.5 * alone, "contended step", k.p.seconds, alone);
}

/* A host that waits for each batch launches the kernel behind it late, by one launch.  Kernels are
 * longer than launches, so no other is late. */
static void host_waits(void)
{
    sk_machine m = *machine("h100-8");
    simulated k = {.t = small("tiny", 4, 8, "dp=1")};
    k.t.n_micro = 2;
    m.engine.host_launch = m.overhead / 2;
    if (!walk(&k, &m, false)) return;
    double ahead = k.p.seconds, loads = 0;
    m.engine.host_waits = true;
    if (!walk(&k, &m, false)) return;
    const sk_program *p = k.programs[0];
    for (int i = 0; i < p->n_train; i++) loads += p->insts.v[i].act == SK_DO_LOAD;
    check(loads > 2, "loads", loads, 2);
    close_to("waits for batches", k.p.seconds - ahead, (loads - 1) * m.engine.host_launch);
}

/* A micro-batch's gradients are added by kernels of their own: all but the first of each parameter,
 * and the tied table of words has two in each micro-batch.  A few vectors, which skein itself adds
 * by an instruction of their own, are left out: less than 1 % here. */
static void accumulates(void)
{
    sk_machine m = *machine("h100-8");
    simulated k = {.t = small("tiny", 4, 8, "dp=1")};
    k.t.n_micro = 4, m.overhead = 0;
    if (!walk(&k, &m, false)) return;
    double fused = k.p.seconds, elements = 0;
    m.engine.accumulate = 10;
    if (!walk(&k, &m, false)) return;
    const sk_program *p = k.programs[0];
    double words = (double)(k.t.hyper.vocab_size * k.t.hyper.hidden_size);
    for (int i = 0; i < p->params.n; i++) {
        const sk_buffer *g = &p->bufs.v[p->params.v[i].grad];
        elements += (double)(g->bytes / (int64_t)sk_dtype_size(g->type));
    }
    double wanted = 10 * (3 * elements + 4 * words) / m.memory_rate;
    check(fabs(k.p.seconds - fused - wanted) < 0.01 * wanted, "accumulates", k.p.seconds - fused,
          wanted);
}

/* Every tensor of a layer is gathered alone: each but the first of a call takes the call and the
 * hops once more. */
static void gathers_each(void)
{
    sk_machine m = *machine("h100-8");
    simulated k = {.t = small("tiny", 4, 8, "dp=4 zero=3")};
    m.overlap = false;
    if (!walk(&k, &m, true)) return;
    double together = k.p.seconds, more = 0;
    m.engine.gather_each = true;
    if (!walk(&k, &m, true)) return;
    const sk_program *p = k.programs[0];
    for (int i = 0; i < p->n_train; i++) {
        const sk_inst *in = &p->insts.v[i];
        const sk_call_plan *c = in->act == SK_DO_START ? &p->calls.v[in->call] : NULL;
        if (c && c->kind == SK_ALLGATHER) more += c->n_segs - 1;
    }
    check(more >= 2 * 4, "tensors", more, 8);
    close_to("gathers each", k.p.seconds - together, more * (m.call + 3 * m.costs.inside.alpha));
}

/* Products in n chunks: where work is long, each of the collectives beside them shows only a chunk.
 * These are all of the width but the two of the embedding; where bytes do not move by
 * themselves, nothing is hidden. */
static void overlap_chunks(bool sp, int n, bool by_themselves)
{
    char text[64];
    sk_machine m = *machine("h100-8");
    m.overlap = by_themselves;
    m.kernels = (sk_kernel_rates){0}; /* products cost their flops, of whatever size */
    m.overhead = m.call = m.costs.inside.alpha = 0;
    m.flops = 1e9;
    snprintf(text, sizeof text, "tp=2 %s overlap=%d", sp ? "sp" : "", n);
    simulated one = {.t = small("llama-tiny", 3, 8, sp ? "tp=2 sp" : "tp=2")},
              k = {.t = small("llama-tiny", 3, 8, text)};
    if (!walk(&one, &m, true) || !walk(&k, &m, true)) return;
    int shown = n > 8 ? 8 : n; /* rows of the batch */
    double L = 3, calls = sp ? 10 * L + 3 : 4 * L + 1;
    double each = sk_machine_coll(&m, sp ? SK_ALLGATHER : SK_ALLREDUCE, elements(&k, "btc"),
                                  (sk_reach){2, 1, 2});
    double hidden = by_themselves ? calls * each * (1 - 1.0 / shown) : 0;
    double found = one.p.exposed - k.p.exposed;
    check(fabs(found - hidden) < 1e-6 * one.p.exposed, text, found, hidden);
    check(fabs(k.p.busy - one.p.busy) < 1e-6 * one.p.busy, text, k.p.busy, one.p.busy);
    same(text, (double)k.p.wire, (double)one.p.wire);
}

static void all_overlaps(void)
{
    static const int n[] = {1, 2, 4, 8, 20};
    for (size_t i = 0; i < 4 * sizeof n / sizeof *n; i++) overlap_chunks(i & 1, n[i / 4], i & 2);
}

/* --- traces: what is drawn on one line never overlaps --- */

static void apart(const sk_simulated_rank *r, int lane)
{
    const sk_program *p = r->program;
    double last = 0;
    bool ok = true;
    for (int pc = 0; pc < p->n_train; pc++) {
        const sk_inst *in = &p->insts.v[pc];
        int on = in->act == SK_DO_WAIT   ? p->calls.v[in->call].group
                 : in->act == SK_DO_RECV ? 100 + in->peer
                                         : -1;
        const double *t = lane < 0 ? &r->times[2 * pc] : &r->moving[2 * pc];
        if (lane >= 0 && on != lane) continue;
        ok = ok && t[0] >= last && t[1] >= t[0];
        last = t[1];
    }
    check(ok, "slices overlap on lane", lane, r->rank);
}

/* When the n-th SEND to (RECV from) a rank was over. */
static double nth(const sk_simulated_rank *r, sk_act act, int peer, int64_t n)
{
    for (int pc = 0; pc < r->program->n_train; pc++) {
        const sk_inst *in = &r->program->insts.v[pc];
        if (in->act == act && in->peer == peer && !n--) return r->times[2 * pc + 1];
    }
    return INFINITY;
}

/* Nothing is received before it is sent, nothing is known to have arrived before it has. */
static void causal(const sk_simulation *p, const sk_simulated_rank *r)
{
    int64_t got[SK_TEST_RANKS] = {0};
    bool ok = true;
    for (int pc = 0; pc < r->program->n_train; pc++) {
        const sk_inst *in = &r->program->insts.v[pc];
        double end = r->times[2 * pc + 1];
        if (in->act == SK_DO_RECV)
            ok &= end >= nth(&p->v[in->peer], SK_DO_SEND, r->rank, got[in->peer]++);
        if (in->act == SK_DO_SENT)
            ok &= end >= nth(&p->v[in->peer], SK_DO_RECV, r->rank, in->sent - 1);
    }
    check(ok, "effect before cause", r->rank, 0);
}

static void traces(const char *layout, const char *name)
{
    sk_mark mark = sk_arena_mark(&arena);
    simulated k = {.t = small("tiny", 5, 8, layout)};
    sk_compile_opts o = opts(&k.t);
    o.bucket_bytes = k.t.bucket_bytes = 4096;
    if (walk(&k, machine(name), true)) {
        int n = sk_mesh_ranks(&k.l.mesh);
        sk_program **all = sk_many(&arena, sk_program *, n);
        for (int i = 0; i < n; i++)
            if (!must(sk_compile(&arena, &k.g, &k.l, &o, i, &all[i]), layout)) return;
        sk_simulate_in in = {
            .machine = machine(name), .programs = (const sk_program *const *)all, .trace = true};
        must(sk_simulate(&arena, &in, &k.p), layout);
        sk_trace_rank *r = sk_many(&arena, sk_trace_rank, k.p.n);
        for (int i = 0; i < k.p.n; i++) {
            const sk_simulated_rank *v = &k.p.v[i];
            causal(&k.p, v);
            for (int lane = -1; lane < 100 + 64; lane++) apart(v, lane);
            r[i] = (sk_trace_rank){v->program,          v->rank, v->ranks, v->times, v->moving,
                                   v->program->n_train, NULL};
        }
        FILE *null = fopen("/dev/null", "w");
        must(sk_trace_write(null, r, k.p.n, 0), "trace");
        fclose(null);
    }
    sk_arena_back(&arena, mark);
}

/* --- flops --- */

static void near(const char *what, double found, double wanted)
{
    check(fabs(found - wanted) <= 1e-12 * wanted, what, found, wanted);
}

/* GPT-2's own numbers, the formulas written out: h 768, L 12, s 1024, V 50304. */
static void flops(void)
{
    sk_mark mark = sk_arena_mark(&arena);
    sk_trial t = {.batch = 3, .seq = 1024};
    sk_graph g;
    sk_price p;
    double B = 3, s = 1024, L = 12, h = 768, V = 50304, N = 12 * L * h * h + 13 * L * h;
    t.model = sk_model_preset("gpt2", &t.hyper);
    N += V * h + s * h + 2 * h;
    must(sk_trial_graph(&arena, &t, &g), "gpt2");
    sk_price_model(&g, &t.hyper, &p);
    same("parameters", (double)p.params, N);
    near("full", p.full, 72 * B * s * L * h * h * (1 + s / (6 * h) + V / (12 * L * h)));
    near("causal", p.causal, 72 * B * s * L * h * h * (1 + s / (12 * h) + V / (12 * L * h)));
    near("hardware", p.hardware, 96 * B * s * L * h * h * (1 + s / (6 * h) + V / (16 * L * h)));
    near("six n", p.six_n, B * s * (6 * N + 12 * L * h * s));
    near("foundry", p.foundry, 3 * B * (2 * N * s + 4 * L * h * s * s));
    t.model = sk_model_preset("llama-7b", &t.hyper);
    must(sk_trial_graph(&arena, &t, &g), "llama-7b");
    sk_price_model(&g, &t.hyper, &p);
    same("parameters", (double)p.params, 6738415616.0);
    double f = 11008;
    L = 32, h = 4096, V = 32000;
    near("gated", p.full, 12 * B * s * L * h * h * (2 + s / h + 1.5 * f / h + V / (2 * L * h)));
    sk_arena_back(&arena, mark);
}

/* Encoding is work of a processor: where memory and instructions are free, that is all it costs. */
static void encoding(const char *layout, const char *codec, bool feedback)
{
    sk_mark mark = sk_arena_mark(&arena);
    sk_machine m = *machine("cpu");
    m.memory_rate = 1e30, m.overhead = 0;
    simulated k = {.t = small("llama-tiny", 2, 4, layout)};
    double flops = 0, work = 0, codes = 0;
    const sk_codec *c = sk_codec_find(codec);
    if (!walk(&k, &m, false)) return;
    const sk_program *p = k.programs[0];
    for (int i = 0; i < p->n_train; i++) {
        const sk_inst *in = &p->insts.v[i];
        flops += in->flops, work += sk_inst_work(p, in);
        double n = in->act == SK_DO_ENCODE   ? c->encode_flops + 2 * feedback * c->decode_flops
                   : in->act == SK_DO_DECODE ? (double)in->pieces * c->decode_flops
                                             : 0;
        const sk_buffer *x = &p->bufs.v[in->act == SK_DO_ENCODE ? in->in[0] : in->out[0]];
        if (n > 0) codes += n * (double)x->bytes / 4;
    }
    check(codes > 0, layout, codes, 1);
    near(layout, work, flops + codes);
    near(layout, k.p.v[0].busy, work / m.flops);
    sk_arena_back(&arena, mark);
}

static sk_view whole_view(const sk_graph *g, const char *letters)
{
    sk_view v = {.n = (int)strlen(letters)};
    for (int d = 0; d < v.n; d++) v.size[d] = v.full[d] = g->size[(int)letters[d] & 127];
    sk_view_dense(&v);
    return v;
}

/* What the graph counts of its own products, forward and back. */
static double products(const sk_graph *g)
{
    double sum = 0;
    for (int i = 0; i < g->nodes.n; i++) {
        const sk_node *n = g->nodes.v[i];
        if (strcmp(n->op->name, "contract")) continue;
        sk_args a = {.n_in = 2, .n_out = 1, .dims = n->dims, .of = 1};
        for (int k = 0; k < 2; k++) a.in[k] = whole_view(g, n->letters_in[k]);
        a.out[0] = whole_view(g, n->letters_out[0]);
        sum += sk_op_flops(n->op, &a);
    }
    return sum;
}

/* Experts with room for an even share and no more do what their tokens ask of them: the closed
 * forms, less the squares of attention, are the products of the graph. */
static void experts_flops(const char *preset, int64_t shared, int64_t groups)
{
    sk_mark mark = sk_arena_mark(&arena);
    sk_trial t = {.batch = 3, .seq = 64};
    sk_graph g;
    sk_price p;
    t.model = sk_model_preset(preset, &t.hyper);
    t.hyper.n_shared_experts = shared;
    t.hyper.expert_groups = groups;
    t.hyper.capacity_factor = 1;
    if (must(sk_trial_graph(&arena, &t, &g), preset)) {
        const sk_hyper *h = &t.hyper;
        double B = (double)t.batch, s = (double)t.seq, E = (double)h->num_local_experts, idle = 0;
        double square = 12 * B * s * s * (double)(h->num_hidden_layers * h->hidden_size);
        double head = 6 * B * s * (double)(h->hidden_size * h->vocab_size);
        for (int i = 0; i < g.tensors.n && E > 0; i++) {
            const sk_tensor *x = g.tensors.v[i];
            if (x->role != SK_PARAM || !strstr(x->name, ".experts.")) continue;
            sk_view v = whole_view(&g, x->letters);
            idle += (double)sk_count(&v) * (E - (double)h->num_experts_per_tok) / E;
        }
        sk_price_model(&g, h, &p);
        near(preset, p.active, (double)p.params - idle);
        near(preset, p.full, products(&g) + square);
        near(preset, p.causal, products(&g) + square / 2);
        near(preset, p.hardware, (products(&g) + square - head) * 4 / 3 + head);
        near(preset, p.six_n, B * s * 6 * ((double)p.params - idle) + square);
    }
    sk_arena_back(&arena, mark);
}

static void closed_forms(void)
{
    static const char *const presets[] = {"tiny",         "gpt2",        "llama-tiny",
                                          "llama-7b",     "switch-tiny", "switch-nano",
                                          "mixtral-tiny", "mixtral-8x7b"};
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) experts_flops(presets[i], 0, 0);
    experts_flops("mixtral-tiny", 2, 0);
    experts_flops("mixtral-nano", 1, 2);
}

/* What a program says of itself is what the walk counts. */
static void ranks_price(const char *layout)
{
    sk_mark mark = sk_arena_mark(&arena);
    simulated k = {.t = small("tiny", 4, 8, layout)};
    if (walk(&k, machine("cpu"), false))
        for (int i = 0; i < k.p.n; i++) {
            sk_price_rank p;
            int64_t sum = 0;
            sk_price_program(k.p.v[i].program, NULL, &p);
            for (int b = 0; b < SK_N_KINDS; b++) sum += p.bytes[b];
            same("bytes by kind", (double)sum, (double)p.total);
            sum = p.wire_world + p.wire_near + p.wire_sends;
            for (int a = 0; a < k.l.mesh.n; a++) sum += p.wire_axis[a];
            same("wire by axis", (double)sum, (double)p.wire);
            same("flops", p.flops, k.p.v[i].flops);
        }
    sk_arena_back(&arena, mark);
}

/* --- prices, by hand --- */

static void prices(void)
{
    sk_machine m = {
        .flops = 100,
        .memory_rate = 10,
        .ranks_per_host = 4,
        .costs = {.inside = {.alpha = 1, .beta = 0.5}, .between = {.alpha = 3, .beta = 2}},
        .ring = true};
    sk_reach four = {4, 1, 4}, eight = {8, 2, 4};
    same("ring all-reduce", sk_machine_coll(&m, SK_ALLREDUCE, 8, four), 2 * (3 * 1 + 6 * 0.5));
    same("ring gather", sk_machine_coll(&m, SK_ALLGATHER, 8, four), 3 + 6 * 0.5);
    same("ring of two hosts", sk_machine_coll(&m, SK_REDUCE_SCATTER, 8, eight), 6 + 3 + 7 * 2.0);
    m.ring = false;
    same("two levels", sk_machine_coll(&m, SK_ALLGATHER, 8, eight), 3 + 6 * 0.5 + 3 + 1 * 2.0);
    same("one rank", sk_machine_coll(&m, SK_ALLREDUCE, 8, (sk_reach){1, 1, 1}), 0);
    same("work", sk_machine_work(&m, 500, 20, 1), 5);
    same("memory", sk_machine_work(&m, 100, 20, 1), 2);
    same("send", sk_machine_send(&m, 4, true), 3);
    sk_reach r = sk_machine_reach(&m, (int[]){0, 1, 4, 8, 9, 10}, 6);
    check(r.n == 6 && r.hosts == 3 && r.most == 3, "reach", r.hosts, 3);
}

static void refuses(const char *text, const char *message)
{
    char path[] = "/tmp/skein-machine-XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    sk_machine m;
    fputs(text, f);
    fclose(f);
    sk_status st = sk_machine_read(&arena, path, &m);
    remove(path);
    bool ok = message ? st == SK_ECONF && strstr(sk_error_line(), message) : !st;
    check(ok, text, (double)st, message ? SK_ECONF : 0);
    if (!ok) printf("  %s\n", sk_error_line());
}

static void files(void)
{
    refuses("like: h100-8\nname: ours\nflops: 1e15 # measured\n\nranks_per_host: 4\n", NULL);
    refuses("flop: 1e15\n", "did you mean 'flops'");
    refuses("flops: fast\n", "flops is 'fast'");
    refuses("flops: -1\n", ":1: flops is '-1'");
    refuses("flops: 1e12\nflops: 2e12\n", "second time");
    refuses("flops: 1e12\nlike: cpu\n", "first line");
    refuses("like: toaster\n", "no built-in");
    refuses("just words\n", "'key: value'");
    refuses("flops: 1e12\n", "'memory_rate' is missing");
    refuses("overlap: maybe\n", "yes or no");
}

/* --- sixteen thousand --- */

static void many(void)
{
    simulated k = {.t = {.batch = 256 * 64, .seq = 4096, .layout = "pp=8 dp=256 tp=8 micro=64"}};
    k.t.model = sk_model_preset("llama-7b", &k.t.hyper);
    const sk_machine *m = machine("h100-8");
    clock_t start = clock(); /* of this process: others may be busy */
    if (!walk(&k, m, true)) return;
    double took = (double)(clock() - start) / CLOCKS_PER_SEC;
    check(took < LIMIT_S, "16384 ranks, seconds", took, LIMIT_S);
    same("16384 ranks, classes", k.p.n, 8);
    check(k.p.seconds > 0.1 && k.p.seconds < 100, "16384 ranks, step", k.p.seconds, 1);
    printf("simulated_costs: 16384 ranks in %.3f s: step %.3f s, exposed %.1f%%, bubble %.1f%%\n",
           took, k.p.seconds, 100 * k.p.exposed / k.p.seconds, 100 * k.p.bubble / k.p.seconds);
}

/* All ranks, one after the other, within twenty seconds: to the bit as one of each class.  Where
 * nothing is optimised that takes minutes. */
static void rank_by_rank(void)
{
    simulated k = {.t = {.batch = 256 * 64, .seq = 4096, .layout = "pp=8 dp=256 tp=8 micro=64"}};
    k.t.model = sk_model_preset("llama-7b", &k.t.hyper);
    const sk_machine *m = machine("h100-8");
    if (LIMIT_S > 1 || !walk(&k, m, true)) return;
    sk_simulate_in in = {.machine = m, .programs = k.programs, .shape_of = k.shape_of};
    sk_simulation all;
    clock_t start = clock();
    if (!must(sk_simulate(&arena, &in, &all), "rank by rank")) return;
    double took = (double)(clock() - start) / CLOCKS_PER_SEC;
    check(took < 20 * LIMIT_S, "16384 ranks without classes, seconds", took, 20 * LIMIT_S);
    same("16384 ranks", all.seconds, k.p.seconds);
    printf("simulated_costs: 16384 ranks one by one in %.3f s\n", took);
}

/* Eight times as many, also on a fat tree whose links they share. */
static void very_many(const char *more)
{
    sk_mark mark = sk_arena_mark(&arena);
    simulated k = {.t = {.batch = 131072, .seq = 4096, .layout = "pp=8 dp=2048 tp=8 micro=64"}};
    k.t.model = sk_model_preset("llama-7b", &k.t.hyper);
    sk_machine m = *machine("h100-8");
    check(!*more || sk_topology_set(&m.topology, "level", more), more, 0, 0);
    clock_t start = clock();
    if (walk(&k, &m, true)) {
        double took = (double)(clock() - start) / CLOCKS_PER_SEC;
        check(took < 3 * LIMIT_S, "131072 ranks, seconds", took, 3 * LIMIT_S);
        printf("simulated_costs: 131072 ranks %s in %.3f s\n", more, took);
    }
    sk_arena_back(&arena, mark);
}

/* What `skein plan` and `skein simulate` compile and walk, of layouts whose ranks differ more: the
 * time goes with the shapes of ranks and the micro-batches, not with their products. */
static void plenty(const char *layout, double limit)
{
    sk_mark mark = sk_arena_mark(&arena);
    simulated k = {.t = {.batch = 16384, .seq = 4096, .layout = layout}};
    k.t.model = sk_model_preset("llama-7b", &k.t.hyper);
    const sk_machine *m = machine("h100-8");
    clock_t start = clock();
    if (walk(&k, m, true)) {
        double took = (double)(clock() - start) / CLOCKS_PER_SEC;
        check(took < limit * LIMIT_S, layout, took, limit * LIMIT_S);
        printf("simulated_costs: %s in %.3f s\n", layout, took);
    }
    sk_arena_back(&arena, mark);
}

int main(void)
{
    prices();
    closed_forms();
    files();
    bubbles();
    all_schedules();
    all_bytes();
    for (int i = 0; i < 30; i++) folded(pick(1, 9), i % 2);
    identities("dp=2 tp=2 pp=2 micro=4", "cpu");
    identities("dp=4 pp=4 micro=4 zero=3", "h100-8");
    identities("pp=4 micro=8 schedule=gpipe", "a100-8");
    overlap();
    host_launches();
    host_waits();
    accumulates();
    gathers_each();
    contention();
    all_overlaps();
    traces("dp=2 tp=2 pp=2 micro=4", "h100-8");
    traces("dp=2 pp=4 micro=4 zero=3 schedule=gpipe", "h100-8");
    traces("dp=4 tp=2 zero=2", "cpu");
    traces("pp=3 micro=8 schedule=gpipe", "unit");
    traces("pp=2 tp=2 micro=8", "cpu");
    flops();
    encoding("dp=4 grads=f16", "f16", false);
    encoding("dp=4 grads=int8 feedback", "int8", true);
    encoding("dp=2 grads=topk:0.01 feedback", "topk", true);
    encoding("dp=4 weights=int8 zero=3", "int8", false);
    ranks_price("dp=2 tp=2 pp=2 zero=1 micro=2");
    ranks_price("dp=4 pp=2 zero=3 micro=2 weights=int8 copy=2");
    many();
    rank_by_rank();
    very_many("");
    very_many("32 over 2");
    plenty("pp=8 dp=128 tp=8 zero=1 micro=64", 2);
    plenty("pp=8 dp=128 tp=8 zero=2 micro=64", 2);
    plenty("pp=8 dp=128 tp=8 zero=3 micro=64", 2);
    plenty("pp=32 dp=64 tp=8 zero=3 micro=256", 8);
    sk_arena_end(&arena);
    printf("simulated_costs: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
