/* batch_law.c - see batch_law.h. */
#include "plan/batch_law.h"
#include "base/rng.h"
#include "plan/coll_calibration.h"

#include <math.h>
#include <stdlib.h>

enum { MOST = 4096 };

double sk_batch_steps(const sk_batch_law *l, double batch) { return l->steps + l->samples / batch; }

static double spread_of(const sk_batch_law *l, const sk_batch_point *p, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double off = sk_batch_steps(l, p[i].batch) / p[i].steps - 1;
        sum += off * off;
    }
    return sqrt(sum / (n - 2));
}

sk_status sk_batch_fit(const sk_batch_point *p, int n, sk_batch_law *out)
{
    double inverse[MOST], steps[MOST];
    bool differ = false;
    if (n < SK_BATCH_POINTS || n > MOST)
        return sk_fail(SK_EDATA, "critical batch: %d batch sizes reach the target; %d are needed",
                       n, SK_BATCH_POINTS);
    for (int i = 0; i < n; i++) {
        if (!(p[i].batch > 0) || !(p[i].steps > 0) || !isfinite(p[i].batch * p[i].steps))
            return sk_fail(SK_EDATA,
                           "critical batch: %g steps with a batch of %g; numbers above 0 "
                           "are needed",
                           p[i].steps, p[i].batch);
        differ |= p[i].batch != p[0].batch;
        inverse[i] = 1 / p[i].batch;
        steps[i] = p[i].steps;
    }
    if (!differ) return sk_fail(SK_EDATA, "critical batch: all batches are of %g", p[0].batch);
    sk_batch_law l = {0};
    sk_fit_line(inverse, steps, n, &l.steps, &l.samples);
    l.crit = l.steps > 0 ? l.samples / l.steps : INFINITY;
    l.spread = spread_of(&l, p, n);
    *out = l;
    return SK_OK;
}

static int ascending(const void *x, const void *y)
{
    double p = *(const double *)x, q = *(const double *)y;
    return (p > q) - (p < q);
}

static void hold(double *x, int n, double *low, double *high)
{
    qsort(x, (size_t)n, sizeof *x, ascending);
    *low = x[n / 40];
    *high = x[n - 1 - n / 40];
}

void sk_batch_intervals(sk_arena *a, const sk_batch_point *p, int n, int n_draws, uint64_t seed,
                        sk_batch_law *l)
{
    sk_batch_point *drawn = sk_many(a, sk_batch_point, n);
    double *steps = sk_many(a, double, n_draws), *crit = sk_many(a, double, n_draws);
    for (int k = 0; k < n_draws; k++) {
        sk_batch_law x = {0};
        for (int i = 0; i < n; i++) {
            double z = sk_rng_normal(seed, (uint64_t)k, (uint64_t)i);
            drawn[i] = (sk_batch_point){p[i].batch,
                                        sk_batch_steps(l, p[i].batch) * exp(l->spread * (double)z)};
        }
        sk_status st = sk_batch_fit(drawn, n, &x); /* of the same batches: it cannot fail */
        sk_assert(!st);
        steps[k] = x.steps;
        crit[k] = x.crit;
    }
    hold(steps, n_draws, &l->steps_low, &l->steps_high);
    hold(crit, n_draws, &l->crit_low, &l->crit_high);
}
