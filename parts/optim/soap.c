/* soap.c - Vyas et al. 2024: Adam in the eigenbasis of Shampoo's preconditioner.
 *
 *     L = average of G G'    R = average of G' G    columns of P, Q: their eigenvectors
 *     Adam's moments of P' G Q, m / (sqrt(v) + eps), turned back: P (...) Q'
 *
 * The first update only makes the bases, as the authors' code does.  Bases are made anew in every
 * `interval`-th update, after the step; the second moments go on in the new one.  The first moments
 * are averages of G, and turned in every step.  A side longer than max_dim is not turned.
 * Eigenvectors come from a full decomposition, not from a step of power iteration. */
#include "kernel/optim.h"

enum { LR, DECAY, BETA1, BETA2, EPS, INTERVAL, MAX_DIM };
enum { PLAIN, DEBIASED }; /* modes of ema; the update that it begins with is its third number */

typedef struct bases {
    int p, q; /* -1: the side is not turned */
} bases;

static int turn(sk_matrix *w, const bases *b, int x)
{
    if (b->p >= 0) x = sk_matrix_op(w, "contract", "rR,rc->Rc", .in = {b->p, x});
    if (b->q >= 0) x = sk_matrix_op(w, "contract", "rc,cC->rC", .in = {x, b->q});
    return x;
}

static int turn_back(sk_matrix *w, const bases *b, int x)
{
    if (b->p >= 0) x = sk_matrix_op(w, "contract", "rR,Rc->rc", .in = {b->p, x});
    if (b->q >= 0) x = sk_matrix_op(w, "contract", "rC,cC->rc", .in = {x, b->q});
    return x;
}

/* The basis of one side, for the next updates. */
static void renew(sk_matrix *w, bool rows, int basis)
{
    int factor = w->state(w, rows ? "l" : "r", rows ? "rR" : "cC");
    int gram = sk_matrix_op(w, "contract", rows ? "rc,Rc->rR" : "rc,rC->cC", .in = {0, 0});
    w->keep(w, factor,
            sk_matrix_op(w, "ema", rows ? "rR,rR->rR" : "cC,cC->cC", .in = {factor, gram},
                         .attr = {w->knob[BETA2], PLAIN}));
    w->every(w, (int)w->knob[INTERVAL]);
    w->keep(w, basis, sk_matrix_op(w, "eigvec", rows ? "rR->rR" : "cC->cC", .in = {factor}));
    w->every(w, 1);
}

static int average(sk_matrix *w, int state, int x, double beta)
{
    x = sk_matrix_op(w, "ema", "rc,rc->rc", .in = {state, x}, .attr = {beta, DEBIASED, 1});
    w->keep(w, state, x);
    return x;
}

static int adam(sk_matrix *w)
{
    bool rows = (double)w->rows <= w->knob[MAX_DIM], cols = (double)w->cols <= w->knob[MAX_DIM];
    bases b = {rows ? w->state(w, "p", "rR") : -1, cols ? w->state(w, "q", "cC") : -1};
    int m = w->state(w, "m", "rc"), v = w->state(w, "v", "rc"), g = turn(w, &b, 0);
    int m1 = turn(w, &b, average(w, m, 0, w->knob[BETA1]));
    int v1 = average(w, v, sk_matrix_op(w, "mul", "rc,rc->rc", .in = {g, g}), w->knob[BETA2]);
    int x = sk_matrix_op(w, "ratio", "rc,rc->rc", .in = {m1, v1}, .attr = {w->knob[EPS]});
    x = turn_back(w, &b, x);
    if (rows) renew(w, true, b.p);
    if (cols) renew(w, false, b.q);
    return x;
}

/* clang-format off */
const sk_optim sk_optim_soap = {
    .name = "soap",
    .doc = "Adam in the eigenbasis of Shampoo's preconditioner, for matrices; adamw for the rest",
    .knobs = {SK_LR(3e-3), SK_DECAY(0.01), SK_BETAS(0.95, 0.95), SK_EPS(1e-8), SK_INTERVAL(10),
              SK_MAX_SIDE(8192)},
    .pass = {sk_pass_gradient, sk_pass_step},
    .matrix = adam,
    .exact = true,
    .rest = "adamw",
};
/* clang-format on */
