/* price_fit.h - the numbers of links, fitted to what collectives took, and how far off that leaves
 * them.
 *
 * Both models of coll/choose.h and coll/loggp.h are sums of numbers times counts, so fitting one is
 * least squares of relative errors with no number below zero.  The counts of a closed form do not
 * depend on the numbers.  Those of LogGP do, as the longest way does: they are counted anew with
 * the numbers found, until that changes nothing.
 *
 *     alpha-beta   alpha, each, beta, beta incast, gamma
 *     LogGP        L, g, G, G incast, gamma; o is measured (sk_coll_timing.start): no time of a
 *                  whole call tells it from L.  Where that o fits much worse than none, or than
 *                  `each` of alpha-beta, the better of these is taken
 *
 * Gamma stays 0 where all points add, since sums then grow as bytes do.  All members are on hosts
 * of their own. */
#ifndef SK_PLAN_PRICE_FIT_H
#define SK_PLAN_PRICE_FIT_H

#include "coll/loggp.h"

typedef struct sk_fit_point {
    int algorithm;
    sk_coll_ask ask;
    int64_t bytes;
    double seconds;
    double burst; /* bytes in the bucket of a link, for LogGP; 0: there is none */
} sk_fit_point;

typedef struct sk_fit { /* of a model to points */
    double number[SK_LOGGP_N];
    double median, worst; /* of |said / took - 1| */
    double squares;       /* the sum of their squares */
    int worst_at;         /* a point */
} sk_fit;

enum { SK_FIT_LEAST = 6 }; /* points */

/* number[]: alpha, each, 0, beta, beta incast, gamma, at the places of sk_loggp_number. */
sk_status sk_fit_alpha_beta(sk_arena *a, const sk_fit_point *v, int n, sk_fit *out);
sk_status sk_fit_loggp(sk_arena *a, const sk_fit_point *v, int n, double overhead, sk_fit *out);
/* What a model says of a point. */
double sk_fit_said(const sk_fit *f, bool loggp, const sk_fit_point *p);

/* Least squares of x . row = 1 with x >= 0 for n rows of k <= SK_LOGGP_N columns, exactly: the best
 * of all sets of columns. */
void sk_fit_rows(const double *row, int n, int k, double *x);

#endif
