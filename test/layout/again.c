/* again.c - results that are made again for the backward pass: less memory, the same bits.
 *
 * Every model under layouts of every family, with each way of recomputation: losses, norms, weights
 * and state at the end are those of the same layout without it, to the last bit.  Activations must
 * be fewer, and work more by no more than a forward pass of the blocks. */
#include "lib/check.h"
#include "lib/ranks.h"

#include <stdio.h>

static const char *const models[] = {"gpt2", "llama", "switch", "mixtral", "mlp"};
static const char *const layouts[] = {
    "dp=2 micro=2",
    "tp=2 sp",
    "tp=2 sp overlap=2",
    "pp=2 micro=3",
    "pp=2 micro=4 schedule=zb-h1",
    "pp=2 dp=2 micro=4 schedule=zb-v zero=3",
    "pp=2 micro=4 schedule=pipedream",
    "dp=2 zero=3 micro=2 prefetch=1",
    "dp=2 zero=3 keep",
    "cp=2 by=ring",
    "cp=2 by=exchange",
    "ep=2 dp=2",
    "pp=2 dp=2 tp=2 sp zero=2 micro=2; canonical order",
};
static const char *const ways[] = {"selective", "full", "1 blocks", "contract"};
enum {
    MODELS = sizeof models / sizeof *models,
    LAYOUTS = sizeof layouts / sizeof *layouts,
    WAYS = sizeof ways / sizeof *ways
};

typedef struct cost {
    double flops, forward; /* of a step; of its forward pass through the blocks */
    int64_t acts;
} cost;

static cost cost_of(const sk_trial *t)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p = NULL;
    int n = 0;
    cost c = {0};
    check(!sk_trial_compile(&a, t, &g, &p, &n));
    for (int r = 0; r < n && p; r++) {
        for (int i = 0; i < p[r]->n_train; i++) {
            const sk_inst *in = &p[r]->insts.v[i];
            c.flops += in->flops;
            if (in->act == SK_DO_OP && in->phase == SK_FORWARD) c.forward += in->flops;
        }
        c.acts += p[r]->kind_bytes[SK_ACTS];
    }
    sk_arena_end(&a);
    return c;
}

static void one(const char *model, const char *layout, const char *way, const sk_trial *plain)
{
    char text[160];
    snprintf(text, sizeof text, "%s; recompute %s", layout, way);
    sk_trial t = sk_trial_small(model, text);
    check(!sk_trial_run(&t));
    bool same = t.digest == plain->digest && t.elements == plain->elements;
    for (int s = 0; s < t.steps; s++)
        same &= t.loss[s] == plain->loss[s] && t.norm[s] == plain->norm[s];
    if (!same) printf("%s: %s: other bits\n", model, text);
    check(same);
    cost before = cost_of(plain), after = cost_of(&t);
    bool more = after.flops >= before.flops && after.flops <= before.flops + before.forward;
    if (!more) printf("%s: %s: %g flops, %g before\n", model, text, after.flops, before.flops);
    check(more);
    bool full = way[0] == 'f' && strcmp(model, "mlp") != 0;
    if (full && !(after.acts < before.acts && after.flops > before.flops))
        printf("%s: %s: %lld bytes, %lld before\n", model, text, (long long)after.acts,
               (long long)before.acts);
    check(!full || (after.acts < before.acts && after.flops > before.flops));
}

static void refusals(void)
{
    sk_trial t = sk_trial_small("llama", "pp=2 micro=4 schedule=pb recompute=full");
    t.optim = "sgd";
    fails(sk_trial_run(&t), SK_ECONF, "leave out recompute");
}

int main(void)
{
    int runs = 0;
    for (int m = 0; m < MODELS; m++)
        for (int l = 0; l < LAYOUTS; l++) {
            sk_trial plain = sk_trial_small(models[m], layouts[l]);
            check(!sk_trial_run(&plain));
            for (int w = 0; w < WAYS; w++, runs++) one(models[m], layouts[l], ways[w], &plain);
        }
    refusals();
    printf("again: %d runs, %d checks, %d bad\n", runs, checks, bad);
    return bad > 0;
}
