/* Range tests on a curve that is known: gradient descent on a quadratic is stable below 2 /
 * curvature, and falls fastest at 1 / curvature. */
#include "base/rng.h"
#include "train/range_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int checks, bad;

static void holds(const char *what, double got, bool ok)
{
    checks++;
    if (ok) return;
    bad++;
    printf("%s: %g\n", what, got);
}

/* loss = curvature x^2 / 2 + 1 and some noise, as a range test sees it. */
static void descend(sk_range_curve *c, const sk_range *r, double curvature, double noise)
{
    double x = sqrt(20 / curvature);
    *c = (sk_range_curve){0};
    for (int s = 0; s < r->steps; s++) {
        double lr = sk_range_rate(r, s), loss = curvature * x * x / 2 + 1;
        loss += noise * (sk_rng_uniform(1, 7, (uint64_t)s) - 0.5);
        c->last = c->v[c->n++] = (sk_range_point){lr, loss};
        if (s && loss > r->factor * c->v[0].loss) {
            c->diverged = true;
            return;
        }
        x -= lr * curvature * x;
    }
}

static void quadratics(void)
{
    static sk_range_curve c;
    for (int e = -3; e <= 3; e++)
        for (int k = 0; k < 3; k++) {
            double curvature = pow(10, e), noise = 0.3 * k;
            sk_range r = {.from = 1e-4 / curvature,
                          .to = 100 / curvature,
                          .steps = 50 + 75 * k,
                          .factor = 1.5};
            sk_arena a = {0};
            descend(&c, &r, curvature, noise);
            sk_range_advice d = sk_range_read(&a, &c);
            holds("it diverges", c.n, c.diverged && c.n < r.steps);
            holds("the loss falls", d.noise, d.falls);
            holds("the suggestion is stable", d.lr * curvature, d.lr * curvature < 2);
            holds("and learns", d.lr * curvature, d.lr * curvature > 1e-3);
            double low = c.v[d.lowest].lr * curvature, steep = c.v[d.steepest].lr * curvature;
            holds("lowest", low, low > 0.03 && low < 3);
            holds("steepest", steep, steep > 3e-3 && steep <= low);
            holds("near the fastest rate", d.lr * curvature,
                  d.lr * curvature > 0.1 && d.lr * curvature < 2);
            holds("the edge is behind the lowest", d.edge, d.edge >= d.lowest);
            holds("noise", d.noise, d.noise < 0.5 + noise);
            sk_arena_end(&a);
        }
}

/* Nothing to be learnt from: noise alone, a loss that only rises, a handful of points. */
static void silent(void)
{
    static sk_range_curve c;
    sk_arena a = {0};
    c = (sk_range_curve){0};
    for (int i = 0; i < 100; i++)
        c.v[c.n++] =
            (sk_range_point){pow(10, -0.05 * (100 - i)), 5 + sk_rng_uniform(2, 2, (uint64_t)i)};
    sk_range_advice d = sk_range_read(&a, &c);
    holds("noise alone gives no advice", d.lr, !d.falls && d.lr == 0);
    for (int i = 0; i < 100; i++) c.v[i].loss = 5 + 0.01 * i;
    d = sk_range_read(&a, &c);
    holds("a loss that rises gives no advice", d.lr, !d.falls);
    c.n = 1;
    d = sk_range_read(&a, &c);
    holds("one point gives no advice", d.lr, !d.falls && d.lowest == 0);
    c.n = 0;
    d = sk_range_read(&a, &c);
    holds("no point gives no advice", d.lr, !d.falls);
    sk_arena_end(&a);
}

/* A fast fall at tiny rates, which says little, before the one that counts: points 0 to 20 fall
 * from 6 to 4, then to 3 at 60, then the loss rises. */
static void two_falls(void)
{
    static sk_range_curve c;
    sk_arena a = {0};
    c = (sk_range_curve){0};
    for (int i = 0; i < 100; i++) {
        double loss = i < 20 ? 6 - 0.1 * i : i < 60 ? 4 - 0.025 * (i - 20) : 3 + 0.05 * (i - 60);
        c.v[c.n++] = (sk_range_point){pow(10, 0.05 * (i - 100)), loss};
    }
    sk_range_advice d = sk_range_read(&a, &c);
    holds("the first fall is the steepest", d.steepest, d.steepest < 20);
    holds("lowest where the loss turns", d.lowest, abs(d.lowest - 60) <= 2);
    holds("nine tenths of the fall", d.settled, abs(d.settled - 48) <= 2); /* 3.3 of 6 to 3 */
    holds("two thirds of the settled rate, at most a third of the lowest's", d.lr,
          d.lr == fmin(c.v[d.settled].lr / 1.5, c.v[d.lowest].lr / 3));
    holds("the edge", d.edge, abs(d.edge - 66) <= 2);
    c.diverged = true;
    d = sk_range_read(&a, &c);
    double limit = c.v[d.edge].lr / 3;
    holds("diverged: the middle of settled and limit", d.lr,
          fabs(d.lr / fmin(limit, sqrt(c.v[d.settled].lr * limit)) - 1) < 1e-12);
    sk_arena_end(&a);
}

/* A flat valley whose lowest point is noise: two curves that differ in it alone get one rate. */
static void valleys(void)
{
    static sk_range_curve c;
    sk_arena a = {0};
    double lr[2];
    for (int k = 0; k < 2; k++) {
        c = (sk_range_curve){0};
        for (int i = 0; i < 100; i++) {
            double loss = i < 50 ? 6 - 0.06 * i : 3;
            if (abs(i - (k ? 90 : 55)) < 8) loss -= 0.02;
            c.v[c.n++] = (sk_range_point){pow(10, 0.05 * (i - 100)), loss};
        }
        sk_range_advice d = sk_range_read(&a, &c);
        holds("the lowest point", d.lowest, k ? d.lowest > 80 : d.lowest < 65);
        lr[k] = d.lr;
    }
    holds("the lowest point of a valley does not count", lr[1] / lr[0], lr[1] == lr[0]);
    sk_arena_end(&a);
}

/* A line is smoothed to itself, at its ends too: the fit does not lag. */
static void straight(void)
{
    static sk_range_curve c;
    sk_arena a = {0};
    c = (sk_range_curve){0};
    for (int i = 0; i < 60; i++) c.v[c.n++] = (sk_range_point){exp(0.1 * i), 9 - 0.1 * i};
    sk_range_advice d = sk_range_read(&a, &c);
    for (int i = 0; i < 60; i++)
        holds("smoothed", d.smooth[i] - c.v[i].loss, fabs(d.smooth[i] - c.v[i].loss) < 1e-9);
    holds("lowest at the end", d.lowest, d.lowest == 59 && d.falls);
    sk_arena_end(&a);
}

static void rates(void)
{
    sk_range r = {.from = 1e-5, .to = 0.1, .steps = 41, .factor = 2};
    holds("the first rate", sk_range_rate(&r, 0), sk_range_rate(&r, 0) == 1e-5);
    holds("the last rate", sk_range_rate(&r, 40), sk_range_rate(&r, 40) == 0.1);
    holds("half way", sk_range_rate(&r, 20), fabs(sk_range_rate(&r, 20) - 1e-3) < 1e-15);
}

int main(void)
{
    rates();
    quadratics();
    silent();
    two_falls();
    valleys();
    straight();
    printf("%d checks, %d wrong\n", checks, bad);
    return bad ? 1 : 0;
}
