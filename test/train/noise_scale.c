/* noise_scale.c - the estimate of train.noise on gradients whose mean and covariance are known. */
#include "train/noise_scale.h"
#include "base/rng.h"
#include "lib/check.h"

#include <math.h>
#include <stdio.h>

enum { DIMS = 40, STEPS = 4000, BATCH = 12 };

/* A linear regression y = w x + e with weights at 0: of one sample the gradient is G + noise, and
 * the noise of dim d has this deviation. */
static double mean_of(int d) { return 0.1 * (d % 5); }
static double deviation_of(int d) { return 0.2 + 0.05 * d; }

static double uniform(uint64_t step, uint64_t at)
{
    return ((double)(sk_rng(5, step, at).a >> 11) + 0.5) * 0x1p-53;
}

static double normal(uint64_t step, uint64_t at)
{
    return sqrt(-2 * log(uniform(step, 2 * at))) * cos(2 * M_PI * uniform(step, 2 * at + 1));
}

/* One step with small batches of these sizes, the first samples of the batch; its squared norms. */
static sk_step_out one_step(uint64_t step, const int *sizes, int n)
{
    double all = 0, small = 0;
    for (int d = 0; d < DIMS; d++) {
        double sum = 0, part = 0;
        for (int i = 0, k = 0, left = sizes[0]; i < BATCH; i++) {
            double x = mean_of(d) + deviation_of(d) * normal(step, (uint64_t)(d * BATCH + i));
            sum += x, part += x;
            if (k == n || --left) continue;
            small += part * part / BATCH / BATCH;
            part = 0;
            left = ++k < n ? sizes[k] : 0;
        }
        all += sum * sum / BATCH / BATCH;
    }
    return (sk_step_out){.grad_norm = sqrt(all), .small = small, .finite = true};
}

/* Means over many steps are those of the closed form; tolerance: four standard errors or so. */
static void known(const char *what, const int *sizes, int n)
{
    sk_noise plan = {0};
    sk_noise_scale x = {0};
    double trace = 0, square = 0, seen = 0, ratio = 0;
    for (int d = 0; d < DIMS; d++)
        trace += deviation_of(d) * deviation_of(d), square += mean_of(d) * mean_of(d);
    for (int k = 0; k < n; k++) {
        plan.part += sizes[k] / (double)BATCH;
        plan.square += sizes[k] * sizes[k] / (double)(BATCH * BATCH);
    }
    for (int s = 0; s < STEPS; s++) {
        sk_step_out out = one_step((uint64_t)s, sizes, n);
        sk_noise_step(&x, &plan, BATCH, &out);
        seen += x.now / STEPS;
        ratio += log(sk_noise_ratio(&x)) / STEPS;
    }
    printf("%-28s tr(Sigma) %.4f, true %.4f; noise scale %.2f, true %.2f\n", what, seen, trace,
           exp(ratio), trace / square);
    check(fabs(seen - trace) < 0.02 * trace);
    check(fabs(exp(ratio) - trace / square) < 0.15 * trace / square);
}

/* Steps that are not finite, and averages in which the mean gradient is lost, say nothing. */
static void nothing(void)
{
    sk_noise plan = {1, 0.5};
    sk_noise_scale x = {0};
    check(isnan(sk_noise_ratio(&x)));
    sk_noise_step(&x, &plan, 4, &(sk_step_out){.grad_norm = NAN, .small = 1});
    check(isnan(x.now) && x.weight == 0 && isnan(sk_noise_ratio(&x)));
    sk_noise_step(&x, &plan, 4, &(sk_step_out){.grad_norm = 1, .small = 1, .finite = true});
    check(x.now == 4 && isnan(sk_noise_ratio(&x))); /* |G|^2 is 0 */
    sk_noise_step(&x, &plan, 4, &(sk_step_out){.grad_norm = 1, .small = 0.5, .finite = true});
    check(x.now == 0 && sk_noise_ratio(&x) > 0); /* no noise in this one */
}

/* AdaScale: 1 without noise, all of the scale without signal, and half of the way between where
 * both are equal at the smaller batch: (1 + 1) / (1 / 8 + 1). */
static void gains(void)
{
    sk_noise_scale unknown = {0}, clear = {0, 2, 1, 0}, lost = {3, -0.1, 1, 0};
    sk_noise_scale even = {.variance = 4, .square = 2, .weight = 1}, odd = {-1, 2, 1, 0};
    check(sk_noise_gain(&unknown, 16, 8) == 1 && sk_noise_gain(&clear, 16, 8) == 1);
    check(sk_noise_gain(&lost, 16, 8) == 8 && sk_noise_gain(&odd, 16, 8) == 1);
    check(fabs(sk_noise_gain(&even, 16, 8) - 2 / 1.125) < 1e-12);
    for (double v = 1e-3; v < 1e4; v *= 2) {
        sk_noise_scale x = {.variance = v, .square = 1, .weight = 1};
        double g = sk_noise_gain(&x, 16, 8);
        check(g > 1 && g < 8 && fabs(g - (v / 2 + 1) / (v / 16 + 1)) < 1e-12 * g);
    }
}

int main(void)
{
    known("four of three", (int[]){3, 3, 3, 3}, 4);
    known("twelve of one", (int[]){1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 12);
    known("two, four and six", (int[]){2, 4, 6}, 3);
    known("a first micro-batch of three", (int[]){3}, 1);
    nothing();
    gains();
    printf("noise_scale: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
