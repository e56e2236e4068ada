/* adafactor_vector.c - adafactor.c for what is no matrix: a second moment for every element. */
#include "kernel/optim.h"

#include <math.h>

enum { LR, DECAY, DECAY_RATE, EPS1, EPS2, CLIP };
enum { V };
enum { WEIGHT2, COUNT, STEP2 }; /* sums: squares of weights, their number, squares of the step */

static void average(sk_piece *p)
{
    real part = (real)pow((double)p->step, -(double)p->knob[DECAY_RATE]);
    real least = p->knob[EPS1] * p->knob[EPS1];
    double w2 = 0, u2 = 0;
    for (int64_t i = 0; i < p->n; i++) {
        real g = p->grad[i] * p->scale, v = p->state[V][i];
        v = p->state[V][i] = v + part * (g * g - v);
        double w = (double)p->param[i], u = (double)(g / sqrtf(v > least ? v : least));
        w2 += w * w;
        u2 += u * u;
    }
    p->sum[WEIGHT2] = w2;
    p->sum[COUNT] = (double)p->n;
    p->sum[STEP2] = u2;
}

static void apply(sk_piece *p)
{
    const float *k = p->knob;
    double n = p->sum[COUNT] > 0 ? p->sum[COUNT] : 1, rms = sqrt(p->sum[WEIGHT2] / n);
    double rho = fmin((double)k[LR], 1 / sqrt((double)p->step));
    double clip = fmax(1, sqrt(p->sum[STEP2] / n) / (double)k[CLIP]);
    real rate = (real)(fmax((double)k[EPS2], rms) * rho / clip), keep = 1 - k[LR] * k[DECAY];
    real least = k[EPS1] * k[EPS1], scale = p->scale, *restrict w = p->param;
    const real *restrict v = p->state[V], *restrict grad = p->grad;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) {
        real u = grad[i] * scale / sqrtf(v[i] > least ? v[i] : least);
        w[i] = keep * w[i] - rate * u;
    }
}

/* clang-format off */
const sk_optim sk_optim_adafactor_vector = {
    .name = "adafactor-vector",
    .doc = "Adafactor without factors, for what is no matrix",
    .n_state = 1,
    .n_sums = 3,
    .state = {"v"},
    .positive = 1u << V,
    .knobs = {SK_LR(1e-2), SK_DECAY(0), SK_ADAFACTOR},
    .pass = {average, apply},
};
/* clang-format on */
