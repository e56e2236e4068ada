/* muon.c - Jordan et al. 2024: momentum whose matrix is made orthogonal.
 *
 * The first pass leaves the (Nesterov) momentum u.  Its matrix is replaced by U V' of its singular
 * value decomposition, approximately: after division by its norm, a polynomial of degree five that
 * drives singular values from (0, 1] towards 1 is applied five times (Newton-Schulz), with Jordan's
 * coefficients, on the smaller side of the matrix.  Liu et al. 2025 (Moonlight): scaled by
 * match_rms sqrt(max(rows, cols)), the step has the root mean square of a step of AdamW, whose rate
 * and decay it can take over; match 0 scales by sqrt(max(1, outputs / inputs)) instead, as Jordan
 * does.
 */
#include "kernel/optim.h"

#include <math.h>

enum { LR, MOMENTUM, NESTEROV, STEPS, MATCH, DECAY };
enum { M, U }; /* momentum, and the direction between the passes */

static void direction(sk_piece *p)
{
    real mu = p->knob[MOMENTUM], scale = p->scale, more = p->knob[NESTEROV] > 0 ? 1 : 0;
    const real *restrict grad = p->grad;
    real *restrict m = p->state[M], *restrict u = p->state[U];
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) {
        real g = grad[i] * scale;
        m[i] = mu * m[i] + g;
        u[i] = more > 0 ? g + mu * m[i] : m[i];
    }
}

/* Divided by its norm; a cut matrix by the norm of all parts. */
static int unit(sk_matrix *w)
{
    if (!w->cut) return sk_matrix_op(w, "unit", "rc->rc", .attr = {1e-7});
    int squares = sk_matrix_op(w, "dot", "rc,rc->", .in = {0, 0});
    return sk_matrix_op(w, "unit_by", "rc,->rc", .in = {0, squares}, .attr = {1e-7});
}

/* On the smaller side; of a square, on the one that is not cut. */
static int orthogonalize(sk_matrix *w)
{
    static const double a = 3.4445, b = -4.7750, c = 2.0315;
    bool wide = w->rows < w->cols || (w->rows == w->cols && w->cut != 'r');
    double rows = (double)w->rows, cols = (double)w->cols;
    double out_over_in = w->rows_out ? rows / cols : cols / rows;
    double scale =
        w->knob[MATCH] > 0 ? w->knob[MATCH] * sqrt(fmax(rows, cols)) : sqrt(fmax(1, out_over_in));
    int steps = (int)w->knob[STEPS], x = unit(w);
    for (int i = 1; i <= steps; i++) {
        double s = i == steps ? scale : 1;
        int g = sk_matrix_op(w, "contract", wide ? "rc,Rc->rR" : "rc,rC->cC", .in = {x, x});
        int gg = sk_matrix_op(w, "contract", wide ? "rR,RS->rS" : "cC,CD->cD", .in = {g, g});
        int p = sk_matrix_op(w, "axpby", wide ? "rR,rR->rR" : "cC,cC->cC", .in = {g, gg},
                             .attr = {b, c});
        int px = wide ? sk_matrix_op(w, "contract", "rR,Rc->rc", .in = {p, x})
                      : sk_matrix_op(w, "contract", "rC,Cc->rc", .in = {x, p});
        x = sk_matrix_op(w, "axpby", "rc,rc->rc", .in = {x, px}, .attr = {s * a, s});
    }
    return x;
}

static void apply(sk_piece *p)
{
    real rate = p->knob[LR], keep = 1 - rate * p->knob[DECAY];
    real *restrict w = p->param;
    const real *restrict u = p->state[U];
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) w[i] = keep * w[i] - rate * u[i];
}

/* clang-format off */
const sk_optim sk_optim_muon = {
    .name = "muon",
    .doc = "momentum made orthogonal by Newton-Schulz, for matrices; adamw for the rest",
    .n_state = 1,
    .state = {"m"},
    .knobs = {SK_LR(1e-3), SK_MOMENTUM(0.95),
              {.name = "nesterov", .usual = 1, .most = 1, .doc = "1: Nesterov's momentum",
               .whole = true},
              {.name = "ns_steps", .usual = 5, .least = 1, .most = 8,
               .doc = "Newton-Schulz iterations", .whole = true},
              SK_MATCH_RMS(0.2), SK_DECAY(0.1)},
    .pass = {direction, apply},
    .matrix = orthogonalize,
    .rest = "adamw",
};
/* clang-format on */
