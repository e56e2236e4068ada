/* adam8bit.c - Dettmers et al. 2022: Adam whose two moments are kept in blocks of 8 bits
 * (tensor/q8_format.h): 2 bytes of state for each weight instead of 8.  The step is that of adamw
 * (decoupled decay), with the defaults of Adam. */
#include "kernel/optim.h"

#include <math.h>

enum { LR, BETA1, BETA2, EPS, DECAY };
enum { M, V };

static void apply(sk_piece *p)
{
    const float *k = p->knob;
    real lr = k[LR], b1 = k[BETA1], b2 = k[BETA2], eps = k[EPS], scale = p->scale;
    double fix1 = 1 - pow((double)b1, (double)p->step), fix2 = 1 - pow((double)b2, (double)p->step);
    real rate = (real)((double)lr / fix1), root = (real)(1 / sqrt(fix2)), keep = 1 - lr * k[DECAY];
    real *restrict w = p->param, *restrict m = p->state[M], *restrict v = p->state[V];
    const real *restrict grad = p->grad;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) {
        real g = grad[i] * scale;
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        w[i] = keep * w[i] - rate * m[i] / (sqrtf(v[i]) * root + eps);
    }
}

const sk_optim sk_optim_adam8bit = {
    .name = "adam8bit",
    .doc = "Adam with its state in blocks of 8 bits",
    .n_state = 2,
    .state = {"m", "v"},
    .positive = 1u << V,
    .state_type = SK_U8,
    .knobs = {SK_LR(1e-3), SK_BETAS(0.9, 0.999), SK_EPS(1e-8), SK_DECAY(0)},
    .pass = {apply},
};
