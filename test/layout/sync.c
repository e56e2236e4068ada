/* sync.c - replicas with weights of their own (program/sync.h).
 *
 * What replicas do does not depend on how each of them is cut: in canonical order every loss,
 * weight and number of the optimizer's state, of all replicas, has the bits of replicas of one
 * rank.  And the laws: synchronised in every step it is the synchronous program; plain SGD whose
 * weights are averaged behind one step makes the step of the averaged gradient; replicas are equal
 * behind a synchronisation and not before; bytes are counted in the steps in which they leave. */
#include "lib/check.h"
#include "lib/ranks.h"

#include "base/hash.h"
#include "lib/fake_gpu.h"
#include "lib/fake_nccl.h"
#include "plan/price.h"
#include "plan/simulator.h"
#include "program/sync.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sk_trial trial(const char *model, const char *layout)
{
    sk_trial t = sk_trial_small(model, layout);
    t.hyper.embd_pdrop = t.hyper.resid_pdrop = 0;
    t.batch = 8;
    t.steps = 6;
    t.clip = 1;
    return t;
}

static void fine(sk_trial *t)
{
    sk_status st = sk_trial_run(t);
    if (st) printf("%s on \"%s\": %s\n", t->model->name, t->layout, sk_error());
    check(!st);
}

/* --- any layout inside of a replica --- */

static void same_bits(const char *model, const char *optim, const char *first, const char *then)
{
    sk_trial a = trial(model, first), b = trial(model, then);
    bool matrix = !strcmp(optim, "muon");
    a.optim = b.optim = matrix ? "adamw" : optim;
    if (matrix) a.matrix = b.matrix = optim;
    sk_trial_groups(&a);
    sk_trial_groups(&b);
    fine(&a);
    fine(&b);
    bool same = a.digest == b.digest && a.elements == b.elements && a.valid == b.valid;
    for (int s = 0; s < a.steps; s++) same &= a.loss[s] == b.loss[s] && a.norm[s] == b.norm[s];
    if (!same)
        printf("%s, %s: \"%s\" and \"%s\" differ: %.9g %.9g\n", model, optim, first, then,
               a.loss[a.steps - 1], b.loss[b.steps - 1]);
    check(same);
}

#define HOSTS "mesh hosts=2 dp=2; split b over hosts; split b over dp; synchronize hosts by "

static void any_layout(void)
{
    static const char *const inside[] = {
        "dp=2 tp=2 sync=local:4; canonical order",
        "pp=2 dp=2 micro=2 sync=local:4; canonical order",
        "dp=2 cp=2 sync=local:4; canonical order",
        HOSTS "local:4; canonical order",
        HOSTS "local:4; shard state over dp; canonical order",
        HOSTS "local:4; shard grads over dp; canonical order",
        HOSTS "local:4; shard params over dp; canonical order",
    };
    static const char *const optim[] = {"adamw", "lamb", "sgd",     "adamw",
                                        "lars",  "lion", "novograd"};
    for (int i = 0; i < (int)(sizeof inside / sizeof *inside); i++)
        same_bits(i % 2 ? "gpt2" : "llama", optim[i], "dp=2 sync=local:4; canonical order",
                  inside[i]);
    same_bits("switch", "adamw", "dp=2 sync=local:3; canonical order",
              "dp=2 ep=2 sync=local:3; canonical order");
    same_bits("mlp", "adamw", "dp=4 sync=local:2; canonical order",
              "dp=4 tp=2 sync=local:2; canonical order");
    same_bits("gpt2", "adamw", "dp=2 sync=diloco:2; canonical order",
              "pp=2 dp=2 micro=2 sync=diloco:2; canonical order");
    same_bits("llama", "lamb", "dp=2 sync=elastic:2; canonical order",
              HOSTS "elastic:2; shard state over dp; canonical order");
    same_bits("gpt2", "muon", "dp=2 sync=stream:4; canonical order",
              HOSTS "stream:4; shard params over dp; canonical order");
    same_bits("gpt2", "adamw", "dp=2 sync=postlocal:2@2; canonical order",
              HOSTS "postlocal:2@2; shard grads over dp; canonical order");
    same_bits("gpt2", "adamw", "dp=4 sync=gossip; canonical order",
              "dp=4 tp=2 sync=gossip; canonical order");
    same_bits("llama", "sam", "dp=2 sync=stream:3:fragments=3; canonical order",
              "dp=2 tp=2 sync=stream:3:fragments=3; canonical order");
}

/* Narrow weights have masters, which are what is synchronised; on a GPU, and on a CPU. */
static void narrow_on_gpu(void)
{
    static const char *const ways[] = {"dp=2 sync=local:2", "dp=2 tp=2 sync=diloco:2",
                                       "dp=2 sync=stream:4",
                                       HOSTS "elastic:3; shard grads over dp"};
    for (int i = 0; i < 8; i++) {
        sk_trial a = trial("gpt2", ways[i % 4]), b = a;
        a.dtype = b.dtype = i < 4 ? SK_F32 : SK_BF16;
        b.gpu = true;
        fine(&a);
        fine(&b);
        double off = 0;
        for (int s = 0; s < a.steps; s++) off = fmax(off, fabs(a.loss[s] / b.loss[s] - 1));
        off = fmax(off, fabs(a.valid / b.valid - 1));
        if (off > (i < 4 ? 1e-5 : 2e-2)) printf("\"%s\": %.1e apart on a GPU\n", ways[i % 4], off);
        check(off <= (i < 4 ? 1e-5 : 2e-2));
    }
}

/* --- laws --- */

static void every_step(void)
{
    sk_trial a = trial("gpt2", "dp=2"), b = trial("gpt2", "dp=2 sync=local:1");
    fine(&a);
    fine(&b);
    check(a.digest == b.digest && a.valid == b.valid);
}

/* Several nodes contribute to one gradient: each is summed over the batch by itself, as without
 * replicas. */
static void tied_at_first(const char *layout)
{
    sk_trial a = trial("gpt2", "dp=2; canonical order"), b = trial("gpt2", layout);
    a.hyper.tie_word_embeddings = b.hyper.tie_word_embeddings = true;
    fine(&a);
    fine(&b);
    bool same = true;
    for (int s = 0; s < a.steps; s++) same &= a.loss[s] == b.loss[s] && a.norm[s] == b.norm[s];
    if (!same) printf("tied: \"%s\" is not the plain program\n", layout);
    check(same);
}

/* Up to the step it is the synchronous program, to the bit in canonical order; then it is not. */
static void together_at_first(void)
{
    sk_trial a = trial("gpt2", "dp=2; canonical order"),
             b = trial("gpt2", "dp=2 sync=postlocal:2@3; canonical order"), c = a, d = b;
    static const char *const ways[] = {
        "dp=2 sync=postlocal:4@100; canonical order", "dp=4 sync=postlocal:4@100; canonical order",
        "dp=2 micro=2 sync=postlocal:4@100; canonical order",
        "pp=2 dp=2 micro=2 sync=postlocal:4@100; canonical order",
        HOSTS "postlocal:4@100; shard params over dp; canonical order"};
    fine(&a);
    fine(&b);
    for (int s = 0; s < 3; s++) check(a.loss[s] == b.loss[s] && a.norm[s] == b.norm[s]);
    check(fabs(a.loss[3] / b.loss[3] - 1) < 1e-6); /* of equal weights, in parts of the batch */
    check(a.loss[5] != b.loss[5]);
    for (int i = 0; i < 5; i++) tied_at_first(ways[i]);
    c.layout = "dp=2", d.layout = "dp=2 sync=postlocal:2@3";
    d.gpu = true; /* with a CUDA graph for each of the two kinds of steps */
    fine(&c);
    fine(&d);
    for (int s = 0; s < 4; s++) check(fabs(c.loss[s] / d.loss[s] - 1) < 1e-5);
    for (int s = 0; s < 6; s++) check(fabs(b.loss[s] / d.loss[s] - 1) < 1e-5);
}

/* The first step has next to no rate: the second is the only one between two synchronisations. */
static void one_step_of_sgd(void)
{
    sk_trial a = trial("gpt2", "dp=2"), b = trial("gpt2", "dp=2 sync=local:2");
    for (sk_trial *t = &a;; t = &b) {
        t->optim = "sgd";
        t->steps = 2;
        t->clip = 0;
        t->lr = 0.1;
        t->gain[0] = 1e-12;
        t->gain[1] = 1;
        t->knobs[0] = (struct sk_trial_knob){"momentum", 0};
        t->knobs[1] = (struct sk_trial_knob){"decay", 0};
        fine(t);
        if (t == &b) break;
    }
    check(fabs(a.valid / b.valid - 1) < 1e-6);
    b = trial("gpt2", "dp=2 sync=local:2"); /* a second law: two steps are not one */
    b.optim = "sgd";
    b.lr = 0.1;
    fine(&b);
    check(fabs(a.valid / b.valid - 1) > 1e-6);
}

static uint64_t kept[SK_TEST_RANKS][SK_TEST_STEPS];
static int64_t sent[SK_TEST_RANKS][SK_TEST_STEPS];
static int64_t planned[SK_TEST_RANKS][2]; /* in steps without a synchronisation, and with one */

static void after(const sk_trial *t, const sk_run *run, const sk_program *p, int step)
{
    if (t->gpu) check(!sk_run_pull((sk_run *)run));
    uint64_t *h = &kept[p->rank][step];
    *h = 0;
    for (int i = 0; i < p->params.n; i++) {
        int buf = sk_param_kept(&p->params.v[i]);
        *h = sk_hash(*h, sk_run_data(run, buf), (size_t)p->bufs.v[buf].bytes);
    }
    sent[p->rank][step] = sk_comm_bytes_sent(sk_run_comm((sk_run *)run));
    memset(planned[p->rank], 0, sizeof planned[p->rank]);
    for (int pc = 0; pc < p->n_train; pc++)
        for (int due = 0; due < 2; due++)
            if (due || p->insts.v[pc].sync.steps < 2) planned[p->rank][due] += p->insts.v[pc].wire;
}

/* By closed form an all-reduce of S bytes over n ranks sends 2 S (n - 1) / n from each. */
static void synchronised_when_due(void)
{
    sk_trial t = trial("gpt2", "dp=3 sync=local:3");
    int64_t weights = 0;
    t.after = after;
    fine(&t);
    sk_arena a = {0};
    sk_graph g;
    sk_program **p;
    int n = 0;
    check(!sk_trial_compile(&a, &t, &g, &p, &n));
    for (int i = 0; i < p[0]->params.n; i++)
        weights += p[0]->bufs.v[p[0]->params.v[i].stored].bytes;
    sk_arena_end(&a);
    for (int s = 0; s < t.steps; s++) {
        bool due = (s + 1) % 3 == 0, same = kept[0][s] == kept[1][s] && kept[1][s] == kept[2][s];
        int64_t bytes = 0, want = 0;
        for (int r = 0; r < 3; r++) {
            bytes += sent[r][s] - (s ? sent[r][s - 1] : 0);
            want += planned[r][due];
        }
        check(same == due);
        check(bytes == want);
    }
    int64_t more = 0;
    for (int r = 0; r < 3; r++) more += planned[r][1];
    check(more == 2 * 2 * weights);
    for (int r = 0; r < 3; r++) check(!planned[r][0]); /* in between nobody waits for another */
}

/* In a step on average: bytes of all ranks as the plan counts them; the simulated step. */
static int64_t priced(const sk_trial *t, sk_simulation *out, sk_arena *a)
{
    sk_graph g;
    sk_program **p;
    sk_machine *m = sk_new(a, sk_machine);
    sk_price_rank price;
    int64_t wire = 0;
    int n = 0;
    check(!sk_trial_compile(a, t, &g, &p, &n) && !sk_machine_read(a, "cpu", m));
    sk_simulate_in in = {.machine = m, .programs = (const sk_program *const *)p};
    check(!sk_simulate(a, &in, out));
    for (int r = 0; r < n; r++, wire += price.wire) sk_price_program(p[r], NULL, &price);
    check(out->wire == wire && fabs(out->flops / (n * price.flops) - 1) < 1e-9);
    return wire;
}

/* A step of two gradients synchronises once: in bytes that leave, planned, and in time. */
static void synchronised_once(void)
{
    sk_trial t = trial("gpt2", "dp=2 sync=local:2"), plain = t;
    sk_arena a = {0};
    sk_simulation twice, once;
    t.after = after;
    t.optim = "sam";
    plain.optim = "adamw";
    fine(&t);
    int64_t interval = sent[0][5] - sent[0][3] + sent[1][5] - sent[1][3];
    int64_t wire = priced(&t, &twice, &a);
    if (interval != 2 * wire)
        printf("sam: %lld bytes in two steps, %lld planned\n", (long long)interval,
               2 * (long long)wire);
    check(interval == 2 * wire && wire == priced(&plain, &once, &a));
    check(twice.exposed_by[0] > 0 && fabs(twice.exposed_by[0] / once.exposed_by[0] - 1) < 1e-6);
    check(twice.busy > 1.5 * once.busy);
    t.layout = plain.layout = "dp=2"; /* gradients are summed in both phases */
    check((double)priced(&t, &twice, &a) > 1.9 * (double)priced(&plain, &once, &a));
    check(twice.exposed_by[0] > 1.9 * once.exposed_by[0]);
    sk_arena_end(&a);
}

static bool runs_apart(const char *layout, sk_dtype dtype, const char *optim)
{
    sk_trial t = trial("gpt2", layout);
    sk_arena a = {0};
    sk_graph g;
    sk_program **p;
    int n = 0;
    t.dtype = dtype;
    t.optim = optim;
    check(!sk_trial_compile(&a, &t, &g, &p, &n));
    bool apart = p[0]->apart;
    sk_arena_end(&a);
    return apart;
}

/* The loss scale of f16 moves with what all replicas find; ranks that send momentum have the same
 * weights, and skip a step together. */
static void who_runs_apart(void)
{
    check(runs_apart("dp=2 sync=local:4", SK_F32, "adamw"));
    check(runs_apart("dp=2 sync=local:4", SK_BF16, "adamw"));
    check(!runs_apart("dp=2 sync=local:4", SK_F16, "adamw"));
    check(!runs_apart("dp=2", SK_F32, "adamw"));
    check(!runs_apart("dp=2", SK_F32, "onebit-adam"));
}

/* A gradient that is not finite: all ranks of that replica skip the step, the others do not, and
 * the next synchronisation is one of all. */
static void one_replica_skips(const char *layout, const char *optim, bool gpu)
{
    sk_trial t = trial("gpt2", layout);
    t.after = after;
    t.poison = 1;
    t.poison_grad = 2;
    t.optim = optim;
    t.gpu = gpu;
    fine(&t);
    int half = t.n_ranks / 2, bad_one = t.poison_grad - 1 < half ? 0 : half;
    for (int r = 0; r < t.n_ranks; r++) {
        bool skips = r / half == bad_one / half;
        if ((kept[r][1] == kept[r][0]) != skips) printf("%s: rank %d\n", layout, r);
        check((kept[r][1] == kept[r][0]) == skips);
    }
    check(kept[0][2] == kept[half][2] && kept[0][3] != kept[half][3]);
    check(!isfinite(t.norm[1]) && isfinite(t.norm[2]) && isfinite(t.norm[5]) && isfinite(t.valid));
}

static void skips(void)
{
    one_replica_skips("dp=2 sync=local:3", "adamw", false);
    one_replica_skips("dp=2 tp=2 sync=local:3", "lamb", false);
    one_replica_skips("dp=2 sync=local:3", "sam", false);
    one_replica_skips("dp=2 sync=local:3", "adamw", true);
    one_replica_skips("dp=2 tp=2 sync=local:3", "sam", true);
    one_replica_skips("mesh dp=2 hosts=2; split b over hosts; split b over dp; shard state over "
                      "hosts; synchronize dp by local:3; canonical order",
                      "adamw", false);
}

/* --- two axes --- */

/* Ranks 0 1 | 2 3 are two hosts: those of one agree every 2 steps, all every 4. */
static void two_axes(void)
{
    sk_trial t = trial("gpt2", "mesh hosts=2 dp=2; split b over hosts; split b over dp; "
                               "synchronize hosts by local:4; synchronize dp by local:2");
    t.after = after;
    fine(&t);
    for (int s = 0; s < t.steps; s++) {
        bool inside = (s + 1) % 2 == 0, all = (s + 1) % 4 == 0;
        check((kept[0][s] == kept[1][s]) == inside && (kept[2][s] == kept[3][s]) == inside);
        check((kept[0][s] == kept[2][s]) == all);
    }
}

/* In one step the mean over hosts of the mean inside of them is that of all. */
static void two_axes_at_once(void)
{
    sk_trial a = trial("gpt2", "mesh hosts=2 dp=2; split b over hosts; split b over dp; "
                               "synchronize hosts by local:3; synchronize dp by local:3"),
             b = trial("gpt2", "dp=4 sync=local:3");
    fine(&a);
    fine(&b);
    for (int s = 0; s < a.steps; s++) check(fabs(a.loss[s] / b.loss[s] - 1) < 1e-5);
    check(fabs(a.valid / b.valid - 1) < 1e-5);
}

/* --- memory --- */

static int64_t heap_of(const char *layout, int64_t *changes)
{
    sk_trial t = trial("gpt2", layout);
    sk_arena a = {0};
    sk_graph g;
    sk_program **p;
    int n = 0;
    t.hyper.num_hidden_layers = 8;
    check(!sk_trial_compile(&a, &t, &g, &p, &n));
    int64_t bytes = p[0]->heap_bytes;
    *changes = 0;
    for (int i = 0; i < p[0]->bufs.n; i++)
        if (strstr(p[0]->bufs.v[i].name, ".change")) *changes += p[0]->bufs.v[i].bytes;
    sk_arena_end(&a);
    return bytes;
}

/* Changes of all fragments would take more than those of all layers at once, since they live for a
 * whole step; in turns they take what the largest fragment has. */
static void fragments_take_turns(void)
{
    int64_t changes, one = heap_of("dp=2 sync=stream:8:fragments=1", &changes);
    int64_t four = heap_of("dp=2 sync=stream:8:fragments=4", &changes);
    check(changes > 0 && one - four > changes / 2);
}

/* --- codecs --- */

static uint64_t anchors[SK_TEST_RANKS][SK_TEST_STEPS];

static void after_coded(const sk_trial *t, const sk_run *run, const sk_program *p, int step)
{
    uint64_t *h = &anchors[p->rank][step];
    after(t, run, p, step);
    *h = 0;
    for (int i = 0; i < p->params.n; i++) {
        int buf = p->params.v[i].anchor;
        *h = sk_hash(*h, sk_run_data(run, buf), (size_t)p->bufs.v[buf].bytes);
    }
}

/* Of two axes the one with the anchor comes last, whatever their order in the mesh is. */
static void anchors_are_alike(const char *mesh, const char *way)
{
    char layout[200];
    snprintf(layout, sizeof layout,
             "%s; split b over hosts; split b over dp; synchronize hosts by %s; synchronize dp by "
             "local:2",
             mesh, way);
    sk_trial t = trial("gpt2", layout);
    t.after = after_coded;
    fine(&t);
    for (int s = 0; s < t.steps; s++)
        for (int r = 1; r < 4; r++) check(anchors[r][s] == anchors[0][s]);
    check(anchors[0][2] != anchors[0][3]);
}

/* Bytes that leave all of n replicas: rows in the codec's form, tensors of one dim in f32. */
static int64_t coded_bytes(const sk_program *p, const char *codec, int n)
{
    int64_t bytes = 0;
    sk_codec c;
    check(!sk_codec_read(codec, &c));
    for (int i = 0; i < p->params.n; i++) {
        const sk_extent *box = &p->bufs.v[p->params.v[i].anchor].box;
        int64_t row = 1, rows = box->size[0];
        for (int d = 1; d < box->n; d++) row *= box->size[d];
        bool codes = box->n > 1 && sk_codec_bytes(&c, row) < 4 * row;
        bytes += rows * (codes ? sk_codec_bytes(&c, row) : 4 * row);
    }
    return 2 * (n - 1) * bytes;
}

static void coded(const char *way, const char *codec)
{
    char layout[96];
    snprintf(layout, sizeof layout, "dp=3 sync=%s:codec=%s:feedback", way, codec);
    sk_trial t = trial("gpt2", layout);
    sk_arena a = {0};
    sk_graph g;
    sk_program **p;
    int n = 0;
    t.after = after_coded;
    fine(&t);
    check(!sk_trial_compile(&a, &t, &g, &p, &n));
    int64_t more = 0;
    for (int r = 0; r < 3; r++) more += planned[r][1] - planned[r][0];
    if (more != coded_bytes(p[0], codec, 3)) printf("%s: %lld bytes\n", layout, (long long)more);
    check(more == coded_bytes(p[0], codec, 3));
    sk_arena_end(&a);
    for (int s = 0; s < t.steps; s++) {
        int64_t bytes = 0, want = 0;
        for (int r = 0; r < 3; r++) {
            bytes += sent[r][s] - (s ? sent[r][s - 1] : 0);
            want += planned[r][(s + 1) % 3 == 0];
        }
        check(anchors[0][s] == anchors[1][s] && anchors[1][s] == anchors[2][s]);
        check(bytes == want);
    }
    check(anchors[0][1] != anchors[0][2]);
}

static void codecs(void)
{
    static const char *const names[] = {"bf16", "f16", "int8", "int4", "q4", "q8", "topk:0.1"};
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        coded(i % 3 == 0   ? "diloco:3"
              : i % 3 == 1 ? "elastic:3"
                           : "stream:3:fragments=1",
              names[i]);
}

/* The mean of narrow weights for validation: in the heaps it is rounded once, by a list of steps
 * the sum is, and then the mean, which of a power of two replicas is the same number.  Training and
 * masters have the same bits. */
static void narrow_means(const char *layout, bool exact)
{
    static const char *const axes[] = {"dp"}, *const lists[] = {"direct", "butterfly"};
    sk_trial heaps = trial("gpt2", layout);
    heaps.dtype = SK_BF16;
    heaps.batch = 12;
    fine(&heaps);
    for (int i = 0; i < 2; i++) {
        sk_trial t = heaps;
        check(!sk_pins_read("comm.algorithm", lists[i], axes, 1, &t.pins));
        fine(&t);
        check(t.digest == heaps.digest && !memcmp(t.loss, heaps.loss, sizeof t.loss));
        check(exact ? t.valid == heaps.valid : fabs(t.valid / heaps.valid - 1) < 1e-4);
    }
}

/* --- outer steps --- */

/* One number, against the textbook in double: v = mu v + g, x -= lr (g + mu v). */
static void nesterov(const char *name, double mix)
{
    const sk_sync *s = sk_sync_find(name);
    double knob[SK_MAX_SYNC_KNOB] = {0.7, 0.9, 4, mix};
    double x = 1.25, v = 0, anchor = x, momentum = 0, far = 0;
    sk_outer_step by = {0};
    s->outer(knob, 4, &by);
    for (int i = 0; i < 50; i++) {
        double g = sin(1.0 + i), own = anchor - g + 0.01, in[] = {own, g, anchor, momentum};
        double out[3] = {0};
        for (int k = 0; k < 4; k++) {
            out[0] += (double)by.weight[k] * in[k];
            out[1] += (double)by.anchor[k] * in[k];
            out[2] += (double)by.momentum[k] * in[k];
        }
        v = 0.9 * v + g;
        x -= 0.7 * (g + 0.9 * v);
        anchor = out[1];
        momentum = out[2];
        far = fmax(far, fabs(anchor - x) + fabs(momentum - v));
        far = fmax(far, fabs(out[0] - (mix * own + (1 - mix) * x)));
    }
    check(far < 1e-4);
}

/* The spring: what replicas go towards the centre, it comes towards them in sum. */
static void spring(void)
{
    const sk_sync *s = sk_sync_find("elastic");
    double knob[SK_MAX_SYNC_KNOB] = {0.9}, x[4] = {1, 2, 3, 6}, centre = 2, sum = 0, mean = 0;
    sk_outer_step by = {0};
    s->outer(knob, 4, &by);
    for (int r = 0; r < 4; r++) mean += (centre - x[r]) / 4;
    double moved = by.anchor[SK_OUTER_ANCHOR] * centre + by.anchor[SK_OUTER_MEAN] * mean;
    for (int r = 0; r < 4; r++) {
        double to = by.weight[SK_OUTER_WEIGHT] * x[r] + by.weight[SK_OUTER_ANCHOR] * centre;
        check(fabs(to - (x[r] - 0.9 / 4 * (x[r] - centre))) < 1e-6);
        sum += to - x[r];
    }
    check(fabs(moved - centre + sum) < 1e-6 && fabs(moved - 2.9) < 1e-6);
}

static void without_momentum_it_averages(void)
{
    sk_trial a = trial("gpt2", "dp=3 sync=local:2"),
             b = trial("gpt2", "dp=3 sync=diloco:2:lr=1:momentum=0");
    fine(&a);
    fine(&b);
    for (int s = 0; s < a.steps; s++) check(fabs(a.loss[s] / b.loss[s] - 1) < 1e-5);
}

/* --- partners --- */

static void partners(void)
{
    for (int n = 2; n <= 33; n++) {
        int rounds = sk_partner_rounds(n);
        uint64_t met[64];
        for (int i = 0; i < n; i++) met[i] = 1ull << i;
        for (int k = 0; k < rounds; k++) {
            uint64_t now[64];
            int alone = 0;
            for (int i = 0; i < n; i++) {
                int other = sk_partner(n, k, i);
                alone += other < 0;
                now[i] = met[i];
                if (other < 0) continue;
                check(other < n && other != i && sk_partner(n, k, other) == i);
                now[i] |= met[other];
            }
            check(alone == n % 2);
            memcpy(met, now, sizeof met);
        }
        bool all = (n & (n - 1)) == 0;
        for (int i = 0; all && i < n; i++) check(met[i] == (n < 64 ? (1ull << n) - 1 : ~0ull));
    }
}

/* Weights of replicas whose rates are next to nothing become the mean once all rounds are over. */
static void gossip_averages(void)
{
    sk_trial t = trial("gpt2", "dp=4 sync=gossip");
    t.after = after;
    t.steps = 4;
    fine(&t);
    for (int s = 0; s < t.steps; s++) { /* pairs are equal behind each step, others are not */
        int flip = s % 2 ? 2 : 1;
        check(kept[0][s] == kept[flip][s] && kept[3][s] == kept[3 ^ flip][s]);
        check(kept[0][s] != kept[3][s]);
    }
}

/* --- printing --- */

/* Numbers as short as they read back, and the sentence in either spelling. */
static void printed(void)
{
    sk_arena a = {0};
    sk_layout l;
    check(!sk_layout_read("dp=2; synchronise dp by diloco:50:lr=0.3", 2, &l));
    check(strstr(sk_layout_print(&a, &l), "synchronize dp by diloco:50:lr=0.3\n"));
    check(!sk_layout_read("dp=2 sync=diloco:50:lr=0.30000000000000004", 2, &l));
    check(strstr(sk_layout_short(&a, &l), "diloco:50:lr=0.30000000000000004"));
    sk_arena_end(&a);
}

/* --- refusals --- */

#define THREE "mesh pp=1 dp=2 hosts=2; stages over pp; split b over hosts; split b over dp; "

static void refuses(const char *layout, const char *why)
{
    sk_layout l;
    bool said = sk_layout_read(layout, 0, &l) == SK_ECONF && strstr(sk_error(), why);
    if (!said) printf("\"%s\": %s\n", layout, sk_error());
    check(said);
}

static void mistakes(void)
{
    refuses("dp=2 sync=lokal:4", "did you mean 'local'");
    refuses("dp=2 sync=local", "needs a number of steps");
    refuses("dp=2 sync=local:0", "sync=local needs a whole number of steps");
    refuses("dp=2 sync=local:4x", "from 1 to 1000000, found \"4x\"");
    refuses("dp=2 sync=ssp:infinite", "sync=ssp needs inf, or a whole number");
    refuses("dp=2 sync=backup:x", "sync=backup needs a whole number of ranks from 0");
    refuses("dp=2 sync=localsgd:8", "did you mean 'local:8'");
    refuses("dp=2 sync=EASGD", "did you mean 'elastic:10'");
    refuses("dp=2 sync=diloco:4:nesterov=1", "codec=CODEC and feedback");
    refuses("dp=2 sync=diloco:4:codec=f32", "say none");
    refuses("dp=2 grads=float32", "say none");
    refuses("dp=2 sync=diloco:4:codec=dgc", "did you mean 'topk:0.01'");
    refuses("dp=2 zero=1 sync=local:4", "take two axes");
    refuses("ep=2; synchronize ep by local:4", "alone is needed");
    refuses("dp=2; synchronize qp by local:4", "qp");
    refuses("dp=2 offload=state sync=local:4", "offload");
    refuses("dp=2 sync=diloco:4:lx=1", "its numbers are: lr, momentum");
    refuses("dp=2 sync=diloco:4:lr=100", "from 0 to 10");
    refuses("dp=2 sync=diloco:4:lr=", "from 0 to 10");
    refuses("dp=2 sync=stream:4:fragments=2.5", "whole number");
    refuses("dp=2 sync=local:4:4", "no number '4'");
    refuses("dp=2 sync=stream:3", "fragments");
    refuses("dp=2 sync=postlocal:4", "sync=postlocal:8@2000");
    refuses("dp=2 sync=postlocal:4@decayed", "sync=postlocal needs after '@' decay");
    refuses("dp=2 sync=local:4@10", "leave out @10, or take sync=postlocal:4@10");
    refuses("dp=2 sync=local:4:codec=q4", "sends changes");
    refuses("dp=2 sync=diloco:4:codec=topk:0.1", "add feedback");
    refuses("dp=2 sync=diloco:4:feedback", "there is none");
    refuses("dp=2 sync=diloco:4:codec=q2:feedback", "leave out feedback");
    refuses("dp=2 sync=diloco:4:codec=q5", "q5");
    refuses(THREE "synchronize dp by postlocal:3@1; synchronize hosts by local:3",
            "one step is needed");
    refuses(THREE "synchronize dp by diloco:4; synchronize hosts by elastic:4",
            "each keep weights");
    refuses(THREE "synchronize dp by gossip; synchronize hosts by diloco:4", "have partners");
    refuses(THREE "synchronize dp by gossip; synchronize hosts by gossip", "have partners");
    refuses(THREE "synchronize dp by local:2; synchronize hosts by stream:4",
            "diloco:4 goes with it");
    refuses(THREE "synchronize dp by local:3; synchronize hosts by diloco:4", "that divides 4");
    sk_trial t = trial("gpt2", "dp=2 sync=local:4");
    sk_arena a = {0};
    sk_graph g;
    sk_program **p;
    int n = 0;
    t.noise = true;
    check(sk_trial_compile(&a, &t, &g, &p, &n) == SK_ECONF && strstr(sk_error(), "train.noise"));
    t = trial("gpt2", "dp=2 sync=postlocal:4@decay");
    check(sk_trial_compile(&a, &t, &g, &p, &n) == SK_ECONF && strstr(sk_error(), "a step"));
    t = trial("gpt2", "dp=3 sync=local:4; canonical order");
    check(sk_trial_compile(&a, &t, &g, &p, &n) == SK_ECONF && strstr(sk_error(), "samples"));
    sk_arena_end(&a);
}

int main(void)
{
    sk_fake_gpu(0);
    sk_fake_nccl();
    any_layout();
    narrow_on_gpu();
    every_step();
    together_at_first();
    one_step_of_sgd();
    synchronised_when_due();
    synchronised_once();
    who_runs_apart();
    skips();
    codecs();
    narrow_means("dp=4 sync=local:2", true);
    narrow_means("dp=3 sync=local:2", false);
    fragments_take_turns();
    two_axes();
    two_axes_at_once();
    anchors_are_alike("mesh hosts=2 dp=2", "diloco:4");
    anchors_are_alike("mesh dp=2 hosts=2", "diloco:4");
    anchors_are_alike("mesh dp=2 hosts=2", "elastic:2:codec=q8:feedback");
    nesterov("diloco", 0);
    nesterov("stream", 0.5);
    spring();
    partners();
    gossip_averages();
    without_momentum_it_averages();
    printed();
    mistakes();
    printf("replicas: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
