/* batch_law.c - fits find the critical batch that points were made with, and say where there is
 * none. */
#include "plan/batch_law.h"
#include "base/rng.h"
#include "lib/check.h"

#include <math.h>
#include <string.h>

enum { MOST = 16, SETS = 200, DRAWS = 400 };

static sk_batch_point p[MOST];
static sk_arena a;

static bool near(double got, double want, double part)
{
    if (fabs(got - want) <= part * fabs(want)) return true;
    printf("%.9g is not %.9g within %g\n", got, want, part);
    return false;
}

/* Batches of 4, 8, 16 ..., with relative noise. */
static void make(double least, double crit, int n, double noise, uint64_t seed)
{
    for (int i = 0; i < n; i++) {
        p[i].batch = 4 * pow(2, i);
        p[i].steps = least * (1 + crit / p[i].batch) *
                     exp(noise * (double)sk_rng_normal(seed, 3, (uint64_t)i));
    }
}

static void exact(void)
{
    static const double crits[] = {3, 40, 700};
    for (int i = 0; i < 3; i++) {
        sk_batch_law l;
        make(120, crits[i], 6, 0, 1);
        check(!sk_batch_fit(p, 6, &l));
        check(near(l.steps, 120, 1e-6) && near(l.crit, crits[i], 1e-6));
        check(near(l.samples, 120 * crits[i], 1e-6) && l.spread < 1e-6);
        check(near(sk_batch_steps(&l, crits[i]), 240, 1e-6)); /* twice the least */
        sk_batch_intervals(&a, p, 6, DRAWS, 1, &l);
        check(near(l.crit_low, crits[i], 1e-4) && near(l.crit_high, crits[i], 1e-4));
    }
}

/* The interval holds the truth in most noisy sets, and narrows as the noise does. */
static void noisy(void)
{
    double width[2] = {0};
    for (int k = 0; k < 2; k++) {
        int held = 0;
        for (uint64_t seed = 1; seed <= SETS; seed++) {
            sk_batch_law l;
            make(120, 40, 7, k ? 0.01 : 0.05, seed);
            check(!sk_batch_fit(p, 7, &l));
            sk_batch_intervals(&a, p, 7, DRAWS, seed, &l);
            check(l.crit_low <= l.crit_high && l.steps_low <= l.steps_high);
            held += l.crit_low <= 40 && 40 <= l.crit_high;
            width[k] += (l.crit_high - l.crit_low) / SETS;
        }
        printf("noise of %g: %d of %d intervals hold it, mean width %.3g\n", k ? 0.01 : 0.05, held,
               SETS, width[k]);
        check(held >= SETS * 8 / 10 && held < SETS);
    }
    check(width[1] < width[0] / 3);
}

/* The same points have the same intervals; another seed has others. */
static void steady(void)
{
    sk_batch_law x, y, z;
    make(120, 40, 5, 0.05, 9);
    check(!sk_batch_fit(p, 5, &x));
    y = z = x;
    sk_batch_intervals(&a, p, 5, DRAWS, 1, &x);
    sk_batch_intervals(&a, p, 5, DRAWS, 1, &y);
    sk_batch_intervals(&a, p, 5, DRAWS, 2, &z);
    check(x.crit_low == y.crit_low && x.crit_high == y.crit_high && x.crit_low != z.crit_low);
}

/* Batches on one side of the critical one. */
static void one_sided(void)
{
    sk_batch_law l;
    make(120, 40, 5, 0, 1);
    for (int i = 0; i < 5; i++) p[i].steps = 1e4 / p[i].batch; /* perfect scaling */
    check(!sk_batch_fit(p, 5, &l) && (isinf(l.crit) || l.crit > 1e6));
    for (int i = 0; i < 5; i++) p[i].steps = 300; /* none */
    check(!sk_batch_fit(p, 5, &l) && l.crit < 1e-6 && near(l.steps, 300, 1e-6));
    for (int i = 0; i < 5; i++) p[i].steps = 300 + i; /* larger batches need more */
    check(!sk_batch_fit(p, 5, &l) && l.crit == 0 && l.samples == 0);
}

static void refused(void)
{
    sk_batch_law l;
    make(120, 40, 4, 0, 1);
    check(sk_batch_fit(p, 2, &l) == SK_EDATA && strstr(sk_error_line(), "3 are needed"));
    check(sk_batch_fit(p, 0, &l) == SK_EDATA);
    p[1].steps = NAN;
    check(sk_batch_fit(p, 4, &l) == SK_EDATA && strstr(sk_error_line(), "above 0"));
    p[1].steps = 0;
    check(sk_batch_fit(p, 4, &l) == SK_EDATA);
    for (int i = 0; i < 4; i++) p[i] = (sk_batch_point){8, 100 + i};
    check(sk_batch_fit(p, 4, &l) == SK_EDATA && strstr(sk_error_line(), "all batches are of 8"));
}

int main(void)
{
    exact();
    noisy();
    steady();
    one_sided();
    refused();
    sk_arena_end(&a);
    printf("batch_law: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
