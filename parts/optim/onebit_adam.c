/* onebit_adam.c - Tang et al. 2021, 1-bit Adam.  The first steps are AdamW's.  Then the second
 * moment is frozen, and ranks send each other their momenta as signs, with what these lose added to
 * the next (program/sent_state.c); each goes on from the mean.  Both moments are corrected for
 * their beginning at 0, as in AdamW, the second for the steps in which it was made; decay is
 * decoupled. */
#include "kernel/optim.h"

#include <math.h>

enum { WARMUP = SK_ADAMW_DECAY + 1 };
enum { M, V, MEAN };

/* This rank's term of the mean momentum. */
static void term(sk_piece *p)
{
    real b1 = p->knob[SK_ADAMW_BETA1], scale = p->scale, share = p->share;
    real *restrict m = p->state[M];
    const real *restrict grad = p->grad;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) m[i] = share * (b1 * m[i] + (1 - b1) * (grad[i] * scale));
}

static void step(sk_piece *p)
{
    const float *k = p->knob;
    real lr = k[SK_ADAMW_LR], eps = k[SK_ADAMW_EPS], keep = 1 - lr * k[SK_ADAMW_DECAY];
    double fix1 = 1 - pow((double)k[SK_ADAMW_BETA1], (double)p->step);
    double fix2 = 1 - pow((double)k[SK_ADAMW_BETA2], (double)k[WARMUP]);
    real rate = (real)((double)lr / fix1), root = (real)(1 / sqrt(fix2));
    for (int64_t i = 0; i < p->n; i++) {
        real m = p->state[M][i] = p->state[MEAN][i]; /* the same array, if there is one rank */
        p->param[i] = keep * p->param[i] - rate * m / (sqrtf((float)p->state[V][i]) * root + eps);
    }
}

const sk_optim sk_optim_onebit_adam = {
    .name = "onebit-adam",
    .doc = "Adam that sends 1 bit of the momentum an element, its second moment frozen after "
           "warm-up",
    .n_state = 2,
    .state = {"m", "v"},
    .positive = 1u << V,
    .knobs = {SK_LR(1e-3), SK_BETAS(0.9, 0.999), SK_EPS(1e-8), SK_DECAY(0), SK_FREEZE(100000)},
    .pass = {sk_pass_adamw, term, step},
    .sends = 1 + M,
    .sent_as = "sign",
    .n_first = 1,
    .first_steps = 1 + WARMUP,
};
