/* lion.c - Chen et al. 2023: every element moves by the learning rate, against the sign of an
 * average of gradient and momentum.  One number of state an element, and steps that are as long as
 * the rate: rates are 3 to 10 times smaller than AdamW's, and decay as much larger.
 *
 * A sign jumps where its argument is 0.  fmaf rounds once on every processor, so that the GPU half
 * has the same signs for the same numbers. */
#include "kernel/optim.h"

#include <math.h>

enum { LR, BETA1, BETA2, DECAY };
enum { M };

static void apply(sk_piece *p)
{
    real lr = p->knob[LR], b1 = p->knob[BETA1], b2 = p->knob[BETA2], scale = p->scale;
    real keep = 1 - lr * p->knob[DECAY];
    real *restrict w = p->param, *restrict m = p->state[M];
    const real *restrict grad = p->grad;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) {
        real g = grad[i] * scale, c = fmaf(b1, m[i], (1 - b1) * g);
        m[i] = b2 * m[i] + (1 - b2) * g;
        w[i] = keep * w[i] - (c > 0 ? lr : c < 0 ? -lr : 0);
    }
}

const sk_optim sk_optim_lion = {
    .name = "lion",
    .doc = "steps of fixed size by the sign of the momentum, with half of AdamW's state",
    .n_state = 1,
    .state = {"m"},
    .knobs = {SK_LR(1e-4), SK_BETAS(0.9, 0.99), SK_DECAY(0)},
    .pass = {apply},
};
