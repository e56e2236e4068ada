/* lars.c - You, Gitman and Ginsburg 2017: SGD with momentum whose rate is, for each parameter, a
 * fixed part of the ratio of the norms of weight and gradient, so that very large batches and
 * rates do not blow up the layers with the smallest weights.
 *
 *     ratio = trust |w| / (|g| + decay |w| + eps)
 *     m = momentum m + lr ratio (g + decay w)        w -= m
 *
 * The rate is inside the momentum, as in the paper (its algorithm 1): after a change of the rate,
 * steps of before go on with their own.  Tensors that do not decay (biases, gains of norms) have
 * no ratio and no decay: plain SGD, as in the authors' implementation; their norms say nothing
 * about how far they may move.  So `trust` has the role of a decay: it is 0 for them.
 *
 * Two passes: the first leaves only the squared norms, which the engine adds over the shards. */
#include "kernel/optim.h"

#include <math.h>

enum { LR, MOMENTUM, EPS, TRUST, DECAY };
enum { M };
enum { WEIGHT2, GRAD2 }; /* sums: squared norms of weight and gradient */

static void norms(sk_piece *p)
{
    double w2 = 0, g2 = 0;
    for (int64_t i = 0; i < p->n; i++) {
        double w = (double)p->param[i], g = (double)(p->grad[i] * p->scale);
        w2 += w * w;
        g2 += g * g;
    }
    p->sum[WEIGHT2] = w2;
    p->sum[GRAD2] = g2;
}

static void apply(sk_piece *p)
{
    const float *k = p->knob;
    double w2 = sqrt(p->sum[WEIGHT2]), g2 = sqrt(p->sum[GRAD2]);
    double below = g2 + (double)k[DECAY] * w2 + (double)k[EPS];
    bool adapts = k[TRUST] > 0;
    real rate = k[LR], decay = adapts ? k[DECAY] : 0, mu = k[MOMENTUM], scale = p->scale;
    if (adapts && w2 > 0 && g2 > 0) rate = (real)((double)k[LR] * (double)k[TRUST] * w2 / below);
    real *restrict w = p->param, *restrict m = p->state[M];
    const real *restrict grad = p->grad;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) {
        m[i] = mu * m[i] + rate * (grad[i] * scale + decay * w[i]);
        w[i] -= m[i];
    }
}

const sk_optim sk_optim_lars = {
    .name = "lars",
    .doc = "SGD with a per-parameter trust ratio, for very large batches",
    .n_state = 1,
    .n_sums = 2,
    .state = {"m"},
    .knobs = {SK_LR(1),
              SK_MOMENTUM(0.9),
              SK_EPS(1e-8),
              {"trust", 0.001, .least = 1e-9, .most = 1, .role = SK_KNOB_DECAY,
               .doc = "length of a step at a rate of 1, as a part of the weight's norm"},
              SK_DECAY_AS(5e-4, SK_KNOB_PLAIN)},
    .pass = {norms, apply},
};
