/* mars.c - Yuan et al. 2025 (MARS-AdamW): AdamW of gradients whose variance is reduced by what has
 * changed since the last one, at no more than a length of 1 for each parameter:
 *
 *     c = g + gamma beta1 / (1 - beta1) (g - last)        c /= max(1, |c|)
 *     m = beta1 m + (1 - beta1) c        v = beta2 v + (1 - beta2) c^2
 *     w -= lr (m / fix1 / (sqrt(v / fix2) + eps) + decay w)
 *
 * The last gradient is that of the batch before (the authors' MARS-approx), so that a step costs
 * one backward pass.  Tensors that do not decay take AdamW with the same betas; so `gamma` has the
 * role of a decay: it is 0 for them.
 *
 * Two passes: the first leaves only the squared norm of c, which the engine adds over the shards.
 */
#include "kernel/optim.h"

#include <math.h>

enum { LR, BETA1, BETA2, EPS, GAMMA, DECAY };
enum { M, V, LAST };
enum { LENGTH2 }; /* sum: squared norm of c */

static real change(const sk_piece *p)
{
    double b1 = (double)p->knob[BETA1];
    return (real)((double)p->knob[GAMMA] * b1 / (1 - b1));
}

static void length(sk_piece *p)
{
    real more = change(p);
    double sum = 0;
    for (int64_t i = 0; i < p->n; i++) {
        real g = p->grad[i] * p->scale, c = g + more * (g - p->state[LAST][i]);
        sum += (double)c * (double)c;
    }
    p->sum[LENGTH2] = sum;
}

static void apply(sk_piece *p)
{
    const float *k = p->knob;
    bool adapts = k[GAMMA] > 0;
    double long2 = p->sum[LENGTH2], step = (double)p->step;
    real b1 = k[BETA1], b2 = k[BETA2], eps = k[EPS], scale = p->scale, more = change(p);
    real shrink = adapts && long2 > 1 ? (real)(1 / sqrt(long2)) : 1;
    real keep = adapts ? 1 - k[LR] * k[DECAY] : 1;
    real rate = (real)((double)k[LR] / (1 - pow((double)b1, step)));
    real root = (real)(1 / sqrt(1 - pow((double)b2, step)));
    real *restrict w = p->param, *restrict m = p->state[M], *restrict v = p->state[V];
    real *restrict last = p->state[LAST];
    const real *restrict grad = p->grad;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) {
        real g = grad[i] * scale, c = shrink * (g + more * (g - last[i]));
        m[i] = b1 * m[i] + (1 - b1) * c;
        v[i] = b2 * v[i] + (1 - b2) * c * c;
        last[i] = g;
        w[i] = keep * w[i] - rate * m[i] / (sqrtf(v[i]) * root + eps);
    }
}

const sk_optim sk_optim_mars = {
    .name = "mars",
    .doc = "AdamW of gradients with less variance: the change since the last is added",
    .n_state = 3,
    .n_sums = 1,
    .state = {"m", "v", "last"},
    .positive = 1u << V,
    .knobs = {SK_LR(3e-3),
              SK_BETAS(0.95, 0.99),
              SK_EPS(1e-8),
              {"gamma", 0.025, .least = 1e-9, .most = 1, .role = SK_KNOB_DECAY,
               .doc = "weight of the change of the gradient since the last step"},
              SK_DECAY_AS(0, SK_KNOB_PLAIN)},
    .pass = {length, apply},
};
