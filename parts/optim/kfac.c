/* kfac.c - Martens and Grosse 2015, Osawa et al. 2019: the Fisher matrix of a product's weight as
 * the Kronecker product of two covariances, which are inverted side by side.
 *
 *     A = average of a a' over inputs      G = of g g' over gradients of results
 *     step = (A + d I)^-1 M (G + d I)^-1
 *
 * M is the average of gradients.  A and G are sums over the samples of a step, from the labels of
 * the batch (the empirical Fisher matrix); averages weigh steps alike.  A and G are taken in, and
 * computed and reduced at all, in every `factor_interval`-th update; inverses are made anew in
 * every `interval`-th, by Cholesky factorisations.  Pauloski et al. 2020 take ten factors to an
 * inverse, as 1 and 10 are.  A side that has no factor is left as it is.  d is `damping` times the
 * mean eigenvalue of its factor, so that the two are as Martens and Grosse's, which divide one
 * number by the ratio pi of the traces.  The scale of A and G, which have the number of tokens and
 * the loss scale in them, drops out: damping is relative, and the step is scaled to the root mean
 * square of a step of AdamW. */
#include "kernel/optim.h"

#include <math.h>

enum { LR, DECAY, BETA1, BETA2, DAMPING, INTERVAL, MATCH, FACTORS };
enum { DEBIASED = 1 }; /* mode of ema */

/* The inverse of the factor of one side, -1: there is none. */
static int inverse(sk_matrix *w, bool rows)
{
    int now = w->factor(w, rows), factors = (int)w->knob[FACTORS];
    if (now < 0) return -1;
    int factor = w->state(w, rows ? "rows" : "cols", rows ? "rR" : "cC");
    int inverted = w->state(w, rows ? "rows_inv" : "cols_inv", rows ? "rR" : "cC");
    w->every(w, factors);
    w->keep(w, factor,
            sk_matrix_op(w, "ema", rows ? "rR,rR->rR" : "cC,cC->cC", .in = {factor, now},
                         .attr = {w->knob[BETA2], DEBIASED, 0, factors}));
    w->every(w, (int)w->knob[INTERVAL]);
    w->keep(w, inverted,
            sk_matrix_op(w, "inverse", rows ? "rR->rR" : "cC->cC", .in = {factor},
                         .attr = {w->knob[DAMPING]}));
    w->every(w, 1);
    return inverted;
}

static int precondition(sk_matrix *w)
{
    int m = w->state(w, "m", "rc"), left = inverse(w, true), right = inverse(w, false);
    int x = sk_matrix_op(w, "ema", "rc,rc->rc", .in = {m, 0}, .attr = {w->knob[BETA1], DEBIASED});
    double size = w->knob[MATCH] * sqrt((double)w->rows * (double)w->cols);
    w->keep(w, m, x);
    if (left >= 0) x = sk_matrix_op(w, "contract", "rR,Rc->rc", .in = {left, x});
    if (right >= 0) x = sk_matrix_op(w, "contract", "rC,Cc->rc", .in = {x, right});
    x = sk_matrix_op(w, "unit", "rc->rc", .in = {x}, .attr = {1e-30});
    return sk_matrix_op(w, "axpby", "rc,rc->rc", .in = {x, x}, .attr = {size, 0});
}

/* clang-format off */
const sk_optim sk_optim_kfac = {
    .name = "kfac",
    .doc = "inverse Kronecker factors of the Fisher matrix, for matrices; adamw for the rest",
    .knobs = {SK_LR(1e-3), SK_DECAY(0.1), SK_BETAS(0.9, 0.95), SK_DAMPING(1), SK_INTERVAL(10),
              SK_MATCH_RMS(0.2), SK_FACTOR_INTERVAL(1)},
    .pass = {sk_pass_gradient, sk_pass_step},
    .matrix = precondition,
    .factors = true,
    .factor_interval = 1 + FACTORS,
    .exact = true,
    .rest = "adamw",
};
/* clang-format on */
