/* adafactor.c - Shazeer and Stern 2018: second moments of a matrix as one number a row and a
 * column, as PyTorch has it.
 *
 *     r = average of G^2 over a row      c = over a column      v_ij = r_i c_j / mean(r)
 *     U = G / sqrt(v), divided by max(1, rms(U) / clip)
 *     W -= max(eps2, rms(W)) min(lr, 1 / sqrt(t)) U
 *
 * The averages have the weight t^(-decay_rate) for the t-th gradient.  rms(W) is that of the
 * weights before the step, over the whole tensor; rms(U) is that of each matrix. */
#include "kernel/optim.h"

#include <math.h>

enum { LR, DECAY, DECAY_RATE, EPS1, EPS2, CLIP };
enum { BY_COUNT = 2 };   /* mode of ema */
enum { WEIGHT2, COUNT }; /* sums: squares of the weights, and how many there are */

static void weights(sk_piece *p)
{
    double sum = 0;
    for (int64_t i = 0; i < p->n; i++) sum += (double)p->param[i] * (double)p->param[i];
    p->sum[WEIGHT2] = sum;
    p->sum[COUNT] = (double)p->n;
}

static int factor(sk_matrix *w)
{
    int r = w->state(w, "r", "r"), c = w->state(w, "c", "c"), x;
    x = sk_matrix_op(w, "mean_square", "rc->r", .in = {0});
    w->keep(
        w, r,
        sk_matrix_op(w, "ema", "r,r->r", .in = {r, x}, .attr = {w->knob[DECAY_RATE], BY_COUNT}));
    x = sk_matrix_op(w, "mean_square", "rc->c", .in = {0});
    w->keep(
        w, c,
        sk_matrix_op(w, "ema", "c,c->c", .in = {c, x}, .attr = {w->knob[DECAY_RATE], BY_COUNT}));
    x = sk_matrix_op(w, "factored", "rc,r,c->rc", .in = {0, r, c}, .attr = {w->knob[EPS1]});
    return sk_matrix_op(w, "rms_clip", "rc->rc", .in = {x}, .attr = {w->knob[CLIP]});
}

static void apply(sk_piece *p)
{
    const float *k = p->knob;
    double rms = p->sum[COUNT] > 0 ? sqrt(p->sum[WEIGHT2] / p->sum[COUNT]) : 0;
    double rho = fmin((double)k[LR], 1 / sqrt((double)p->step));
    real rate = (real)(fmax((double)k[EPS2], rms) * rho), keep = 1 - k[LR] * k[DECAY];
    real *restrict w = p->param;
    const real *restrict u = p->state[0];
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) w[i] = keep * w[i] - rate * u[i];
}

/* clang-format off */
const sk_optim sk_optim_adafactor = {
    .name = "adafactor",
    .doc = "second moments of every matrix by rows and columns, steps relative to the weights",
    .n_sums = 2,
    .knobs = {SK_LR(1e-2), SK_DECAY(0), SK_ADAFACTOR},
    .pass = {weights, sk_pass_gradient, apply},
    .matrix = factor,
    .every_matrix = true,
    .exact = true,
    .rest = "adafactor-vector",
};
/* clang-format on */
