/* radam.c - Liu et al. 2020: Adam whose first steps, while the second moment is known from few
 * gradients, are those of momentum, and then shorter by the variance that is left; it stands in for
 * a warmup.  Decay is coupled, and eps is added before the bias correction, as in PyTorch. */
#include "kernel/optim.h"

#include <math.h>

enum { LR, BETA1, BETA2, EPS, DECAY };
enum { M, V };

/* Factor of the step by the length of the average that v stands for, rho; 0: v says too little. */
static double rectify(double b2, double step)
{
    double most = 2 / (1 - b2) - 1, fix2 = 1 - pow(b2, step);
    double rho = most - 2 * step * (1 - fix2) / fix2;
    if (rho <= 5) return 0;
    return sqrt(fix2 * (rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho));
}

static void apply(sk_piece *p)
{
    const float *k = p->knob;
    real b1 = k[BETA1], b2 = k[BETA2], decay = k[DECAY], scale = p->scale;
    double factor = rectify((double)b2, (double)p->step),
           fix1 = 1 - pow((double)b1, (double)p->step);
    bool adapts = factor > 0;
    real rate = (real)((double)k[LR] * (adapts ? factor : 1) / fix1);
    real root = adapts ? 1 : 0, below = adapts ? k[EPS] : 1;
    real *restrict w = p->param, *restrict m = p->state[M], *restrict v = p->state[V];
    const real *restrict grad = p->grad;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) {
        real g = grad[i] * scale + decay * w[i];
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        w[i] -= rate * m[i] / (root * sqrtf(v[i]) + below);
    }
}

const sk_optim sk_optim_radam = {
    .name = "radam",
    .doc = "Adam with a rectified rate in the first steps, instead of a warmup",
    .n_state = 2,
    .state = {"m", "v"},
    .positive = 1u << V,
    .knobs = {SK_LR(1e-3), SK_BETAS(0.9, 0.999), SK_EPS(1e-8), SK_DECAY(0)},
    .pass = {apply},
};
