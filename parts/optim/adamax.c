/* adamax.c - Kingma and Ba 2015, section 7.1: Adam with the largest recent gradient in the place of
 * the root of the second moment.  eps is added to the gradient's size and decay is coupled, as in
 * PyTorch. */
#include "kernel/optim.h"

#include <math.h>

enum { LR, BETA1, BETA2, EPS, DECAY };
enum { M, U }; /* first moment, and the decaying maximum */

static void apply(sk_piece *p)
{
    const float *k = p->knob;
    real b1 = k[BETA1], b2 = k[BETA2], eps = k[EPS], decay = k[DECAY], scale = p->scale;
    real rate = (real)((double)k[LR] / (1 - pow((double)b1, (double)p->step)));
    real *restrict w = p->param, *restrict m = p->state[M], *restrict u = p->state[U];
    const real *restrict grad = p->grad;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) {
        real g = grad[i] * scale + decay * w[i], size = fabsf(g) + eps, was = b2 * u[i];
        m[i] = b1 * m[i] + (1 - b1) * g;
        u[i] = was > size ? was : size;
        w[i] -= rate * m[i] / u[i];
    }
}

const sk_optim sk_optim_adamax = {
    .name = "adamax",
    .doc = "Adam with the infinity norm of gradients",
    .n_state = 2,
    .state = {"m", "u"},
    .positive = 1u << U,
    .knobs = {SK_LR(2e-3), SK_BETAS(0.9, 0.999), SK_EPS(1e-8), SK_DECAY(0)},
    .pass = {apply},
};
