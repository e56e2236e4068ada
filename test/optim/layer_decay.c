/* layer_decay.c - optim.layer_decay: the step of a parameter of layer l of L is decay^(L - 1 - l)
 * of what it would be, whatever the layout, the optimizer, the group or the device; the embedding
 * has the lowest rate, also where it is the head too, and the head has the full one. */
#include "lib/check.h"
#include "lib/fake_gpu.h"
#include "lib/fake_nccl.h"
#include "lib/ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, LAYERS = 3 };

/* Sums of the elements of every tensor, each times a number of its place. */
typedef struct seen {
    char name[MOST][64];
    double sum[MOST];
    int n;
} seen;

static void look(void *ctx, const sk_tensor_shard *b)
{
    seen *s = ctx;
    int i = 0;
    int64_t n = 1;
    if (!b->mine || strstr(b->name, "sgd") || strstr(b->name, "adam")) return; /* state */
    while (i < s->n && strcmp(s->name[i], b->name)) i++;
    if (i == s->n) snprintf(s->name[s->n++], sizeof s->name[0], "%s", b->name);
    for (int d = 0; d < b->n; d++) n *= b->size[d];
    for (int64_t k = 0; k < n; k++) {
        int64_t at = 0, left = k;
        for (int d = b->n - 1, step = 1; d >= 0; step *= (int)b->full[d], d--)
            at += (b->at[d] + left % b->size[d]) * step, left /= b->size[d];
        s->sum[i] += (double)((const float *)b->data)[k] * (1 + (double)(at % 7));
    }
}

/* Ranks come in any order. */
static double sum_of(const seen *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->name[i], name)) return s->sum[i];
    return NAN;
}

static seen after_step(const char *optim, const char *layout, bool gpu, bool tied, double lr,
                       double decay)
{
    static const struct sk_trial_knob plain[] = {{"momentum", 0}, {"weight_decay", 0}};
    seen s = {0};
    sk_trial t = sk_trial_small("gpt2", layout);
    t.hyper.num_hidden_layers = LAYERS;
    t.hyper.tie_word_embeddings = tied;
    t.optim = optim;
    memcpy(t.knobs, plain, sizeof plain);
    if (strcmp(optim, "sgd")) t.knobs[0].name = NULL; /* decay is decoupled: it has the rate too */
    t.steps = 1;
    t.lr = lr;
    t.gpu = gpu;
    t.layer_decay = decay;
    t.look = look;
    t.look_ctx = &s;
    if (sk_trial_run(&t)) printf("%s: %s\n", layout, sk_error()), check(false);
    return s;
}

/* The layer of a parameter of a GPT-2, by its name. */
static int layer_of(const char *name)
{
    if (!strncmp(name, "h.", 2)) return 1 + atoi(name + 2);
    return !strncmp(name, "wte", 3) || !strncmp(name, "wpe", 3) ? 0 : LAYERS + 1;
}

static void rates(const char *optim, const char *layout, bool gpu, bool tied)
{
    const double decay = 0.5;
    seen at = after_step(optim, layout, gpu, tied, 1e-30, 0);
    seen whole = after_step(optim, layout, gpu, tied, 0.25, 0);
    seen part = after_step(optim, layout, gpu, tied, 0.25, decay);
    check(at.n > 4 * LAYERS && whole.n == at.n && part.n == at.n);
    for (int i = 0; i < at.n && i < part.n; i++) {
        double step = sum_of(&whole, at.name[i]) - at.sum[i];
        double is = (sum_of(&part, at.name[i]) - at.sum[i]) / step;
        double want = pow(decay, LAYERS + 1 - layer_of(at.name[i]));
        bool good = fabs(is / want - 1) < 0.01 || fabs(step) < 1e-3;
        if (!good)
            printf("%s, %s, %s: %g of the step, %g is right\n", optim, layout, at.name[i], is,
                   want);
        check(good);
    }
}

int main(void)
{
    static const char *const layouts[] = {"dp=1", "dp=2 zero=1 tp=2", "dp=2 zero=3", "pp=2 micro=2",
                                          "dp=2 zero=2 offload=state"};
    sk_fake_gpu(0);
    sk_fake_nccl();
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        rates("sgd", layouts[i], false, false);
    rates("adamw", "dp=2 zero=1", false, false);
    rates("sgd", "pp=2 micro=2", false, true);
    rates("sgd", "dp=2 zero=1 tp=2", true, false);
    printf("layer_decay: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
