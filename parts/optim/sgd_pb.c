/* sgd_pb.c - momentum for delayed gradients (Kosson et al. 2020).
 *
 * A gradient that is D updates old has missed D updates in which momentum would have
 * carried it on.  Spike compensation gives it that share at once, and momentum the rest:
 *
 *     v = m v + g        w -= lr (a v + b g)        a = m^D,  b = 1 + m + .. + m^(D-1)
 *
 * Linear weight prediction lets the forward pass read w - lr D v, where momentum alone will have
 * carried the weights by the time its gradient arrives.  Without delay this is sgd. */
#include "kernel/optim.h"

enum { LR, MOMENTUM, DECAY, COMPENSATE, PREDICT };
enum { V };

static void apply(sk_piece *p)
{
    real lr = p->knob[LR], mu = p->knob[MOMENTUM], decay = p->knob[DECAY], scale = p->scale;
    real *restrict w = p->param, *restrict v = p->state[V];
    const real *restrict grad = p->grad;
    real a = 1, b = 0;
    for (int i = 0; p->knob[COMPENSATE] > 0 && i < p->delay; i++) b += a, a *= mu;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) {
        real g = grad[i] * scale + decay * w[i];
        v[i] = mu * v[i] + g;
        w[i] -= lr * (a * v[i] + b * g);
    }
}

static void ahead(sk_piece *p)
{
    real far = p->knob[PREDICT] > 0 ? p->knob[LR] * (real)p->delay : 0;
    real *restrict w = p->param;
    const real *restrict v = p->state[V];
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) w[i] -= far * v[i];
}

#define SPIKE "sgd-pb: spike compensation of delayed gradients"
#define AHEAD "sgd-pb: forward passes read predicted weights"

const sk_optim sk_optim_sgd_pb = {
    .name = "sgd-pb",
    .doc = "SGD for delayed gradients: spike compensation, weight prediction",
    .n_state = 1,
    .state = {"v"},
    .knobs = {SK_LR(0.1),
              SK_MOMENTUM(0.9),
              SK_DECAY(0),
              {"compensate", 1, .most = 1, .whole = true, .doc = SPIKE},
              {"predict", 1, .most = 1, .whole = true, .doc = AHEAD}},
    .pass = {apply},
    .ahead = ahead,
};
