/* ademamix.c - Pagliardini, Ablin and Grangier 2024: AdamW with a second, much slower average of
 * the gradients, so that old ones are not forgotten at once.
 *
 *     m = b1 m + (1 - b1) g     slow = b3 slow + (1 - b3) g     v = b2 v + (1 - b2) g^2
 *     w -= lr ((m / fix1 + alpha slow) / (sqrt(v / fix2) + eps) + decay w)
 *
 * A slow average that counts in full from the first step on makes early steps too large: over
 * mix_warmup steps alpha rises from 0, and b3 from b1 so that the half-life of the average rises
 * evenly.  16 bytes of state and weight an element, as against AdamW's 12. */
#include "kernel/optim.h"

#include <math.h>

enum { LR, BETA1, BETA2, EPS, DECAY, BETA3, ALPHA, MIX_WARMUP };
enum { M, SLOW, V };

/* Of the slow average at a step: its decay, and its part in the direction. */
static double slow_beta(double b1, double b3, double t)
{
    if (t >= 1 || b1 <= 0 || b1 >= b3) return b3;
    double from = log(b1), to = log(b3);
    return exp(from * to / ((1 - t) * to + t * from));
}

static void apply(sk_piece *p)
{
    const float *k = p->knob;
    real b1 = k[BETA1], b2 = k[BETA2], eps = k[EPS], scale = p->scale;
    double step = (double)p->step,
           t = step < (double)k[MIX_WARMUP] ? step / (double)k[MIX_WARMUP] : 1;
    real b3 = (real)slow_beta((double)b1, (double)k[BETA3], t), mix = (real)(t * (double)k[ALPHA]);
    real fix1 = (real)(1 / (1 - pow((double)b1, step)));
    real root = (real)(1 / sqrt(1 - pow((double)b2, step))), keep = 1 - k[LR] * k[DECAY];
    real lr = k[LR];
    real *restrict w = p->param, *restrict m = p->state[M], *restrict v = p->state[V];
    real *restrict slow = p->state[SLOW];
    const real *restrict grad = p->grad;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) {
        real g = grad[i] * scale;
        m[i] = b1 * m[i] + (1 - b1) * g;
        slow[i] = b3 * slow[i] + (1 - b3) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        w[i] = keep * w[i] - lr * (m[i] * fix1 + mix * slow[i]) / (sqrtf(v[i]) * root + eps);
    }
}

const sk_optim sk_optim_ademamix = {
    .name = "ademamix",
    .doc = "AdamW with a second, slow average of gradients",
    .n_state = 3,
    .state = {"m", "slow", "v"},
    .positive = 1u << V,
    .knobs = {SK_LR(1e-3),
              SK_BETAS(0.9, 0.999),
              SK_EPS(1e-8),
              SK_DECAY(0.1),
              {"beta3", 0.9999, .most = SK_BELOW_ONE, .doc = "decay of the slow average"},
              {"alpha", 5, .most = 1e3, .doc = "weight of the slow average in the update"},
              {"mix_warmup", 0, .most = 1e9, .whole = true,
               .doc = "steps until the slow average has its full weight"}},
    .pass = {apply},
};
