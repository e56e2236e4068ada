/* schedulefree.c - Defazio et al. 2024 (AdamWScheduleFree): AdamW without a schedule of the rate.
 * An average x of the iterates z takes the place of a rate that decays:
 *
 *     y = (1 - beta1) z + beta1 x          gradients are taken at y: the weights of a training step
 *     v = beta2 v + (1 - beta2) g^2
 *     z -= lr (g / (sqrt(v / fix2) + eps) + decay y)
 *     x = (1 - c) x + c z                  c: lr^2 over the sum of all lr^2 so far
 *
 * Validation, samples and exported models read x.  The authors' code keeps y and z and works x out
 * of them; here x is a state of its own, so that y can be left and taken up again to the bit. */
#include "kernel/optim.h"
#include "kernel/weight_average.h"

enum { LR, BETA1, BETA2, EPS, DECAY };
enum { Z, V, X };

static void apply(sk_piece *p)
{
    const float *k = p->knob;
    real lr = k[LR], b1 = k[BETA1], b2 = k[BETA2], eps = k[EPS], decay = k[DECAY], scale = p->scale;
    real root = (real)(1 / sqrt(1 - pow((double)b2, (double)p->step)));
    real part = (real)sk_rate_squared_part((double)p->warmup, (double)p->step), keep = 1 - part;
    bool first = p->step == 1;
    real *restrict y = p->param, *restrict z = p->state[Z], *restrict v = p->state[V];
    real *restrict x = p->state[X];
    const real *restrict grad = p->grad;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) {
        real g = grad[i] * scale, from = first ? y[i] : z[i];
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        z[i] = from - lr * (g / (sqrtf(v[i]) * root + eps) + decay * y[i]);
        x[i] = keep * (first ? y[i] : x[i]) + part * z[i];
        y[i] = (1 - b1) * z[i] + b1 * x[i];
    }
}

const sk_optim sk_optim_schedulefree = {
    .name = "schedulefree",
    .doc = "AdamW with an average of its iterates instead of a schedule of the rate",
    .n_state = 3,
    .state = {"z", "v", "x"},
    .positive = 1u << V,
    .average = X + 1,
    .schedule = "constant",
    .knobs = {SK_LR(2.5e-3), SK_BETAS(0.9, 0.999), SK_EPS(1e-8), SK_DECAY(0)},
    .pass = {apply},
};
