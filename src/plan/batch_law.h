/* batch_law.h - steps to a target loss against the batch size, and the critical batch.
 *
 * McCandlish et al. 2018 (An empirical model of large-batch training, section 2.3): with batches of
 * B samples a training needs
 *
 *     S(B) = S_min (1 + B_crit / B)          steps, and E(B) = B S(B) = E_min (1 + B / B_crit)
 * samples
 *
 * to one loss, where B_crit = E_min / S_min: there it needs twice the least number of steps and
 * twice the least number of samples.  Their model predicts that B_crit is about the gradient noise
 * scale (train/noise_scale.h) of the run.
 *
 * The fit is the least squares of relative errors with both terms at least 0, of a line in 1 / B.
 * Intervals come from a parametric bootstrap with a fixed seed, as those of scaling_law.h: points
 * are drawn around the law with the spread of their own residuals, and fitted again.
 *
 *     sk_batch_law l;
 *     sk_batch_fit(points, n, &l);                         l.crit may be 0 or infinite: see below
 *     sk_batch_intervals(&arena, points, n, 1000, 1, &l);
 */
#ifndef SK_PLAN_BATCH_LAW_H
#define SK_PLAN_BATCH_LAW_H

#include "base/arena.h"
#include "base/status.h"

#include <stdint.h>

enum { SK_BATCH_POINTS = 3 }; /* at least */

typedef struct sk_batch_point {
    double batch, steps;
} sk_batch_point;

typedef struct sk_batch_law {
    double steps;                 /* S_min; 0: steps fall in proportion to the batch */
    double samples;               /* E_min; 0: steps do not fall with the batch */
    double crit;                  /* E_min / S_min; infinite, 0: the points are all on one side */
    double spread;                /* of relative residuals, for the degrees of freedom */
    double steps_low, steps_high; /* 95 % of the draws */
    double crit_low, crit_high;
} sk_batch_law;

/* SK_EDATA: too few points, a number that is not above 0, or batches that are all the same. */
sk_status sk_batch_fit(const sk_batch_point *p, int n, sk_batch_law *out);
double sk_batch_steps(const sk_batch_law *l, double batch);
/* Sets the four numbers of the intervals; l is the fit of these points. */
void sk_batch_intervals(sk_arena *a, const sk_batch_point *p, int n, int n_draws, uint64_t seed,
                        sk_batch_law *l);

#endif
