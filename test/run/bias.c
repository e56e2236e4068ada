/* bias.c - bias updates of a router: by the load of its experts, and by nothing else.
 *
 * After every step each number of a bias has gone by the speed against the sign of load - mean;
 * loads become even where they were not; a bias that is too small to change a choice changes no bit
 * of losses, norms and other weights, so loads are in no norm and scale nothing; and on every
 * layout the same happens as on one rank. */
#include "lib/check.h"
#include "lib/ranks.h"

#include <math.h>

enum { EXPERTS = 8, BATCH = 24, SEQ = 16, STEPS = 32, LAYERS = 2 };

static struct {
    double uneven[STEPS];       /* the largest load of an expert over the mean */
    real bias[LAYERS][EXPERTS]; /* as it should be */
    int n_seen, n_wrong;
} seen;

static real sign(real x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

/* On one rank, where gradients and biases are whole. */
static void look(const sk_trial *t, const sk_run *run, const sk_program *p, int step)
{
    double all = (double)(BATCH * SEQ * t->hyper.num_experts_per_tok);
    int layer = 0;
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        if (q->tensor->bias_update == 0) continue;
        const real *grad = sk_run_data(run, q->grad), *bias = sk_run_data(run, q->stored);
        double sum = 0;
        for (int e = 0; e < EXPERTS; e++) {
            real *want = &seen.bias[layer][e];
            double load = ((double)grad[e] + all) / EXPERTS;
            *want -= (real)t->hyper.router_bias_update_speed * sign(grad[e]);
            seen.n_wrong += *want != bias[e] || load != floor(load) || load < 0;
            seen.uneven[step] = fmax(seen.uneven[step], load / all * EXPERTS);
            sum += load;
        }
        seen.n_wrong += sum != all || q->n_state != 0;
        seen.n_seen++, layer++;
    }
}

static sk_trial trial_of(const char *model, const char *layout, double speed)
{
    sk_trial t = {.model = sk_model_find(model), .layout = layout, .batch = BATCH, .seq = SEQ};
    t.hyper = t.model->usual;
    t.hyper.hidden_size = 16;
    t.hyper.num_hidden_layers = LAYERS;
    t.hyper.num_attention_heads = t.hyper.num_key_value_heads = 2;
    t.hyper.intermediate_size = 20;
    t.hyper.vocab_size = 23;
    t.hyper.max_position_embeddings = SEQ;
    t.hyper.initializer_range = 0.5; /* so that routers have favourites */
    t.hyper.num_local_experts = EXPERTS;
    t.hyper.router_aux_loss_coef = 0;
    t.hyper.router_bias_update_speed = speed;
    t.steps = STEPS;
    t.clip = 0.5;
    return t;
}

static void must_run(sk_trial *t)
{
    sk_status st = sk_trial_run(t);
    if (st) printf("%s, %s: %s\n", t->model->name, t->layout, sk_error());
    check(!st);
}

static double mean_of(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] / n;
    return sum;
}

/* How uneven loads are in the first steps and in the last ones. */
static void watch(const char *model, double speed, double *first, double *last)
{
    sk_trial t = trial_of(model, "dp=1", speed);
    memset(&seen, 0, sizeof seen);
    t.after = look;
    must_run(&t);
    check(seen.n_seen == LAYERS * STEPS && !seen.n_wrong);
    *first = seen.uneven[0];
    *last = mean_of(seen.uneven + STEPS - 8, 8);
}

static void becomes_even(const char *model, double speed)
{
    double first, last, still_first, still_last;
    watch(model, speed, &first, &last);
    watch(model, 1e-9, &still_first, &still_last); /* moves, and moves nobody */
    printf("%s: the largest load over the mean was %.2f, is %.2f; unmoved %.2f\n", model, first,
           last, still_last);
    check(first == still_first && first > 1.5);
    check(last - 1 < 0.5 * (first - 1) && last - 1 < 0.5 * (still_last - 1));
    check(still_last >= first);
}

/* What the command tells of it: choices that found no room. */
static double drops(double speed)
{
    sk_trial t = trial_of("switch", "dp=1", speed);
    t.hyper.capacity_factor = 1;
    must_run(&t);
    return t.drops;
}

static void fewer_drops(void)
{
    double none = drops(0), tiny = drops(1e-12), some = drops(0.02);
    printf("switch: %g drops without a bias, %g with one\n", none, some);
    check(none == tiny && some < 0.8 * none);
}

/* No bias, and one that overrules nobody. */
static void harmless(const char *model, const char *optim, const char *layout)
{
    sk_trial none = trial_of(model, layout, 0), tiny = trial_of(model, layout, 1e-12);
    none.optim = tiny.optim = optim;
    none.steps = tiny.steps = 8;
    must_run(&none);
    must_run(&tiny);
    for (int s = 0; s < none.steps; s++)
        check(none.loss[s] == tiny.loss[s] && none.norm[s] == tiny.norm[s]);
    check(none.valid == tiny.valid && tiny.elements == none.elements + LAYERS * EXPERTS);
}

static void on_layout(const char *model, const char *optim, const char *layout)
{
    char text[200];
    snprintf(text, sizeof text, "%s; canonical order", layout);
    sk_trial one = trial_of(model, "dp=1; canonical order", 0.02),
             many = trial_of(model, text, 0.02);
    one.optim = many.optim = optim;
    one.steps = many.steps = 8;
    must_run(&one);
    must_run(&many);
    bool same = one.digest == many.digest && one.elements == many.elements;
    for (int s = 0; s < one.steps; s++) same &= one.loss[s] == many.loss[s];
    if (!same) printf("%s, %s, %s: other bits than on one rank\n", model, optim, layout);
    check(same);
}

int main(void)
{
    static const char *const layouts[] = {
        "dp=2",         "dp=3 micro=2",
        "ep=2",         "dp=2 ep=2 zero=1",
        "pp=2 micro=3", "tp=2",
        "cp=2",         "dp=2 zero=2",
        "dp=2 zero=3",  "dp=6 zero=3", /* more ranks than experts */
        "replica dp=2", "pp=2 dp=2 zero=3 micro=3"};
    static const char *const models[] = {"switch", "mixtral"};
    static const char *const optims[] = {"adamw", "lamb", "sgd"};
    int n = 0;
    for (int m = 0; m < 2; m++) {
        becomes_even(models[m], m ? 0.01 : 0.02);
        for (int o = 0; o < 3; o++) harmless(models[m], optims[o], "dp=1");
        harmless(models[m], "adamw", "dp=2 zero=3");
        harmless(models[m], "lamb", "dp=2 zero=1; canonical order");
    }
    fewer_drops();
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++, n++)
        on_layout(models[l % 2], optims[l % 3], layouts[l]);
    printf("bias: %d layouts, %d checks, %d bad\n", n, checks, bad);
    return bad != 0;
}
