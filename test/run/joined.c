/* joined.c - fused launches, executed on a fake GPU (lib/fake_gpu.h).
 *
 * Every model under layouts of one rank that put other instructions between those to fuse, keep
 * their results, split them or recompute them: losses, norms and weights with all fusions are near
 * those without any.  In f16, where sums that are rounded once instead of
 * twice differ little, and in f32. */
#include "lib/check.h"
#include "lib/fake_gpu.h"
#include "lib/ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const models[] = {"gpt2", "llama", "switch", "mixtral", "mlp"};
static const char *const layouts[] = {
    "dp=1",
    "micro=2",
    "micro=4 recompute=full",
    "recompute=selective",
    "recompute=2 keep=cheap",
    "recompute=contract",
    "recompute=selective gist",
    "slices=2",
    "slices=4 micro=2 recompute=full",
    "gist",
    "gist=90 micro=2",
    "offload=acts",
    "offload=all tiles=3 micro=2",
    "offload=weights recompute=1",
};
enum {
    MODELS = sizeof models / sizeof *models,
    LAYOUTS = sizeof layouts / sizeof *layouts,
    WIDE = 4, /* layouts that f32 is tried under */
};

static int runs;

static bool run(sk_trial *t, bool joined)
{
    if (joined) unsetenv("SKEIN_FUSE");
    else setenv("SKEIN_FUSE", "none", 1);
    sk_status st = sk_trial_run(t);
    if (st) printf("%s: %s: %s\n", t->model->name, t->layout, sk_error());
    check(!st);
    runs++;
    return !st;
}

/* First moments, which are the gradients: how far is one from its fellow, of the largest in its
 * tensor? */
typedef struct learnt {
    char name[64];
    int64_t n;
    float *v;
} learnt;
enum { MOST = 512 };
static learnt first[MOST];
static int n_first;
static double worst;
static bool comparing;
static char where[64];

static void look(void *ctx, const sk_tensor_shard *b)
{
    int64_t n = 1;
    size_t end = strlen(b->name);
    (void)ctx;
    if (end < 2 || strcmp(b->name + end - 2, ".m") != 0) return;
    for (int d = 0; d < b->n; d++) n *= b->size[d];
    float *v = calloc((size_t)n + 1, sizeof *v), most = 0;
    sk_convert(v, SK_F32, b->data, b->type, n);
    if (!comparing) {
        sk_assert(n_first < MOST);
        learnt *l = &first[n_first++];
        snprintf(l->name, sizeof l->name, "%s", b->name);
        l->n = n, l->v = v;
        return;
    }
    int i = 0;
    while (i < n_first && strcmp(first[i].name, b->name) != 0) i++;
    sk_assert(i < n_first && first[i].n == n);
    for (int64_t k = 0; k < n; k++) most = fmaxf(most, fabsf(first[i].v[k]));
    for (int64_t k = 0; k < n; k++) {
        double d = most > 0 ? fabs((double)(v[k] - first[i].v[k])) / (double)most : 0;
        if (!(d <= worst)) worst = d, snprintf(where, sizeof where, "%s", b->name);
    }
    free(v);
}

static void forget(void)
{
    for (int i = 0; i < n_first; i++) free(first[i].v);
    n_first = 0;
}

/* In 16 bits a router decides otherwise where two experts are near. */
static bool routes(const sk_trial *t)
{
    return !strcmp(t->model->name, "switch") || !strcmp(t->model->name, "mixtral");
}

/* A product of 16 bits joins a GELU where its width is a multiple of 8. */
static void both(const char *model, const char *layout, sk_dtype type)
{
    sk_trial t = sk_trial_small(model, layout), u;
    double by = type == SK_F32 ? 1e-4 : 2e-2;
    t.gpu = true;
    t.steps = 3;
    t.lr = 1e-6;
    t.dtype = type;
    t.loss_scale = type == SK_F16 ? 1024 : 0;
    t.look = look;
    if (type == SK_F16) t.hyper.intermediate_size = 32;
    if (type == SK_F16 && routes(&t)) by = 0.5;
    u = t;
    comparing = false;
    if (!run(&t, false)) return forget();
    comparing = true;
    worst = 0;
    if (!run(&u, true)) return forget();
    for (int s = 0; s < t.steps; s++) {
        double d = fabs(u.loss[s] / t.loss[s] - 1), e = fabs(u.norm[s] / t.norm[s] - 1);
        if (!(d <= by / 10) || !(e <= by))
            printf("%s: %s: step %d: loss %.9g, %.9g; norm %.9g, %.9g\n", model, layout, s,
                   t.loss[s], u.loss[s], t.norm[s], u.norm[s]);
        check(d <= by / 10 && e <= by);
    }
    if (!(worst <= by)) printf("%s: %s: %s is %g apart\n", model, layout, where, worst);
    check(worst <= by && fabs(u.valid / t.valid - 1) <= by / 10);
    forget();
}

int main(void)
{
    sk_fake_gpu(0);
    for (int m = 0; m < MODELS; m++)
        for (int i = 0; i < LAYOUTS; i++) {
            if (i < WIDE) both(models[m], layouts[i], SK_F32);
            if (due(m + i, 2)) both(models[m], layouts[i], SK_F16);
        }
    printf("joined: %d runs, %d checks, %d bad\n", runs, checks, bad);
    return bad > 0;
}
