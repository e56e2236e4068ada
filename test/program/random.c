/* random.c - what a layout says is compiled into programs that are right, or refused.
 *
 * The pairs of lib/draw.h with up to 64 stages, micro-batches and ranks, more stages than layers,
 * batches and micro-batches that do not divide: the programs of all ranks are compiled and
 * verified, none is run (test/layout/random.c does that with smaller ones); and the simulator
 * executes them.  A layout that cannot be is refused with a sentence about the user's text (exit
 * code 78); what verify finds (P1 to P10, exit code 70) is a fault of the compiler, whatever was
 * drawn.
 *
 * Schedules of files are drawn too: any order that stages could work in, so that they are as far
 * apart as that allows.
 *
 *     program_random [SEED [COUNT]]               1; 50, or 3000 with SKEIN_LONG
 *     program_random --pair "MODEL" "LAYOUT"      one pair, as it is printed here */
#include "lib/draw.h"

#include "base/rng.h"
#include "plan/simulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const sk_pair_most most = {
    .ranks = 64, .stages = 64, .micro = 64, .layers = 30, .batch = 130, .piped = true};

/* Pairs that failed once: stages without layers, whose senders wait too soon; a first pass that
 * only names weights while they are brought. */
static const sk_pair known[] = {
    /* shards of gradients that lie in one tile and in two */
    {.model = "deepseek layers=2 keys=2 width=4 f=20 v=7 x=5 tie=1 first_k_dense_replace=3 b=98 "
              "t=10 experts=5 choices=3 room=1 aux=0.5 steps=10 device=cuda optim=sgd",
     .layout = "dp=4 zero=1 micro=2 offload=weights+state+grads tiles=5"},
    {"gpt2 layers=2 b=12 t=12", "pp=10 micro=12"},
    {"gpt2 optim=lamb", "dp=2 pp=3 zero=1 balance; offload state to host; offload weights to file"},
};

typedef struct refusal {
    char kind[200];
    int n;
} refusal;

static refusal refusals[100];
static int n_refusals, n_refused, n_stages[65];

static void refused(const char *sentence)
{
    char kind[200];
    int i = 0;
    sk_sentence_kind(sentence, kind, sizeof kind);
    while (i < n_refusals && strcmp(refusals[i].kind, kind)) i++;
    if (i == (int)(sizeof refusals / sizeof *refusals)) return;
    if (i == n_refusals) snprintf(refusals[n_refusals++].kind, sizeof kind, "%s", kind);
    refusals[i].n++;
    n_refused++;
}

/* The simulator walks one rank of each shape, and must see what a walk of all ranks does. */
static sk_status simulate(sk_arena *a, const sk_trial *t, const sk_graph *g, sk_program **all)
{
    sk_compile_opts o;
    sk_layout l;
    sk_machine m;
    sk_simulation few, many;
    int *shape_of;
    sk_simulate_in in = {.machine = &m, .programs = (const sk_program *const *)all};
    sk_trial_options(t, &o);
    SK_TRY(sk_layout_read(t->layout, 0, &l));
    SK_TRY(sk_machine_read(a, "h100-8", &m));
    SK_TRY(sk_simulate(a, &in, &many));
    SK_TRY(sk_simulate_compile(a, g, &l, &o, &in.programs, &shape_of));
    in.shape_of = shape_of;
    in.by_class = true;
    SK_TRY(sk_simulate(a, &in, &few));
    if (few.wire == many.wire && few.flops <= many.flops * (1 + 1e-9) &&
        few.flops >= many.flops * (1 - 1e-9))
        return SK_OK;
    return sk_fail(SK_EBUG, "%lld bytes and %g flop for all ranks, by classes %lld and %g",
                   (long long)many.wire, many.flops, (long long)few.wire, few.flops);
}

static sk_status compile(const sk_pair *p)
{
    sk_arena a = {0};
    sk_trial t;
    sk_graph g;
    sk_program **programs;
    int n_ranks = 0;
    sk_status st = sk_pair_read(p, &t);
    if (!st) st = sk_trial_compile(&a, &t, &g, &programs, &n_ranks);
    if (!st) n_stages[programs[0]->spread.n_stages]++;
    if (!st) st = simulate(&a, &t, &g, programs);
    sk_arena_end(&a);
    return st;
}

/* 1: it failed. */
static int one(const sk_pair *p)
{
    sk_status st = compile(p);
    if (!st) return 0;
    if (st == SK_ECONF) {
        refused(sk_error_line());
        return 0;
    }
    printf("exit code %d: %s\n  program_random --pair \"%s\" \"%s\"\n", (int)st, sk_error_line(),
           p->model, p->layout);
    return 1;
}

/* --- schedules of files --- */

enum { STAGES = 6, CHUNKS = 3, MICRO = 80 };

typedef struct order {
    int stages, chunks, micro;
    char done[STAGES * CHUNKS][MICRO]; /* 0: nothing, 1: F, 2: B too */
    char *line[STAGES];
    uint64_t seed, number, drawn;
} order;

static int pick(order *o, int n)
{
    return (int)(sk_rng(o->seed, o->number, o->drawn++).a % (uint64_t)n);
}

static bool can(const order *o, int chunk, int micro)
{
    int last = o->stages * o->chunks - 1;
    if (!o->done[chunk][micro]) return !chunk || o->done[chunk - 1][micro];
    return o->done[chunk][micro] == 1 && (chunk == last || o->done[chunk + 1][micro] == 2);
}

/* One task after the other, of those that could be done now: mostly the first of a stage that was
 * drawn, so that some stages run far ahead of others. */
static void write_order(order *o, FILE *to)
{
    int n = o->stages * o->chunks, eager = pick(o, o->stages);
    for (int left = 2 * n * o->micro; left;) {
        int stage = pick(o, 3) ? eager : pick(o, o->stages);
        int chunk = stage + o->stages * pick(o, o->chunks), micro = 0;
        while (micro < o->micro && !can(o, chunk, micro)) micro++;
        if (micro == o->micro) {
            eager = pick(o, o->stages);
            continue;
        }
        size_t used = strlen(o->line[stage]);
        sprintf(o->line[stage] + used, "%c%d.%d ", o->done[chunk][micro] ? 'B' : 'F', micro,
                chunk / o->stages);
        o->done[chunk][micro]++;
        left--;
    }
    for (int s = 0; s < o->stages; s++) fprintf(to, "%s\n", o->line[s]);
}

static int one_file(uint64_t seed, int i)
{
    order o = {.seed = seed, .number = (uint64_t)i};
    sk_pair p = {0};
    char path[] = "/tmp/skein-order-XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f) return 1;
    o.stages = 1 + pick(&o, STAGES);
    o.chunks = 1 + pick(&o, CHUNKS);
    o.micro = 1 + pick(&o, MICRO);
    for (int s = 0; s < o.stages; s++) o.line[s] = calloc(1, 2 * CHUNKS * MICRO * 8);
    write_order(&o, f);
    fclose(f);
    for (int s = 0; s < o.stages; s++) free(o.line[s]);
    snprintf(p.model, sizeof p.model, "gpt2 layers=%d b=%d", 1 + pick(&o, 9), 1 + pick(&o, 90));
    snprintf(p.layout, sizeof p.layout, "pp=%d chunks=%d micro=%d schedule=%s", o.stages, o.chunks,
             o.micro, path);
    int failed = one(&p);
    if (!failed) unlink(path);
    return failed;
}

int main(int argc, char **argv)
{
    sk_pair p = {0};
    int n = getenv("SKEIN_LONG") ? 3000 : 50, bad = 0, pipes = 0;
    if (argc == 4 && !strcmp(argv[1], "--pair")) {
        snprintf(p.model, sizeof p.model, "%s", argv[2]);
        snprintf(p.layout, sizeof p.layout, "%s", argv[3]);
        bad = one(&p);
        if (!bad) printf("%s\n", n_refused ? sk_error_line() : "fine");
        return bad;
    }
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    n = argc > 2 ? atoi(argv[2]) : n;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) bad += one(&known[i]);
    for (int i = 0; i < n; i++) {
        p = sk_pair_draw(seed, (uint64_t)i, &most);
        bad += one(&p);
        fflush(stdout);
    }
    for (int i = 0; i < n / 4; i++) bad += one_file(seed, n + i);
    for (int i = 0; i < n_refusals; i++)
        printf("refused %d times: %s\n", refusals[i].n, refusals[i].kind);
    for (int s = 2; s <= 64; s++) pipes += n_stages[s];
    printf("programs: %d random pairs and %d schedules (seed %llu), %d with stages, %d refused by "
           "%d sentences, %d "
           "bad\n",
           n, n / 4, (unsigned long long)seed, pipes, n_refused, n_refusals, bad);
    return bad || n_refused > n * 2 / 5; /* optimizers that send, or see matrices, refuse most */
}
