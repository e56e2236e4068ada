/* sgd.c - stochastic gradient descent with heavy-ball momentum and coupled decay. */
#include "kernel/optim.h"

enum { LR, MOMENTUM, DECAY };
enum { M };

static void apply(sk_piece *p)
{
    real lr = p->knob[LR], mu = p->knob[MOMENTUM], decay = p->knob[DECAY], scale = p->scale;
    real *restrict w = p->param, *restrict m = p->state[M];
    const real *restrict grad = p->grad;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) {
        m[i] = mu * m[i] + grad[i] * scale + decay * w[i];
        w[i] -= lr * m[i];
    }
}

const sk_optim sk_optim_sgd = {
    .name = "sgd",
    .doc = "stochastic gradient descent with momentum",
    .n_state = 1,
    .state = {"m"},
    .knobs = {SK_LR(0.1), SK_MOMENTUM(0.9), SK_DECAY(0)},
    .pass = {apply},
};
