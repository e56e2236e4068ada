/* moe.c - mixtures of experts under layouts: each gives the losses of one rank.
 *
 * Experts split over an axis of their own (every rank has every token, sums are
 * reduced), over the axis of the batch (tokens travel to their experts), together with slices of
 * each expert, with shards of state, in stages, in micro-batches. */
#include "lib/ranks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const layouts[] = {
    "dp=2",
    "dp=3 micro=2",
    "tp=2",
    "dp=2 zero=3",
    "pp=2 micro=2",
    "mesh ep=2; split e over ep",
    "mesh ep=3; split e over ep",
    "mesh dp=2; split b e over dp",
    "mesh dp=4; split b e over dp",
    "mesh dp=2 ep=2; split b over dp; split e over ep; shard state over dp",
    "mesh ep=2 tp=2; split e over ep; split h f v over tp; micro 2",
    "mesh pp=2 dp=2; split b e over dp; stages over pp schedule 1f1b micro 2",
    "mesh a=2; split x over a",
};

typedef struct kind {
    const char *model;
    int64_t choices, shared, groups;
    double factor, speed;
} kind;

static const kind kinds[] = {
    {"switch", 1, 0, 0, 1.25, 0},    {"mixtral", 2, 0, 0, 0, 0},    {"mixtral", 2, 2, 2, 0.75, 0},
    {"switch", 1, 0, 0, 1.25, 0.01}, {"mixtral", 2, 0, 0, 0, 0.01},
};

static sk_trial trial_of(const kind *k, const char *layout)
{
    sk_trial t = {.model = sk_model_find(k->model), .layout = layout, .batch = 6, .seq = 8};
    t.hyper = t.model->usual;
    t.hyper.hidden_size = 16;
    t.hyper.num_hidden_layers = 2;
    t.hyper.num_attention_heads = t.hyper.num_key_value_heads = 2;
    t.hyper.intermediate_size = 20;
    t.hyper.vocab_size = 23;
    t.hyper.max_position_embeddings = 8;
    t.hyper.num_local_experts = 4;
    t.hyper.num_experts_per_tok = k->choices;
    t.hyper.n_shared_experts = k->shared;
    t.hyper.expert_groups = k->groups;
    t.hyper.capacity_factor = k->factor;
    t.hyper.router_aux_loss_coef = 0.5; /* large enough to be seen in the norm */
    t.hyper.router_bias_update_speed = k->speed;
    t.steps = 4;
    t.clip = 0.5;
    return t;
}

static bool near(double x, double y, double slack) { return fabs(x - y) <= slack * (1 + fabs(y)); }

static int compare(const kind *k, const sk_trial *one, const char *layout)
{
    sk_trial many = trial_of(k, layout);
    bool ok = true;
    if (sk_trial_run(&many)) {
        printf("%s, %s: %s\n", k->model, layout, sk_error());
        return 1;
    }
    for (int s = 0; s < one->steps && ok; s++) {
        ok = near(many.loss[s], one->loss[s], 1e-5) && near(many.norm[s], one->norm[s], 1e-4);
        if (!ok)
            printf("%s, %s, step %d: loss %.9g, norm %.9g; on one rank %.9g, %.9g\n", k->model,
                   layout, s, many.loss[s], many.norm[s], one->loss[s], one->norm[s]);
    }
    return !ok;
}

int main(void)
{
    int bad = 0, n = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        sk_trial one = trial_of(&kinds[i], "dp=1");
        if (sk_trial_run(&one) || !(one.norm[3] > 0)) {
            bad++;
            printf("%s on one rank: norm %g %s\n", kinds[i].model, one.norm[3], sk_error());
            continue;
        }
        for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++, n++)
            bad += compare(&kinds[i], &one, layouts[l]);
    }
    printf("moe: %d layouts, %d bad\n", n, bad);
    return bad != 0;
}
