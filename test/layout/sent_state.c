/* sent_state.c - optimizers whose ranks send momentum in place of gradients
 * (program/sent_state.c).
 *
 * The first steps are those of AdamW or LAMB, to the bit.  Then ranks have the same weights and
 * state after every step that is not local; bytes of all kinds of steps are the closed forms,
 * counted as they leave; what is sent in f32 makes the run of one rank; a GPU does the same; a step
 * that is skipped changes nothing. */
#include "lib/check.h"
#include "lib/ranks.h"

#include "base/hash.h"
#include "lib/fake_gpu.h"
#include "lib/fake_nccl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FREEZE = 3, STEPS = 24 };

/* Numbers with which these steps have all kinds. */
static const struct sent {
    const char *name, *first; /* the optimizer of its first steps */
    int n_first;
    struct sk_trial_knob knobs[8];
} optims[] = {
    {"onebit-adam", "adamw", FREEZE, {{"freeze_step", FREEZE}}},
    {"onebit-lamb",
     "lamb",
     FREEZE,
     {{"freeze_step", FREEZE}, {"max_coeff", 1e6}, {"min_coeff", 0}}},
    {"zeroone-adam",
     "adamw",
     2,
     {{"var_freeze_step", 5},
      {"var_update_scaler", 2},
      {"local_step_scaler", 2},
      {"local_step_clipper", 3}}},
};
enum { N_OPTIMS = sizeof optims / sizeof *optims };
#define HOSTS "mesh hosts=2 dp=2; split b over hosts; split b over dp; "

static const char *const layouts[] = {"dp=2",
                                      "dp=3",
                                      "dp=4",
                                      "dp=2 tp=2",
                                      "pp=2 dp=2 micro=2",
                                      "dp=2 cp=2",
                                      HOSTS "shard state over dp",
                                      HOSTS "shard grads over dp",
                                      HOSTS "shard params over dp"};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

static const struct sent *which = optims;

static int kind_of(int step)
{
    const sk_optim *o = sk_optim_find(which->name);
    double knob[SK_MAX_KNOB] = {0};
    if (!o->step_kind) return step < FREEZE ? SK_STEP_DENSE : SK_STEP_SENT;
    for (int i = 0; o->knobs[i].name; i++)
        for (const struct sk_trial_knob *k = which->knobs; k->name; k++)
            if (!strcmp(k->name, o->knobs[i].name)) knob[i] = k->value;
    return o->step_kind(knob, step + 1);
}

static sk_trial trial(const char *model, const char *layout)
{
    sk_trial t = sk_trial_small(model, layout);
    t.hyper.embd_pdrop = t.hyper.resid_pdrop = 0;
    t.batch = 12;
    t.steps = STEPS;
    t.clip = 1;
    t.optim = which->name;
    memcpy(t.knobs, which->knobs, sizeof which->knobs);
    return t;
}

static bool fine(sk_trial *t)
{
    sk_status st = sk_trial_run(t);
    if (st) printf("%s on \"%s\": %s\n", t->model->name, t->layout, sk_error());
    check(!st);
    return !st;
}

static void as_others_at_first(void)
{
    for (int i = 0; i < N_LAYOUTS; i++) {
        sk_trial a = trial(i % 2 ? "gpt2" : "llama", layouts[i]), b = a;
        b.optim = which->first;
        b.knobs[0].name = NULL;
        if (!fine(&a) || !fine(&b)) continue;
        bool bits = i < 3; /* of other layouts loss and norm are added axis by axis, in f64 */
        for (int s = 0; s <= which->n_first; s++) {
            double off = fabs(a.loss[s] / b.loss[s] - 1);
            if (s < which->n_first) off = fmax(off, fabs(a.norm[s] / b.norm[s] - 1));
            check(bits ? off == 0 : off < 1e-7);
        }
        check(a.loss[a.steps - 1] != b.loss[a.steps - 1]);
        for (int s = 0; s < a.steps; s++) check(fabs(a.loss[s] / b.loss[s] - 1) < 0.2);
    }
}

/* --- what ranks have after each step, and what has left them --- */

static uint64_t kept[SK_TEST_RANKS][SK_TEST_STEPS];
static int64_t sent[SK_TEST_RANKS][SK_TEST_STEPS];
static double owed[SK_TEST_RANKS][SK_TEST_STEPS];

static uint64_t hash_of(const sk_run *run, const sk_program *p, int buf, uint64_t h)
{
    return sk_hash(h, sk_run_data(run, buf), (size_t)p->bufs.v[buf].bytes);
}

static void after(const sk_trial *t, const sk_run *run, const sk_program *p, int step)
{
    (void)t;
    uint64_t h = 0;
    double sum = 0;
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        h = hash_of(run, p, q->stored, h);
        for (int s = 0; s < q->n_state; s++) h = hash_of(run, p, q->state[s], h);
        if (q->error < 0) continue;
        const float *e = sk_run_data(run, q->error);
        for (int64_t k = 0; k < p->bufs.v[q->error].bytes / 4; k++) sum += fabs((double)e[k]);
    }
    kept[p->rank][step] = h;
    owed[p->rank][step] = sum;
    sent[p->rank][step] = sk_comm_bytes_sent(sk_run_comm((sk_run *)run));
}

static int64_t left(int n, int step)
{
    int64_t bytes = 0;
    for (int r = 0; r < n; r++) bytes += sent[r][step] - (step ? sent[r][step - 1] : 0);
    return bytes;
}

/* Of all ranks together: an all-reduce of S bytes over n sends 2 S (n - 1).  A matrix of r rows of
 * c elements goes as n - 1 parts of r codes of c/8 and 2 bytes for 256 elements to owners, and once
 * more from these. */
static void bytes_by_closed_form(int n)
{
    char layout[16];
    snprintf(layout, sizeof layout, "dp=%d", n);
    sk_trial t = trial("gpt2", layout);
    t.after = after;
    int64_t dense = 0, coded = 0, shared = 0;
    bool sent_yet = false;
    unsigned kinds = 0;
    if (!fine(&t)) return;
    sk_arena a = {0};
    sk_graph g;
    sk_program **p;
    int ranks = 0;
    check(!sk_trial_compile(&a, &t, &g, &p, &ranks));
    for (int i = 0; i < p[0]->params.n; i++) {
        const sk_buffer *b = &p[0]->bufs.v[p[0]->params.v[i].stored];
        int64_t rows = b->box.size[0], c = rows ? b->bytes / 4 / rows : 0;
        dense += b->bytes;
        coded += b->box.n > 1 ? rows * ((c + 7) / 8 + 2 * ((c + 255) / 256)) : b->bytes;
    }
    for (int pc = 0; pc < p[0]->n_train; pc++) { /* loss and norm, in every step */
        const sk_inst *in = &p[0]->insts.v[pc];
        if (in->act == SK_DO_START && !in->sync.from && !in->sync.until && !in->sync.by)
            shared += sk_call_wire(&p[0]->calls.v[in->call], n);
    }
    sk_arena_end(&a);
    for (int s = 0; s < t.steps; s++) {
        int kind = kind_of(s);
        int64_t of_kind[] = {dense, coded, 0}, want = shared + 2 * (n - 1) * of_kind[kind];
        if (left(n, s) != want)
            printf("dp=%d, step %d: %lld bytes, not %lld\n", n, s, (long long)left(n, s),
                   (long long)want);
        check(left(n, s) == want);
        for (int r = 1; r < n; r++) check((kept[r][s] == kept[0][s]) == (kind != SK_STEP_LOCAL));
        sent_yet |= kind == SK_STEP_SENT;
        kinds |= 1u << kind;
        check((owed[0][s] > 0) == sent_yet && isfinite(owed[0][s]));
    }
    check(kinds == (sk_optim_find(which->name)->step_kind ? 7 : 3));
    check(coded * 4 < dense); /* rows of 32 elements; of 256 it is 30 */
}

/* Sent in f32, the momenta of ranks make that of all, and with it the step of one rank; without
 * clipping, which is by the norm of each rank, and where no step is local.  A second moment that is
 * frozen early is nearly 0 here and there: eps keeps roundings from being divided by it. */
static void as_one_rank(void)
{
    sk_optim plain = *sk_optim_find(which->name);
    plain.sent_as = "chunks:1"; /* as many bytes as without, or more: not taken */
    for (int i = 0; i < N_LAYOUTS; i++) {
        sk_trial one = trial("gpt2", "dp=1"), many = trial("gpt2", layouts[i]);
        int k = 0;
        one.clip = many.clip = 0;
        one.even = many.even = true;
        for (; which->knobs[k].name; k++)
            if (!strcmp(which->knobs[k].name, "local_step_clipper"))
                one.knobs[k].value = many.knobs[k].value = 1;
        one.knobs[k] = many.knobs[k] = (struct sk_trial_knob){"eps", 1e-3};
        many.own_optim = &plain;
        if (!fine(&one) || !fine(&many)) continue;
        double off = fabs(one.valid / many.valid - 1);
        for (int s = 0; s < STEPS; s++) off = fmax(off, fabs(one.loss[s] / many.loss[s] - 1));
        if (!(off < 1e-5)) printf("%s in f32, \"%s\": %.1e apart\n", plain.name, layouts[i], off);
        check(off < 1e-5);
    }
}

/* --- local steps, in double --- */

enum { MOST = 1 << 16, N_DP = 2 };
static float grads[STEPS][N_DP][MOST], weights[STEPS][N_DP][MOST];

/* Where a parameter begins among all. */
static int64_t place_of(const sk_program *p, int param)
{
    int64_t at = 0;
    for (int i = 0; i < param; i++) at += p->bufs.v[p->params.v[i].stored].bytes / 4;
    check(at < MOST);
    return at < MOST ? at : 0;
}

/* The gradient that the first pass of a step is about to see. */
static void keep_grad(void *ctx, const sk_run *run, int64_t step, int pc)
{
    const sk_program *p = sk_run_program(run);
    const sk_inst *in = &p->insts.v[pc];
    (void)ctx;
    if (in->act != SK_DO_UPDATE || pc >= p->n_train || !sk_inst_due(in, step, step)) return;
    const sk_optim *o = p->optim;
    if (in->pass && sk_optim_kind(o, in->pass - 1) == sk_optim_kind(o, in->pass)) return;
    memcpy(&grads[step][p->rank][place_of(p, in->param)], sk_run_data(run, in->in[0]),
           (size_t)p->bufs.v[in->in[0]].bytes);
}

static void keep_weights(const sk_trial *t, const sk_run *run, const sk_program *p, int step)
{
    (void)t;
    for (int i = 0; i < p->params.n; i++) {
        int buf = p->params.v[i].stored;
        memcpy(&weights[step][p->rank][place_of(p, i)], sk_run_data(run, buf),
               (size_t)p->bufs.v[buf].bytes);
    }
}

typedef struct element { /* of one weight, on all ranks */
    double w[N_DP], m[N_DP], u[N_DP], anchor, v;
} element;

/* Lu et al. 2022, algorithm 1: one step of one weight. */
static void zeroone_step(element *x, const double *g, int kind, double rate, double rates,
                         double keep, double fix2)
{
    double mean = 0;
    x->anchor *= keep;
    if (kind == SK_STEP_DENSE) x->v = 0.95 * x->v + 0.05 * g[0] * g[0];
    double root = sqrt(x->v / fix2) + 1e-3;
    for (int r = 0; r < N_DP; r++) {
        x->m[r] = 0.9 * x->m[r] + 0.1 * g[r];
        x->u[r] += rate * x->m[r];
        mean += x->u[r] / N_DP;
    }
    for (int r = 0; r < N_DP; r++) {
        if (kind != SK_STEP_LOCAL) x->u[r] = mean;
        x->w[r] = x->anchor - x->u[r] / root;
        if (kind == SK_STEP_SENT) x->m[r] = mean / rates;
        if (kind != SK_STEP_LOCAL) x->u[r] = 0;
    }
    if (kind != SK_STEP_LOCAL) x->anchor = x->w[0];
}

/* The weights of a tensor behind every step, from the gradients of each rank; the largest
 * difference as a part of their root mean square.  The first step is left to AdamW. */
static double off_in_double(const sk_trial *t, int64_t at, int64_t n, bool decays)
{
    element *x = calloc((size_t)n, sizeof *x);
    double worst = 0, rates = 0;
    for (int s = 0, dense = 0; s < t->steps; s++) {
        int kind = kind_of(s);
        double off = 0, size = 0, rate = 1e-3 / (1 - pow(0.9, s + 1));
        double tokens = (double)(t->batch * t->seq) / (kind == SK_STEP_DENSE ? 1 : N_DP);
        dense += kind == SK_STEP_DENSE;
        rates += rate;
        for (int64_t i = 0; i < n; i++) {
            double g[N_DP], keep = decays ? 1 - 1e-3 * 0.1 : 1;
            for (int r = 0; r < N_DP; r++) g[r] = (double)grads[s][r][at + i] / tokens;
            if (!s) x[i].anchor = (double)weights[0][0][at + i]; /* less its step, made up below */
            if (!s) keep = 1, x[i].anchor += rate * 0.1 * g[0] / (sqrt(g[0] * g[0]) + 1e-3);
            zeroone_step(&x[i], g, kind, rate, rates, keep, 1 - pow(0.95, dense));
            for (int r = 0; r < N_DP; r++) {
                off = fmax(off, fabs(x[i].w[r] - (double)weights[s][r][at + i]));
                size += x[i].w[r] * x[i].w[r] / (double)(n * N_DP);
            }
        }
        if (kind != SK_STEP_LOCAL) rates = 0;
        worst = fmax(worst, off / sqrt(size));
    }
    free(x);
    return worst;
}

static void locally_in_double(void)
{
    sk_optim plain = *sk_optim_find(which->name);
    sk_trial t = trial("gpt2", "dp=2");
    sk_arena a = {0};
    sk_graph g;
    sk_program **p;
    int ranks, k = 0;
    double worst = 0;
    if (!plain.step_kind) return;
    plain.sent_as = "chunks:1";
    t.clip = 0;
    t.even = true;
    t.lr = 1e-3;
    while (t.knobs[k].name) k++;
    t.knobs[k] = (struct sk_trial_knob){"eps", 1e-3};
    t.before = keep_grad;
    t.after = keep_weights;
    t.own_optim = &plain;
    if (!fine(&t)) return;
    check(!sk_trial_compile(&a, &t, &g, &p, &ranks));
    for (int i = 0; i < p[0]->params.n; i++) {
        const sk_param_plan *q = &p[0]->params.v[i];
        int64_t n = p[0]->bufs.v[q->stored].bytes / 4;
        worst = fmax(worst, off_in_double(&t, place_of(p[0], i), n, q->decay));
    }
    sk_arena_end(&a);
    if (!(worst < 1e-5)) printf("%s in double: %.1e apart\n", plain.name, worst);
    check(worst < 1e-5);
}

/* A gradient of one rank is not finite: weights, state and what is owed stay on all. */
static void skipped(int at)
{
    sk_trial t = trial("gpt2", "dp=2");
    t.poison = at;
    t.poison_grad = 2;
    t.after = after;
    if (!fine(&t)) return;
    for (int r = 0; r < 2; r++) {
        check(kept[r][at] == kept[r][at - 1] && owed[r][at] == owed[r][at - 1]);
        check(kept[r][at + 1] != kept[r][at]);
        check((owed[r][at + 1] != owed[r][at]) == (kind_of(at + 1) == SK_STEP_SENT));
    }
}

/* --- other devices --- */

static void on_gpu(void)
{
    for (int i = 0; i < 2 * N_LAYOUTS; i++) {
        sk_trial a = trial("gpt2", layouts[i / 2]), b = a;
        a.dtype = b.dtype = i % 2 ? SK_BF16 : SK_F32;
        b.gpu = true;
        if (!fine(&a) || !fine(&b)) continue;
        double off = fabs(a.valid / b.valid - 1);
        for (int s = 0; s < a.steps; s++) off = fmax(off, fabs(a.loss[s] / b.loss[s] - 1));
        if (off > (i % 2 ? 2e-2 : 2e-3)) printf("\"%s\": %.1e apart on a GPU\n", a.layout, off);
        check(off <= (i % 2 ? 2e-2 : 2e-3));
    }
}

/* --- one rank, and refusals --- */

/* Nothing is encoded: the same bits on any layout in canonical order. */
static void one_rank(void)
{
    sk_trial a = trial("llama", "dp=1; canonical order"),
             b = trial("llama", "tp=2; canonical order");
    if (fine(&a) && fine(&b)) check(a.digest == b.digest && a.valid == b.valid);
}

static void refused(const char *layout, const char *words)
{
    sk_trial t = trial("gpt2", layout);
    check(sk_trial_run(&t) == SK_ECONF && strstr(sk_error(), words));
    if (!strstr(sk_error(), words)) printf("\"%s\": %s\n", layout, sk_error());
}

static void refusals(void)
{
    refused("dp=2 zero=1", "zero shards it over the only axis");
    refused("dp=2; canonical order", "order=canonical loses nothing");
    refused("dp=2 sync=local:2", "leave out sync");
    refused("dp=2 grads=int8", "leave out grads=");
    refused("dp=2 reduce=adasum", "could join");
    sk_trial t = trial("gpt2", "dp=2");
    t.state_type = SK_BF16;
    check(sk_trial_run(&t) == SK_ECONF && strstr(sk_error(), "optim.state=f32"));
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    sk_fake_gpu(0);
    sk_fake_nccl();
    for (which = optims; which < optims + N_OPTIMS; which++) {
        as_others_at_first();
        bytes_by_closed_form(2);
        bytes_by_closed_form(3);
        as_one_rank();
        locally_in_double();
        for (int step = 3; step < 10; step++) skipped(step);
        on_gpu();
        one_rank();
        refusals();
    }
    printf("sent_state: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
