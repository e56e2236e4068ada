/* noise_scale.c - gradient variance and noise scale from squared norms; see noise_scale.h. */
#include "train/noise_scale.h"

#include <math.h>

#define KEPT 0.95 /* of an average, at the next step: it reaches back about 20 steps */

void sk_noise_step(sk_noise_scale *x, const sk_noise *plan, double batch, const sk_step_out *out)
{
    double norm = out->grad_norm * out->grad_norm;
    double square = (plan->part * norm - out->small) / (plan->part - plan->square);
    x->now = batch * (norm - square);
    if (!out->finite || !isfinite(x->now)) {
        x->now = NAN;
        return;
    }
    x->variance = KEPT * x->variance + (1 - KEPT) * x->now;
    x->square = KEPT * x->square + (1 - KEPT) * square;
    x->weight = KEPT * x->weight + (1 - KEPT);
}

double sk_noise_ratio(const sk_noise_scale *x)
{
    return x->weight > 0 && x->square > 0 ? x->variance / x->square : NAN;
}

double sk_noise_gain(const sk_noise_scale *x, double batch, double scale)
{
    double sigma2 = fmax(0, scale * x->variance / batch), mu2 = fmax(0, x->square);
    double below = sigma2 / scale + mu2;
    return below > 0 ? fmin(scale, fmax(1, (sigma2 + mu2) / below)) : 1;
}
