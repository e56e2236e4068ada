/* nadam.c - Dozat 2016: Adam with Nesterov's momentum, whose decay rate rises towards beta1:
 *
 *     mu(t) = beta1 (1 - 0.96^(t momentum_decay) / 2)        P(t) = mu(1) ... mu(t)
 *     w -= lr ((1 - mu(t)) / (1 - P(t)) g + mu(t+1) / (1 - P(t+1)) m) / (sqrt(v / fix2) + eps)
 *
 * Decay is coupled, as in PyTorch.  P would be one number of state; it has a series instead, so
 * that a step depends on its number only. */
#include "kernel/optim.h"

#include <math.h>

enum { LR, BETA1, BETA2, EPS, DECAY, MOMENTUM_DECAY };
enum { M, V };

/* The product over i = 1..t of (1 - q^i / 2).  Its logarithm is the sum over n of -1/(n 2^n) times
 * q^n + q^2n + .. + q^tn, a geometric series: 30 terms are right to 1e-10. */
static double halves(double log_q, double t)
{
    double q = exp(log_q), q_t = exp(log_q * t), d = -expm1(log_q), d_t = -expm1(log_q * t);
    double sum = 0, half = 1, q_n = q, q_tn = q_t, below = d, above = d_t; /* 1 - q^n, 1 - q^tn */
    for (int n = 1; n <= 30; n++) {
        half /= 2;
        sum += half / n * (below > 0 ? q_n * above / below : t);
        below += q_n * d, above += q_tn * d_t;
        q_n *= q, q_tn *= q_t;
    }
    return exp(-sum);
}

static void apply(sk_piece *p)
{
    const float *k = p->knob;
    double lr = (double)k[LR], beta = (double)k[BETA1], t = (double)p->step;
    double log_q = log(0.96) * (double)k[MOMENTUM_DECAY];
    double mu = beta * (1 - exp(log_q * t) / 2), next = beta * (1 - exp(log_q * (t + 1)) / 2);
    double product = pow(beta, t) * halves(log_q, t);
    real now = (real)(lr * (1 - mu) / (1 - product)),
         past = (real)(lr * next / (1 - product * next));
    real b1 = k[BETA1], b2 = k[BETA2], eps = k[EPS], decay = k[DECAY], scale = p->scale;
    real root = (real)(1 / sqrt(1 - pow((double)b2, t)));
    real *restrict w = p->param, *restrict m = p->state[M], *restrict v = p->state[V];
    const real *restrict grad = p->grad;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) {
        real g = grad[i] * scale + decay * w[i];
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        w[i] -= (now * g + past * m[i]) / (sqrtf(v[i]) * root + eps);
    }
}

const sk_optim sk_optim_nadam = {
    .name = "nadam",
    .doc = "Adam with Nesterov's momentum",
    .n_state = 2,
    .state = {"m", "v"},
    .positive = 1u << V,
    .knobs = {SK_LR(2e-3),
              SK_BETAS(0.9, 0.999),
              SK_EPS(1e-8),
              SK_DECAY(0),
              {"momentum_decay", 4e-3, .most = 1e3,
               .doc = "how fast the momentum rises from beta1 / 2 to beta1"}},
    .pass = {apply},
};
