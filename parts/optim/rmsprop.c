/* rmsprop.c - Tieleman and Hinton 2012: gradients over the root of their own mean square, with
 * momentum of the result (as EfficientNet and MobileNet were trained).  Decay is coupled; the root
 * has no bias correction, so the first steps are 1 / sqrt(1 - rho) long: as in PyTorch. */
#include "kernel/optim.h"

#include <math.h>

enum { LR, RHO, EPS, MOMENTUM, DECAY };
enum { V, M };

static void apply(sk_piece *p)
{
    const float *k = p->knob;
    real lr = k[LR], rho = k[RHO], eps = k[EPS], mu = k[MOMENTUM], decay = k[DECAY];
    real scale = p->scale;
    real *restrict w = p->param, *restrict v = p->state[V], *restrict m = p->state[M];
    const real *restrict grad = p->grad;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) {
        real g = grad[i] * scale + decay * w[i];
        v[i] = rho * v[i] + (1 - rho) * g * g;
        m[i] = mu * m[i] + g / (sqrtf(v[i]) + eps);
        w[i] -= lr * m[i];
    }
}

const sk_optim sk_optim_rmsprop = {
    .name = "rmsprop",
    .doc = "gradients over the root of their mean square, with momentum",
    .n_state = 2,
    .state = {"v", "m"},
    .positive = 1u << V,
    .knobs = {SK_LR(1e-2),
              {"rho", 0.99, .most = SK_BELOW_ONE, .doc = "decay rate of the mean square"},
              SK_EPS(1e-8),
              SK_MOMENTUM(0),
              SK_DECAY(0)},
    .pass = {apply},
};
