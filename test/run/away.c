/* away.c - offload from a GPU to the host and to a file, on a fake GPU (lib/fake_gpu.h).
 *
 * Every model with state, weights, gradients and activations in the host's memory and in a file,
 * with tiles, 16 bits, two passes, a late optimizer and a step that is skipped: weights and state
 * at the end are those of the same program without offload, to the bit; losses too.  Streams are
 * delayed at random, so that operations without an order happen in any order. */
#include "lib/check.h"
#include "lib/fake_gpu.h"
#include "lib/ranks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const models[] = {"gpt2", "llama", "switch", "mixtral", "mlp"};
static const char *const ways[] = {
    "offload=state", "offload=acts",     "offload=weights",         "offload=grads",
    "offload=all",   "offload=all:file", "offload=state:file+acts", "offload=all prefetch=2",
};
enum {
    MODELS = sizeof models / sizeof *models,
    WAYS = sizeof ways / sizeof *ways,
};

static int runs;

static sk_trial trial(const char *model, const char *layout)
{
    sk_trial t = sk_trial_small(model, layout);
    t.gpu = true;
    t.threads = 2;
    t.steps = 4;
    return t;
}

static bool run(sk_trial *t)
{
    sk_status st = sk_trial_run(t);
    if (st) printf("%s: %s: %s\n", t->model->name, t->layout, sk_error());
    check(!st);
    runs++;
    return !st;
}

/* Norms are summed in another order where the host does it. */
static void same(sk_trial *plain, const char *way)
{
    char text[200];
    sk_trial t = *plain;
    snprintf(text, sizeof text, "%s %s", plain->layout, way);
    t.layout = text;
    if (!run(&t)) return;
    bool bits = t.digest == plain->digest && t.elements == plain->elements;
    bits &= !memcmp(t.loss, plain->loss, sizeof t.loss);
    for (int s = 0; s < t.steps; s++)
        bits &= !isfinite(t.norm[s]) == !isfinite(plain->norm[s]) &&
                !(fabs(t.norm[s] / plain->norm[s] - 1) > 1e-6);
    if (!bits) printf("%s: %s: other bits\n", t.model->name, text);
    check(bits && t.valid == plain->valid);
}

static void all_models(void)
{
    for (int m = 0; m < MODELS; m++) {
        sk_trial plain = trial(models[m], "micro=2");
        if (!run(&plain)) continue;
        for (int w = 0; w < WAYS; w++)
            if (due(m + w, 2)) same(&plain, ways[w]);
        plain = trial(models[m], "micro=2 recompute=full");
        if (run(&plain)) same(&plain, "offload=all:file");
    }
}

static void other_runs(void)
{
    for (int k = 0; k < 3; k++) {
        sk_trial plain = trial("llama", "micro=2");
        if (k == 0) plain.dtype = SK_BF16;
        if (k == 1) plain.optim = "lamb";
        if (k == 2) plain.poison = 2;
        if (!run(&plain)) continue;
        for (int w = 0; w < WAYS; w++)
            if (due(k + w, 2)) same(&plain, ways[w]);
    }
}

/* Sums in another order, or with factors that are: near. */
static void near(sk_trial t, sk_trial u, double by)
{
    if (!run(&t) || !run(&u)) return;
    for (int s = 0; s < t.steps; s++) {
        if (fabs(t.loss[s] / u.loss[s] - 1) > by)
            printf("%s: %s: loss %.9g, %.9g\n", t.model->name, t.layout, t.loss[s], u.loss[s]);
        check(!(fabs(t.loss[s] / u.loss[s] - 1) > by));
    }
}

static void near_runs(void)
{
    for (int m = 0; m < MODELS; m++) {
        near(trial(models[m], "offload=all tiles=4"), trial(models[m], "dp=1"), 1e-5);
        near(trial(models[m], "offload=all:file tiles=3"), trial(models[m], "dp=1"), 1e-5);
        sk_trial t = trial(models[m], "offload=all micro=2"), u = trial(models[m], "micro=2");
        t.clip = u.clip = 0.5;
        near(t, u, 1e-5);
    }
}

/* A late optimizer on a GPU's host does what it does on a CPU's. */
static void late(void)
{
    static const char *const with[] = {"offload=state", "offload=state+grads", "offload=all"};
    for (int w = 0; w < 3; w++)
        for (int k = 0; k < 2; k++) {
            sk_trial t = trial("gpt2", with[w]), u;
            t.late = true;
            t.poison = k ? 2 : 0;
            if (k) t.dtype = SK_BF16;
            u = t;
            u.gpu = false;
            u.threads = 1; /* as kernels have here: some BLAS rounds by how rows are shared */
            if (!run(&t) || !run(&u)) continue;
            if (t.digest != u.digest) printf("late: %s: other bits\n", with[w]);
            check(t.digest == u.digest && !memcmp(t.loss, u.loss, sizeof t.loss));
        }
}

int main(void)
{
    sk_fake_gpu(200);
    all_models();
    other_runs();
    near_runs();
    late();
    printf("away: %d runs, %d checks, %d bad\n", runs, checks, bad);
    return bad > 0;
}
