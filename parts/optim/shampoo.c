/* shampoo.c - Gupta, Koren, Singer 2018; Anil et al. 2020: a matrix preconditioner on each side.
 *
 *     L = average of G G'    R = average of G' G    step = L^(-1/4) M R^(-1/4)
 *
 * M is the average of the gradients G; all averages are corrected for their first terms, as Adam's.
 * The roots are taken anew in every `interval`-th update.  A side longer than max_dim has no
 * preconditioner.  The step is scaled to the root mean square of a step of AdamW, whose rate and
 * decay it can take over ("grafting"); match_rms 0 leaves Shampoo's own scale. */
#include "kernel/optim.h"

#include <math.h>

enum { LR, DECAY, BETA1, BETA2, DAMPING, INTERVAL, MATCH, MAX_DIM };
enum { DEBIASED = 1 }; /* mode of ema */

/* The root of the preconditioner of one side: of rows if `rows`. */
static int root(sk_matrix *w, bool rows)
{
    int factor = w->state(w, rows ? "l" : "r", rows ? "rR" : "cC");
    int power = w->state(w, rows ? "pl" : "pr", rows ? "rR" : "cC");
    int gram = sk_matrix_op(w, "contract", rows ? "rc,Rc->rR" : "rc,rC->cC", .in = {0, 0});
    w->keep(w, factor,
            sk_matrix_op(w, "ema", rows ? "rR,rR->rR" : "cC,cC->cC", .in = {factor, gram},
                         .attr = {w->knob[BETA2], DEBIASED}));
    w->every(w, (int)w->knob[INTERVAL]);
    w->keep(w, power,
            sk_matrix_op(w, "inv_root", rows ? "rR->rR" : "cC->cC", .in = {factor},
                         .attr = {4, w->knob[DAMPING]}));
    w->every(w, 1);
    return power;
}

static int precondition(sk_matrix *w)
{
    int m = w->state(w, "m", "rc");
    int x = sk_matrix_op(w, "ema", "rc,rc->rc", .in = {m, 0}, .attr = {w->knob[BETA1], DEBIASED});
    w->keep(w, m, x);
    if ((double)w->rows <= w->knob[MAX_DIM])
        x = sk_matrix_op(w, "contract", "rR,Rc->rc", .in = {root(w, true), x});
    if ((double)w->cols <= w->knob[MAX_DIM])
        x = sk_matrix_op(w, "contract", "rC,Cc->rc", .in = {x, root(w, false)});
    double size = w->knob[MATCH] * sqrt((double)w->rows * (double)w->cols);
    if (size > 0) x = sk_matrix_op(w, "unit", "rc->rc", .in = {x}, .attr = {1e-12});
    return sk_matrix_op(w, "axpby", "rc,rc->rc", .in = {x, x}, .attr = {size > 0 ? size : 1, 0});
}

/* clang-format off */
const sk_optim sk_optim_shampoo = {
    .name = "shampoo",
    .doc = "inverse roots of gradient covariances on both sides, for matrices; adamw for the rest",
    .knobs = {SK_LR(1e-3), SK_DECAY(0.1), SK_BETAS(0.9, 0.99), SK_DAMPING(1e-6), SK_INTERVAL(10),
              SK_MATCH_RMS(0.2), SK_MAX_SIDE(8192)},
    .pass = {sk_pass_gradient, sk_pass_step},
    .matrix = precondition,
    .exact = true,
    .rest = "adamw",
};
/* clang-format on */
