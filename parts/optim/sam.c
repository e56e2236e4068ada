/* sam.c - Foret et al. 2021: sharpness-aware minimisation.  A step takes the gradient at weights
 * that are moved by `radius` (rho in the paper) along the gradient of the same batch, the worst
 * place nearby, and goes from the weights themselves with that:
 *
 *     g' = grad L(w + radius g / |g|)        |g|: of all parameters together, before clipping
 *     w = base step of g'
 *
 * `base` is AdamW or SGD with momentum (coupled decay), as adamw.c and sgd.c have them; SGD leaves
 * the second moment alone.  A step costs two forward and backward passes, and weights in f32 a
 * second copy: they are kept as masters while kernels read the moved ones. */
#include "kernel/optim.h"

enum { LR, RADIUS, BASE, BETA1, BETA2, EPS, MOMENTUM, DECAY };
enum { V = 1 };      /* state */
enum { ADAMW, SGD }; /* the words of `base` */

static void perturb(sk_piece *p)
{
    real far = (real)((double)p->knob[RADIUS] / (p->norm + 1e-12)); /* as the authors' code */
    for (int64_t i = 0; i < p->n; i++) p->param[i] += far * (p->grad[i] * p->scale);
}

static void adamw(sk_piece *p)
{
    const float *k = p->knob;
    sk_piece q = *p;
    q.knob[SK_ADAMW_BETA1] = k[BETA1], q.knob[SK_ADAMW_BETA2] = k[BETA2];
    q.knob[SK_ADAMW_EPS] = k[EPS], q.knob[SK_ADAMW_DECAY] = k[DECAY];
    sk_pass_adamw(&q);
}

static void sgd(sk_piece *p)
{
    sk_piece q = *p;
    q.knob[SK_SGD_MOMENTUM] = p->knob[MOMENTUM], q.knob[SK_SGD_DECAY] = p->knob[DECAY];
    sk_pass_sgd(&q);
}

static void apply(sk_piece *p) { ((int)p->knob[BASE] == SGD ? sgd : adamw)(p); }

const sk_optim sk_optim_sam = {
    .name = "sam",
    .doc = "AdamW or SGD of gradients at the worst place nearby: two gradients a step",
    .n_state = 2,
    .state = {"m", "v"},
    .positive = 1u << V,
    .knobs = {SK_LR(1e-3),
              {"radius", 0.05, .most = 1e6,
               .doc = "rho: how far weights move for the second gradient"},
              {"base", ADAMW, .most = SGD, .whole = true, .words = "adamw sgd", .base = true,
               .doc = "optimizer of the step, and of defaults: adamw or sgd"},
              SK_BETAS_IF(0.9, 0.95, "base=adamw"),
              SK_EPS_IF(1e-8, "base=adamw"),
              SK_MOMENTUM_IF(0.9, "base=sgd"),
              SK_DECAY(0.1)},
    .pass = {apply},
    .perturb = perturb,
};
