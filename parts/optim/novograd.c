/* novograd.c - Ginsburg et al. 2019: the second moment is one number for each parameter tensor, a
 * moving average of the squared norm of its gradient; gradients are normalised by its root before
 * they go into the momentum.
 *
 *     v = beta2 v + (1 - beta2) |g|^2        the first time v = |g|^2
 *     m = beta1 m + g / (sqrt(v) + eps) + decay w
 *     w -= lr m
 *
 * The paper's algorithm 1, in which momentum does not average: a constant gradient moves weights by
 * lr / (1 - beta1).  So state is half of Adam's.  Betas, rate and decay are those of the paper's
 * image classification (0.95, 0.98; 0.01; 0.001); the authors' code has `grad_averaging` off too.
 *
 * Two passes: the first leaves only the squared norm, which the engine adds over the shards; then
 * v is settled, once a parameter. */
#include "kernel/optim.h"

#include <math.h>

enum { LR, BETA1, BETA2, EPS, DECAY };
enum { M };
enum { V };     /* scalar: the second moment */
enum { GRAD2 }; /* sum: squared norm of the gradient */

static void norm(sk_piece *p)
{
    double sum = 0;
    for (int64_t i = 0; i < p->n; i++) {
        double g = (double)(p->grad[i] * p->scale);
        sum += g * g;
    }
    p->sum[GRAD2] = sum;
}

static void settle(sk_piece *p)
{
    double b2 = p->step > 1 ? (double)p->knob[BETA2] : 0;
    p->scalar[V] = (float)(b2 * (double)p->scalar[V] + (1 - b2) * p->sum[GRAD2]);
}

static void apply(sk_piece *p)
{
    const float *k = p->knob;
    double below = sqrt((double)p->scalar[V]) + (double)k[EPS];
    real b1 = k[BETA1], lr = k[LR], decay = k[DECAY];
    real scale = below > 0 ? (real)((double)p->scale / below) : 0;
    real *restrict w = p->param, *restrict m = p->state[M];
    const real *restrict grad = p->grad;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) {
        m[i] = b1 * m[i] + (grad[i] * scale + decay * w[i]);
        w[i] -= lr * m[i];
    }
}

const sk_optim sk_optim_novograd = {
    .name = "novograd",
    .doc = "momentum of gradients over the norm of their tensor, with half of AdamW's state",
    .n_state = 1,
    .n_sums = 1,
    .state = {"m"},
    .scalars = {"v"},
    .settle = settle,
    .knobs = {SK_LR(0.01), SK_BETAS(0.95, 0.98), SK_EPS(1e-8), SK_DECAY(0.001)},
    .pass = {norm, apply},
};
