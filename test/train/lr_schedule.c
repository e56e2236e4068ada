/* Schedules of the learning rate: every part for what holds of all, each against its closed form,
 * and the first three to the bit against the formula they had before they were parts. */
#include "base/hash.h"
#include "base/rng.h"
#include "train/lr_schedule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int checks, bad;
static const double pi = 3.14159265358979323846;

static void near(const char *what, double got, double want)
{
    checks++;
    if (fabs(got - want) <= 1e-12 * (1 + fabs(want))) return;
    bad++;
    printf("%s is %.17g, expected %.17g\n", what, got, want);
}

static void holds(const char *what, const char *part, bool ok)
{
    checks++;
    if (ok) return;
    bad++;
    printf("%s: %s\n", part, what);
}

/* A schedule with its defaults: peak 1, end 0.1, 10 of 110 steps are warmup. */
static sk_lr_schedule usual(const char *name)
{
    sk_lr_schedule r = {.lr = 1, .min_lr = 0.1, .warmup = 10, .steps = 110};
    if (sk_lr_find(name, &r.part)) {
        bad++, printf("%s\n", sk_error());
        sk_lr_find("constant", &r.part);
    }
    for (int k = 0; r.part->knobs[k].name; k++) r.knob[k] = r.part->knobs[k].usual;
    return r;
}

static void with(sk_lr_schedule *r, const char *knob, double value)
{
    for (int k = 0; r->part->knobs[k].name; k++)
        if (!strcmp(r->part->knobs[k].name, knob)) {
            r->knob[k] = value;
            return;
        }
    bad++, printf("%s has no number %s\n", r->part->name, knob);
}

/* --- the formula of the first three --- */

static double before(const char *kind, const sk_lr_schedule *r, int64_t step)
{
    if (step < r->warmup) return r->lr * (double)(step + 1) / (double)r->warmup;
    if (!strcmp(kind, "constant") || !r->steps) return r->lr;
    if (step >= r->steps) return r->min_lr;
    double way = (double)(step - r->warmup) / (double)(r->steps - r->warmup);
    double left = !strcmp(kind, "linear") ? 1 - way : 0.5 * (1 + cos(pi * way));
    return r->min_lr + (r->lr - r->min_lr) * left;
}

static void same_bits(void)
{
    static const char *const kinds[] = {"constant", "cosine", "linear"};
    int wrong = 0;
    for (uint64_t i = 0; i < 30000; i++) {
        sk_lr_schedule r = usual(kinds[i % 3]);
        r.lr = sk_rng_uniform(1, 1, i), r.min_lr = r.lr * sk_rng_uniform(1, 2, i);
        r.steps = (int64_t)(300 * sk_rng_uniform(1, 3, i));
        r.warmup = (int64_t)(50 * sk_rng_uniform(1, 4, i));
        int64_t step = (int64_t)(400 * sk_rng_uniform(1, 5, i));
        double got = sk_lr_at(&r, step), want = before(kinds[i % 3], &r, step);
        wrong += memcmp(&got, &want, sizeof got) != 0;
    }
    near("rates of constant, cosine and linear that have other bits than before", wrong, 0);
}

/* --- closed forms --- */

static void first_three(void)
{
    sk_lr_schedule r = usual("cosine");
    near("first step of the warmup", sk_lr_at(&r, 0), 0.1);
    near("last step of the warmup", sk_lr_at(&r, 9), 1);
    near("cosine begins at the peak", sk_lr_at(&r, 10), 1);
    near("cosine at half way", sk_lr_at(&r, 60), 0.55);
    near("cosine at a quarter", sk_lr_at(&r, 35), 0.1 + 0.9 * 0.5 * (1 + sqrt(0.5)));
    near("cosine at the end", sk_lr_at(&r, 110), 0.1);
    near("cosine after the end", sk_lr_at(&r, 1000), 0.1);
    near("cosine leaves the momentum", sk_lr_momentum(&r, 60), 0);
    r.steps = 0;
    near("steps not known yet", sk_lr_at(&r, 50), 1);
    r.warmup = 20, r.steps = 10;
    near("a warmup longer than the training", sk_lr_at(&r, 9), 0.5);
    r = usual("linear");
    near("linear at half way", sk_lr_at(&r, 60), 0.55);
    near("linear one step before the end", sk_lr_at(&r, 109), 0.1 + 0.9 * 0.01);
    r = usual("constant");
    near("constant", sk_lr_at(&r, 1000), 1);
}

static void powers(void)
{
    sk_lr_schedule r = usual("polynomial");
    near("polynomial at half way", sk_lr_at(&r, 60), 0.1 + 0.9 * 0.25);
    with(&r, "schedule_power", 1);
    near("power 1 is a line", sk_lr_at(&r, 35), 0.1 + 0.9 * 0.75);
    near("polynomial at the end", sk_lr_at(&r, 110), 0.1);
    r = usual("inverse_sqrt");
    r.min_lr = 0;
    near("inverse root behind the warmup", sk_lr_at(&r, 10), 1);
    near("inverse root of four warmups", sk_lr_at(&r, 40), 0.5);
    near("it goes on behind the end", sk_lr_at(&r, 1000), 0.1);
    r.steps = 0;
    near("and needs no number of steps", sk_lr_at(&r, 40), 0.5);
    with(&r, "schedule_timescale", 100);
    near("a timescale of its own", sk_lr_at(&r, 110), sqrt(0.5));
    r.warmup = 0, r.min_lr = 0.4;
    near("not below the end", sk_lr_at(&r, 900), 0.4);
}

static void drops(void)
{
    sk_lr_schedule r = usual("step");
    r.min_lr = 0, r.warmup = 0, r.steps = 90;
    near("step: the first third", sk_lr_at(&r, 29), 1);
    near("step: the second third", sk_lr_at(&r, 30), 0.1);
    near("step: the last third", sk_lr_at(&r, 89), 0.01);
    r.steps = 0;
    near("step: steps not known yet", sk_lr_at(&r, 89), 1);
    with(&r, "schedule_every", 20);
    with(&r, "schedule_factor", 0.5);
    near("step: every 20", sk_lr_at(&r, 59), 0.25);
    with(&r, "milestone0", 50);
    with(&r, "milestone1", 60);
    near("step: before the first milestone", sk_lr_at(&r, 49), 1);
    near("step: between two", sk_lr_at(&r, 50), 0.5);
    near("step: behind the second", sk_lr_at(&r, 1000), 0.25);
    r.min_lr = 0.3;
    near("step: not below the end", sk_lr_at(&r, 1000), 0.3);
}

static void stable_decay(void)
{
    sk_lr_schedule r = usual("wsd");
    r.steps = 100;
    near("wsd: stable", sk_lr_at(&r, 79), 1);
    near("wsd: the decay begins", sk_lr_at(&r, 80), 1);
    near("wsd: one minus the root", sk_lr_at(&r, 85), 0.1 + 0.9 * 0.5);
    near("wsd: the end", sk_lr_at(&r, 100), 0.1);
    with(&r, "schedule_shape", 0);
    near("wsd: linear", sk_lr_at(&r, 85), 0.1 + 0.9 * 0.75);
    with(&r, "schedule_shape", 1);
    near("wsd: cosine", sk_lr_at(&r, 90), 0.55);
    with(&r, "schedule_shape", 3);
    near("wsd: exponential", sk_lr_at(&r, 90), 0.1 + 0.9 * (sqrt(2) - 1));
    with(&r, "schedule_decay", 1);
    with(&r, "schedule_shape", 0);
    near("wsd: all behind the warmup", sk_lr_at(&r, 55), 0.55);
    with(&r, "schedule_decay", 0);
    near("wsd: no decay", sk_lr_at(&r, 99), 1);
    r.steps = 0;
    near("wsd: steps not known yet", sk_lr_at(&r, 99), 1);
}

static void cycles(void)
{
    sk_lr_schedule r = usual("restarts");
    r.min_lr = 0, r.warmup = 0, r.steps = 70; /* 10, 20 and 40 */
    near("restarts: the first half", sk_lr_at(&r, 5), 0.5);
    near("restarts: a restart", sk_lr_at(&r, 10), 1);
    near("restarts: half of the second", sk_lr_at(&r, 20), 0.5);
    near("restarts: half of the third", sk_lr_at(&r, 50), 0.5);
    with(&r, "schedule_period", 7);
    with(&r, "schedule_mult", 1);
    near("restarts: equal periods", sk_lr_at(&r, 7 * 1000000007LL), 1);
    r.steps = 0;
    near("restarts: a period needs no steps", sk_lr_at(&r, 15), 0.5 * (1 + cos(pi / 7)));
    with(&r, "schedule_period", 0);
    near("restarts: steps not known yet", sk_lr_at(&r, 15), 1);
}

/* torch.optim.lr_scheduler.OneCycleLR(max_lr=1, total_steps=n, final_div_factor=inf): two phases
 * that end at pct_start * n - 1 and n - 1. */
static double torch_onecycle(double n, double s, double first, double peak, double last)
{
    double up = 0.3 * n - 1, t = s <= up ? s / up : (s - up) / (n - 1 - up);
    double from = s <= up ? first : peak, to = s <= up ? peak : last;
    return to + (from - to) / 2 * (1 + cos(pi * t));
}

static void one_cycle(void)
{
    sk_lr_schedule r = usual("onecycle"); /* the warmup of 10 does not apply */
    r.min_lr = 0;
    for (int n = 2; n < 200; n += 7)
        for (int s = 0; s < n; s++) {
            r.steps = n;
            if (0.3 * n <= 1) continue; /* torch divides by 0 */
            near("onecycle", sk_lr_at(&r, s), torch_onecycle(n, s, 0.04, 1, 0));
            near("its momentum", sk_lr_momentum(&r, s), torch_onecycle(n, s, 0.95, 0.85, 0.95));
        }
    r.steps = 0;
    near("onecycle: steps not known yet", sk_lr_at(&r, 9), 0.04);
    near("its momentum then", sk_lr_momentum(&r, 9), 0.95);
    r.steps = 10;
    with(&r, "low", 0);
    near("the optimizer's own momentum", sk_lr_momentum(&r, 5), 0);
    with(&r, "schedule_start", 1);
    near("onecycle: only up", sk_lr_at(&r, 9), 1);
    with(&r, "schedule_start", 0);
    near("onecycle: only down", sk_lr_at(&r, 0), 1);
    r.steps = 1;
    near("onecycle: one step", sk_lr_at(&r, 0), 1);
}

/* --- every part --- */

static void declares(const sk_lr *p)
{
    holds("has no doc", p->name, p->doc && *p->doc);
    for (const sk_knob *k = p->knobs; k->name; k++) {
        holds("a key that does not begin with schedule_", p->name,
              !strncmp(sk_knob_key(k), "schedule_", 9));
        holds("a default out of range", p->name, k->usual >= k->least && k->usual <= k->most);
        holds("a knob with a role", p->name, k->role == SK_KNOB_PLAIN);
    }
}

static double draw_knob(const sk_knob *k, uint64_t i)
{
    double most = k->most > 1000 ? 1000 : k->most, u = sk_rng_uniform(3, sk_hash_text(k->name), i);
    double x = i % 3   ? k->usual
               : i % 4 ? k->least + (most - k->least) * u
               : i % 8 ? k->least
                       : k->most;
    return k->whole ? floor(x) : x;
}

static void all_parts(void)
{
    for (const sk_lr *const *p = sk_lr_parts; *p; p++) {
        declares(*p);
        for (uint64_t i = 0; i < 4000; i++) {
            sk_lr_schedule r = {.part = *p, .lr = 0.5, .min_lr = i % 2 ? 0 : 0.01};
            for (int k = 0; (*p)->knobs[k].name; k++)
                r.knob[k] = draw_knob(&(*p)->knobs[k], i + (uint64_t)k);
            r.warmup = i % 5 ? 0 : (int64_t)(40 * sk_rng_uniform(2, 1, i));
            r.steps = i % 7 ? 1 + (int64_t)(200 * sk_rng_uniform(2, 2, i)) : 0;
            int64_t step = i % 11 ? (int64_t)(250 * sk_rng_uniform(2, 3, i)) : 999999999999999;
            double rate = sk_lr_at(&r, step), again = sk_lr_at(&r, step);
            double m = sk_lr_momentum(&r, step);
            holds("a rate out of range", (*p)->name, rate >= 0 && rate <= 0.5 * (1 + 1e-15));
            holds("another rate when asked again", (*p)->name, !memcmp(&rate, &again, sizeof rate));
            holds("a momentum out of range", (*p)->name, m >= 0 && m < 1);
        }
    }
}

int main(void)
{
    const sk_lr *k = NULL;
    same_bits();
    first_three();
    powers();
    drops();
    stable_decay();
    cycles();
    one_cycle();
    all_parts();
    holds("cosine is not found", "sk_lr_find",
          !sk_lr_find("cosine", &k) && !strcmp(k->name, "cosine"));
    holds("a typo is told so", "sk_lr_find",
          sk_lr_find("cosin", &k) == SK_ECONF && strstr(sk_error(), "'cosine'"));
    printf("%d checks, %d wrong\n", checks, bad);
    return bad ? 1 : 0;
}
