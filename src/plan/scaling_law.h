/* scaling_law.h - scaling laws: the loss as a sum of powers of parameters and tokens.
 *
 *     SK_LAW_N     L(N)    = E + A / N^alpha                 one number of tokens
 *     SK_LAW_D     L(D)    = E + B / D^beta                  one number of parameters
 *     SK_LAW_ND    L(N, D) = E + A / N^alpha + B / D^beta    (Hoffmann et al. 2022)
 *
 * A fit is the least squares of relative errors with E, A, B >= 0.  For given exponents the law is
 * linear in E, A and B, so that only the exponents are searched (separable least squares, Golub
 * and Pereyra 1973): on a grid over all that are allowed, then by steps that halve.  There are no
 * starting values, and the result depends on nothing but the points.
 *
 * Intervals come from a parametric bootstrap with a fixed seed: the points are drawn again around
 * the law with the spread of their own residuals, and fitted again.  They say how well the points
 * determine the law, and nothing about whether the law holds outside of them.
 *
 *     sk_law law, *draws;
 *     SK_TRY(sk_law_fit(a, SK_LAW_ND, points, n, &law));
 *     int k = sk_law_draws(a, &law, points, n, 200, 1, &draws);
 *     double loss = sk_law_loss(&law, 7e9, 1.4e11);
 */
#ifndef SK_PLAN_SCALING_LAW_H
#define SK_PLAN_SCALING_LAW_H

#include "base/arena.h"
#include "base/status.h"

#include <stdint.h>

typedef enum sk_law_kind { SK_LAW_N, SK_LAW_D, SK_LAW_ND } sk_law_kind;

typedef struct sk_law_point {
    double n, d, loss; /* parameters, tokens, final loss */
} sk_law_point;

typedef struct sk_law {
    sk_law_kind kind;
    double e, a, alpha, b, beta; /* terms that the kind does not have are 0 */
    double spread;               /* of relative residuals, for the degrees of freedom */
    int n_points;
} sk_law;

/* Are there so many points, of so many sizes, whatever their losses? */
sk_status sk_law_enough(sk_law_kind kind, const sk_law_point *p, int n);

/* SK_EDATA with a sentence: a loss, N or D that is no positive number; too few points; sizes that
 * are too few or go together; losses that do not fall, or fall faster than any power searched. */
sk_status sk_law_fit(sk_arena *a, sk_law_kind kind, const sk_law_point *p, int n, sk_law *out);

double sk_law_loss(const sk_law *l, double n, double d);

/* The law refitted to n_draws drawn sets of points; returns how many of them could be fitted. */
int sk_law_draws(sk_arena *a, const sk_law *l, const sk_law_point *p, int n, int n_draws,
                 uint64_t seed, sk_law **out);

/* The parameters and tokens of lowest loss with compute C = 6 N D; of a law of both. */
void sk_law_optimum(const sk_law *l, double compute, double *n, double *d);

#endif
