/* noise_scale.h - train.noise: gradient variance and gradient noise scale, step by step.
 *
 * McCandlish et al. 2018: of one sample the gradient has a covariance Sigma around its mean G, and
 * batches much larger than B_simple = tr(Sigma) / |G|^2 samples bring little.  A step measures the
 * squared norm of the gradient of its batch of B, and of small batches that are parts of it
 * (program/grad_noise.c), in the units of the mean loss:
 *
 *     norm^2 = |G|^2 + tr(Sigma) / B
 *     small  = square |G|^2 + part tr(Sigma) / B        part, square: of sk_noise
 *
 * in expectation, so both unknowns follow, without bias.  One step says little: both are averaged
 * over steps, each on its own, since a mean of ratios is biased; the noise scale is the ratio of
 * the averages. */
#ifndef SK_TRAIN_NOISE_SCALE_H
#define SK_TRAIN_NOISE_SCALE_H

#include "run/run.h"

typedef struct sk_noise_scale {
    double variance, square; /* exponential averages of tr(Sigma) and |G|^2 */
    double weight;           /* of the steps in them, 1 at most; 0: none yet */
    double now;              /* tr(Sigma) as the last step saw it; not finite: it did not */
} sk_noise_scale;

/* The numbers of a step with `batch` samples; steps that are not finite do not count. */
void sk_noise_step(sk_noise_scale *x, const sk_noise *plan, double batch, const sk_step_out *out);
/* AdaScale (Johnson et al. 2020): how many steps of a batch that is `scale` times smaller the next
 * step is worth, 1 to `scale`:
 *
 *     (sigma^2 + mu^2) / (sigma^2 / scale + mu^2)        sigma^2 = scale tr(Sigma) / batch
 *
 * the variance of the smaller batch's gradient, and mu^2 = |G|^2.  1 while nothing is known. */
double sk_noise_gain(const sk_noise_scale *x, double batch, double scale);
double sk_noise_ratio(const sk_noise_scale *x); /* in samples; NaN: |G|^2 is lost in the noise */

#endif
