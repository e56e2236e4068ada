/* adafactor_vector.c - adafactor.c for what is no matrix: a second moment for every element. */
#include "kernel/optim.h"

#include <math.h>

enum { LR, DECAY, DECAY_RATE, EPS1, EPS2, CLIP };
enum { V };
enum { WEIGHT2, COUNT, STEP2 }; /* sums: squares of weights, their number, squares of the step */

static real scaled(const sk_piece *p, int64_t i)
{
    real least = p->knob[EPS1] * p->knob[EPS1], v = p->state[V][i];
    return p->grad[i] * p->scale / sqrtf(v > least ? v : least);
}

static void average(sk_piece *p)
{
    real part = (real)pow((double)p->step, -(double)p->knob[DECAY_RATE]);
    double w2 = 0, u2 = 0;
    for (int64_t i = 0; i < p->n; i++) {
        real g = p->grad[i] * p->scale;
        p->state[V][i] += part * (g * g - p->state[V][i]);
        double w = (double)p->param[i], u = (double)scaled(p, i);
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
    for (int64_t i = 0; i < p->n; i++) p->param[i] = keep * p->param[i] - rate * scaled(p, i);
}

/* clang-format off */
const sk_optim sk_optim_adafactor_vector = {
    .name = "adafactor-vector",
    .doc = "Adafactor without factors, for what is no matrix",
    .n_state = 1,
    .n_sums = 3,
    .state = {"v"},
    .knobs = {SK_LR(1e-2), SK_DECAY(0), SK_ADAFACTOR},
    .pass = {average, apply},
};
/* clang-format on */
