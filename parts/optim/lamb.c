/* lamb.c - You et al. 2020: Adam's direction, scaled per parameter so that the
 * step is a fixed fraction of the weight's own norm.  Two passes: the first
 * leaves the direction and the two squared norms, which the engine adds over the
 * shards; the second takes the step. */
#include "kernel/optim.h"

#include <math.h>

enum { LR, BETA1, BETA2, EPS, DECAY };
enum { M, V, U };        /* moments, and the direction between the passes */
enum { WEIGHT2, STEP2 }; /* sums: squared norms of weight and direction */

static void direction(sk_piece *p)
{
    const float *k = p->knob;
    real b1 = k[BETA1], b2 = k[BETA2], eps = k[EPS], decay = k[DECAY], scale = p->scale;
    real fix1 = (real)(1 / (1 - pow((double)b1, (double)p->step)));
    real fix2 = (real)(1 / (1 - pow((double)b2, (double)p->step)));
    double w2 = 0, u2 = 0;
    for (int64_t i = 0; i < p->n; i++) {
        real g = p->grad[i] * scale, w = p->param[i];
        real m = p->state[M][i] = b1 * p->state[M][i] + (1 - b1) * g;
        real v = p->state[V][i] = b2 * p->state[V][i] + (1 - b2) * g * g;
        real u = m * fix1 / ((real)sqrt((double)(v * fix2)) + eps) + decay * w;
        p->state[U][i] = u;
        w2 += (double)w * (double)w;
        u2 += (double)u * (double)u;
    }
    p->sum[WEIGHT2] = w2;
    p->sum[STEP2] = u2;
}

static void apply(sk_piece *p)
{
    double w = sqrt(p->sum[WEIGHT2]), u = sqrt(p->sum[STEP2]);
    real rate = p->knob[LR] * (real)(w > 0 && u > 0 ? w / u : 1);
    real *restrict to = p->param;
    const real *restrict step = p->state[U];
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) to[i] -= rate * step[i];
}

const sk_optim sk_optim_lamb = {
    .name = "lamb",
    .doc = "Adam with a per-parameter trust ratio, for very large batches",
    .n_state = 3,
    .n_sums = 2,
    .state = {"m", "v", "u"},
    .positive = 1u << V,
    .knobs = {SK_LR(2e-3), SK_BETAS(0.9, 0.999), SK_EPS(1e-6), SK_DECAY(0.01)},
    .pass = {direction, apply},
};
