/* averaged.c - averages of weights, which validation reads in place of the weights.
 *
 * After every step the average of each rank's shard is within 1e-6 of its definition in double: the
 * sum of the weights behind each update, by powers of the decay, over the sum of these.  Skipped
 * steps do not count, delayed updates when they are made.  In canonical order averages and
 * validation have the bits of one rank on eight layouts, and on GPUs that are none
 * (lib/fake_gpu.h).  A decay that forgets everything leaves the loss of a validation with the
 * weights themselves, to the bit.  An average has 4 bytes a weight, sharded as state is. */
#include "lib/check.h"
#include "lib/fake_gpu.h"
#include "lib/fake_nccl.h"
#include "lib/ranks.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMS = 128 };
#define FORGETS 1e-9 /* 1 - FORGETS is 1 in f32 */

/* --- the value --- */

static double *sums[SK_TEST_RANKS][PARAMS], counted[SK_TEST_RANKS];
static int looked;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Did the step change the weights?  A delayed update is that of the step before. */
static bool updated(const sk_trial *t, int step)
{
    int of = t->late ? step - 1 : step;
    return of >= 0 && !(t->poison && of == t->poison);
}

static double worst_of(const sk_run *run, const sk_program *p, const sk_param_plan *q, double *sum,
                       double total)
{
    const real *average = sk_run_data(run, q->ema);
    int64_t n = p->bufs.v[q->ema].bytes / (int64_t)sizeof(real);
    double off = 0;
    for (int64_t i = 0; i < n && total > 0; i++) {
        double d = fabs((double)average[i] - sum[i] / total);
        off = d <= off ? off : d; /* NaN too */
    }
    return off;
}

static void follow(const sk_trial *t, const sk_run *run, const sk_program *p, int step)
{
    double *total = &counted[p->rank], off = 0, moved = 0;
    bool new = updated(t, step);
    if (new) *total = t->ema * *total + (1 - t->ema);
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        const real *w = sk_run_data(run, q->master >= 0 ? q->master : q->shard);
        int64_t n = p->bufs.v[q->ema].bytes / (int64_t)sizeof(real);
        double **sum = &sums[p->rank][i];
        if (!*sum) *sum = calloc((size_t)n + 1, sizeof **sum);
        for (int64_t k = 0; k < n && new; k++)
            (*sum)[k] = t->ema * (*sum)[k] + (1 - t->ema) * (double)w[k];
        off = fmax(off, worst_of(run, p, q, *sum, *total));
        for (int64_t k = 0; k<n && * total> 0; k++)
            moved = fmax(moved, fabs((double)w[k] - (*sum)[k] / *total));
    }
    pthread_mutex_lock(&lock);
    if (!(off < 1e-6)) printf("%s: rank %d, step %d: off by %.2g\n", t->layout, p->rank, step, off);
    check(off < 1e-6);
    check(step < 3 || moved > 1e-4); /* the average is not the weights */
    looked++;
    pthread_mutex_unlock(&lock);
}

static void value(const char *layout, sk_dtype type, const char *optim, int poison, bool late)
{
    sk_trial t = sk_trial_small("llama", layout);
    t.hyper.num_hidden_layers = 2;
    t.steps = 6;
    t.dtype = type;
    t.optim = optim;
    t.poison = poison;
    t.late = late;
    t.ema = 0.8;
    t.after = follow;
    t.counts = true;
    sk_trial_groups(&t);
    memset(counted, 0, sizeof counted);
    looked = 0;
    bool ran = !sk_trial_run(&t);
    if (!ran) printf("%s: %s\n", layout, sk_error());
    check(ran && looked == t.n_ranks * t.steps);
    for (int r = 0; r < SK_TEST_RANKS; r++)
        for (int i = 0; i < PARAMS; i++) free(sums[r][i]), sums[r][i] = NULL;
}

/* --- the same on all layouts --- */

static sk_trial trial(const char *model, const char *optim, const char *layout)
{
    static char text[64][100];
    static int n;
    char *to = text[n++ % 64];
    snprintf(to, sizeof text[0], "%s%scanonical order", layout, *layout ? "; " : "");
    sk_trial t = sk_trial_small(model, to);
    t.hyper.num_hidden_layers = 2;
    t.optim = optim;
    t.ema = 0.5;
    t.clip = 1;
    sk_trial_groups(&t);
    return t;
}

static bool run(sk_trial *t)
{
    bool ran = !sk_trial_run(t);
    if (!ran) printf("%s, %s: %s\n", t->optim, t->layout, sk_error());
    check(ran);
    return ran;
}

static const struct {
    const char *model, *layout;
    bool gpu;
} cases[] = {
    {"llama", "dp=2", false},
    {"llama", "dp=3 zero=1 micro=2", false},
    {"llama", "dp=2 zero=2 cp=2", false},
    {"llama", "dp=2 tp=2 zero=3", false},
    {"llama", "dp=2 replica", false},
    {"llama", "pp=2 dp=2 zero=1 micro=2", false},
    {"mixtral", "ep=2 dp=2 zero=2", false},
    {"mixtral", "ep=2 tp=2 pp=2 micro=2", false},
    {"llama", "dp=2 tp=2 zero=2", true},
    {"llama", "dp=2 zero=3", true},
};

static void same_bits(const char *optim)
{
    sk_trial llama = trial("llama", optim, ""), mixtral = trial("mixtral", optim, "");
    sk_trial gpu = trial("llama", optim, "");
    gpu.gpu = true;
    if (!run(&llama) || !run(&mixtral) || !run(&gpu)) return;
    check(fabs(gpu.valid / llama.valid - 1) < 1e-5);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sk_trial t = trial(cases[i].model, optim, cases[i].layout);
        t.gpu = cases[i].gpu;
        const sk_trial *one = t.gpu ? &gpu : *t.model->name == 'm' ? &mixtral : &llama;
        if (!run(&t)) continue;
        bool same = t.digest == one->digest && t.elements == one->elements;
        if (!same) printf("%s: other bits: %s, %s\n", optim, cases[i].model, t.layout);
        check(same && t.valid == one->valid);
    }
}

/* --- what validation reads --- */

static void reads(const char *layout, sk_dtype type, bool gpu)
{
    double loss[3];
    const double decays[] = {0, FORGETS, 0.9};
    for (int i = 0; i < 3; i++) {
        sk_trial t = sk_trial_small("gpt2", layout);
        t.hyper.num_hidden_layers = 2;
        t.hyper.tie_word_embeddings = true;
        t.dtype = type;
        t.gpu = gpu;
        t.lr = 0.01;
        t.ema = decays[i];
        if (!run(&t)) return;
        loss[i] = t.valid;
    }
    if (loss[0] != loss[1]) printf("%s: validation reads other weights\n", layout);
    check(loss[0] == loss[1] && loss[2] != loss[0] && isfinite(loss[2]));
}

/* --- bytes --- */

static int64_t state_bytes(const char *layout, double ema, int *n_params)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p;
    int n = 0;
    int64_t bytes = 0;
    sk_trial t = sk_trial_small("llama", layout);
    t.ema = ema;
    check(!sk_trial_compile(&a, &t, &g, &p, &n));
    for (int r = 0; r < n; r++)
        for (int b = 0; b < p[r]->bufs.n; b++)
            if (p[r]->bufs.v[b].kind == SK_OPTIM && p[r]->bufs.v[b].keep)
                bytes += p[r]->bufs.v[b].bytes;
    *n_params = 0;
    for (int i = 0; i < g.tensors.n; i++) {
        sk_shape s = sk_tensor_shape(&g, g.tensors.v[i]);
        int each = g.tensors.v[i]->role == SK_PARAM;
        for (int d = 0; d < s.n; d++) each *= (int)s.d[d];
        *n_params += each;
    }
    sk_arena_end(&a);
    return bytes;
}

static void closed_form(const char *layout)
{
    int n = 0;
    int64_t without = state_bytes(layout, 0, &n), with = state_bytes(layout, 0.9, &n);
    check(n > 0 && with - without == 4 * (int64_t)n);
}

/* --- what cannot be --- */

static void refused(sk_trial t, const char *why)
{
    t.hyper.num_hidden_layers = 2;
    bool refuses = sk_trial_run(&t) == SK_ECONF && strstr(sk_error(), why);
    if (!refuses) printf("not refused with \"%s\": %s\n", why, sk_error());
    check(refuses);
}

static void refusals(void)
{
    sk_trial t = sk_trial_small("llama", "pp=2 micro=4 schedule=pipedream");
    t.ema = 0.9;
    refused(t, "optim.ema averages weights once a step");
    t.ema = 0, t.optim = "schedulefree";
    refused(t, "schedulefree averages weights once a step");
    t.layout = "dp=1", t.ema = 0.9;
    refused(t, "schedulefree averages the weights itself");
    t.ema = 0, t.state_type = SK_BF16;
    refused(t, "which need f32");
}

int main(void)
{
    sk_fake_gpu(0);
    sk_fake_nccl();
    value("dp=1", SK_F32, "adamw", 0, false);
    value("dp=1", SK_F32, "adamw", 3, false);
    value("dp=2 zero=1", SK_F32, "lamb", 0, false);
    value("dp=2 zero=3 tp=2", SK_BF16, "muon", 2, false);
    value("pp=2 micro=2 offload=state", SK_BF16, "adamw", 0, false);
    value("dp=2 offload=state", SK_F32, "adamw", 3, true);
    value("zero=1 dp=2 offload=state", SK_BF16, "sgd", 0, true);
    same_bits("adamw");
    same_bits("muon");
    static const char *const layouts[] = {"dp=1",
                                          "dp=2",
                                          "dp=2 zero=1 micro=2",
                                          "dp=2 zero=2",
                                          "dp=2 tp=2 zero=3",
                                          "dp=2 replica",
                                          "pp=2 micro=2",
                                          "dp=2 zero=1 offload=state",
                                          "offload=all",
                                          "offload=weights+state:file tiles=2"};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (int k = 0; k < 4; k++)
            if (!(k > 1 && strstr(layouts[i], "replica")))
                reads(layouts[i], k % 2 ? SK_BF16 : SK_F32, k > 1);
    closed_form("dp=1");
    closed_form("dp=3 zero=1");
    closed_form("dp=2 zero=3");
    refusals();
    printf("averaged: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
