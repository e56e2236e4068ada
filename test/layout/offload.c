/* offload.c - what lives outside of the device: less of the device's memory, the same bits.
 *
 * Every model under layouts of every family, with state, weights, gradients and activations in the
 * host's memory and in a file: losses, norms, weights and state at the end are those of the same
 * layout on the device alone.  What is kept there must be gone from the device's regions. */
#include "lib/check.h"
#include "lib/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const models[] = {"gpt2", "llama", "switch", "mixtral", "mlp"};
static const char *const layouts[] = {
    "dp=2 micro=2",
    "dp=2 zero=1",
    "dp=2 zero=2 micro=2",
    "dp=2 zero=3 micro=2 prefetch=2",
    "dp=2 zero=3 keep recompute=full",
    "tp=2 sp overlap=2",
    "pp=2 micro=4 schedule=zb-h1",
    "pp=2 dp=2 micro=4 schedule=zb-v zero=3",
    "pp=2 micro=4 schedule=pipedream",
    "cp=2 by=ring",
    "ep=2 dp=2",
    "pp=2 dp=2 tp=2 sp zero=2 micro=2; canonical order",
    "dp=1 micro=3; canonical order",
};
static const char *const ways[] = {
    "offload state to host",
    "offload acts to host",
    "offload weights to host",
    "offload grads to file",
    "offload all to host",
    "offload all to file",
    "offload state to file; offload weights grads acts to host",
};
enum {
    MODELS = sizeof models / sizeof *models,
    LAYOUTS = sizeof layouts / sizeof *layouts,
    WAYS = sizeof ways / sizeof *ways
};

static sk_trial trial(const char *model, const char *layout)
{
    sk_trial t = sk_trial_small(model, layout);
    t.clip = 0.5;
    return t;
}

static bool same_bits(const sk_trial *t, const sk_trial *plain)
{
    bool same = t->digest == plain->digest && t->elements == plain->elements;
    same &= !memcmp(t->loss, plain->loss, sizeof t->loss); /* what is no number is equal too */
    return same && !memcmp(t->norm, plain->norm, sizeof t->norm) && t->valid == plain->valid;
}

/* Nothing of what is said to live elsewhere is kept on the device. */
static void places(const sk_trial *t)
{
    static const sk_kind kind[SK_N_OFFLOAD_KINDS] = {SK_OPTIM, SK_WEIGHTS, SK_GRADS, SK_ACTS};
    sk_arena a = {0};
    sk_graph g;
    sk_program **p = NULL;
    int n = 0;
    check(!sk_trial_compile(&a, t, &g, &p, &n));
    for (int r = 0; r < n && p; r++)
        for (int w = 0; w < SK_KEPT; w++)
            if (p[r]->layout.home[w]) check(p[r]->kind_bytes[kind[w]] == 0);
    sk_arena_end(&a);
}

static int copies;

static void one(const sk_trial *plain, const char *way)
{
    char text[200];
    sk_trial t = *plain;
    snprintf(text, sizeof text, "%s; %s", plain->layout, way);
    t.layout = text;
    sk_status st = sk_trial_run(&t);
    if (st) printf("%s: %s: %s\n", t.model->name, text, sk_error());
    check(!st);
    if (st) return;
    if (!same_bits(&t, plain)) printf("%s: %s: other bits\n", t.model->name, text);
    check(same_bits(&t, plain));
    places(&t);
    copies++;
}

/* Weights that come in tiles: other orders of sums, so near; and a device with less memory than the
 * largest weight. */
static void tiles(void)
{
    static const char *const plans[] = {"micro=2 offload=all tiles=3",
                                        "offload=all:file tiles=4",
                                        "tp=2 offload=all tiles=5",
                                        "dp=2 zero=1 micro=2 offload=weights+state+grads tiles=2",
                                        "dp=2 zero=2 offload=all recompute=full tiles=2",
                                        "pp=2 micro=2 offload=all tiles=2"};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        for (int m = 0; m < MODELS; m++) {
            sk_trial t = trial(models[m], plans[i]), one_rank = trial(models[m], "dp=1");
            bool near = !sk_trial_run(&t) && !sk_trial_run(&one_rank);
            for (int s = 0; s < t.steps; s++)
                near &= t.loss[s] / one_rank.loss[s] - 1 < 1e-5 &&
                        one_rank.loss[s] / t.loss[s] - 1 < 1e-5;
            if (!near)
                printf("%s: %s: loss %.9g, %.9g\n", models[m], plans[i], t.loss[2],
                       one_rank.loss[2]);
            check(near);
            copies++;
        }
}

static void small_device(void)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p = NULL;
    int n = 0;
    sk_trial t = trial("llama", "offload=all tiles=16");
    t.hyper.hidden_size = 256;
    t.hyper.intermediate_size = 1024;
    t.batch = 1;
    check(!sk_trial_compile(&a, &t, &g, &p, &n));
    check(sk_device_bytes(p[0]) < 256 * 1024 * (int64_t)sizeof(real) / 2);
    sk_arena_end(&a);
}

/* Types of 16 bits, optimizers of two passes, steps that are skipped. */
static void other_runs(void)
{
    for (int w = 0; w < WAYS; w++)
        for (int k = 0; k < 4; k++) {
            sk_trial plain = trial("llama", k == 3 ? "dp=2 zero=3" : "dp=2 zero=1 micro=2");
            if (k == 0) plain.dtype = SK_BF16;
            if (k == 1) plain.optim = "lamb";
            if (k == 2) plain.poison = 2;
            if (k == 3) plain.dtype = SK_F16, plain.loss_scale = 64, plain.state_type = SK_BF16;
            check(!sk_trial_run(&plain));
            one(&plain, ways[w]);
        }
}

/* Gradients of tables of words go as rows (program/grad_rows.c), through views of the copies. */
static void rows_of_words(void)
{
    static const char *const plans[] = {"dp=2", "dp=4 micro=2", "pp=2 dp=2 micro=2", "dp=2 tp=2"};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        for (int w = 0; w < WAYS; w++) {
            sk_trial plain = trial(i % 2 ? "mixtral" : "llama", plans[i]);
            plain.hyper.vocab_size = 600;
            plain.hyper.tie_word_embeddings = false;
            plain.batch = 8;
            if (strstr(ways[w], "grads") || strstr(ways[w], "all")) continue; /* dense sums */
            check(!sk_trial_run(&plain));
            one(&plain, ways[w]);
        }
}

static void refusals(void)
{
    sk_trial t = trial("llama", "dp=2 zero=1 replica offload=state");
    fails(sk_trial_run(&t), SK_ECONF, "leave one of the two out");
    t = trial("llama", "pp=2 micro=4 schedule=pipedream offload=all tiles=2");
    fails(sk_trial_run(&t), SK_ECONF, "leave out tiles");
    t = trial("llama", "offload state weights to host; weights in 2 tiles; canonical order");
    fails(sk_trial_run(&t), SK_ECONF, "leave one of the two out");
}

int main(int argc, char **argv)
{
    int only = argc > 1 ? atoi(argv[1]) : -1;
    for (int m = 0; m < MODELS; m++)
        for (int l = 0; l < LAYOUTS; l++) {
            sk_trial plain = trial(models[m], layouts[l]);
            check(!sk_trial_run(&plain));
            for (int w = 0; w < WAYS; w++)
                if (only < 0 ? due(m + l + w, 5) : only == w) one(&plain, ways[w]);
        }
    other_runs();
    tiles();
    rows_of_words();
    small_device();
    refusals();
    printf("offload: %d runs, %d checks, %d bad\n", copies, checks, bad);
    return bad > 0;
}
