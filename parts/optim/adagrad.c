/* adagrad.c - Duchi, Hazan and Singer 2011: the rate of an element falls with the root of the sum
 * of all its squared gradients.  The sum begins at 0 and decay is coupled, as in PyTorch. */
#include "kernel/optim.h"

#include <math.h>

enum { LR, EPS, DECAY };
enum { V };

static void apply(sk_piece *p)
{
    real lr = p->knob[LR], eps = p->knob[EPS], decay = p->knob[DECAY], scale = p->scale;
    real *restrict w = p->param, *restrict v = p->state[V];
    const real *restrict grad = p->grad;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) {
        real g = grad[i] * scale + decay * w[i];
        v[i] += g * g;
        w[i] -= lr * g / (sqrtf(v[i]) + eps);
    }
}

const sk_optim sk_optim_adagrad = {
    .name = "adagrad",
    .doc = "rates that fall with the sum of squared gradients, for sparse features",
    .n_state = 1,
    .state = {"v"},
    .positive = 1u << V,
    .knobs = {SK_LR(1e-2), SK_EPS(1e-10), SK_DECAY(0)},
    .pass = {apply},
};
