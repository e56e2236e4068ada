/* bench_choice.h - the algorithm that would be chosen, beside the fastest one by the clock. */
#ifndef SK_CLI_BENCH_CHOICE_H
#define SK_CLI_BENCH_CHOICE_H

#include "coll/choose.h"
#include "plan/coll_timing.h"

/* All points are timed so many times, one after the other; then the choice, the best and the choice
 * again of each row. */
enum { SK_CHOICE_TURNS = 5, SK_CHOICE_PAIRS = 9 };
#define SK_CHOICE_NEAR \
    1.05 /* a choice that takes no more times as long as the best is a good one */

typedef struct sk_choice_times {
    const sk_coll_spec *spec;   /* [n] points of a turn */
    const sk_coll_timing *time; /* [SK_CHOICE_TURNS * n] */
    int n;
    const int *host_of; /* NULL: one host */
    const sk_costs *costs;
    bool any_order; /* sums may be in an order of their own */
} sk_choice_times;

typedef struct sk_choice_row { /* of a kind and a size */
    int chosen, best,
        fastest; /* points; best: of those that may be chosen without being asked for */
    int hosts;
    double predicted; /* seconds */
    double ratio;     /* chosen over best */
    double pair[2];   /* seconds of the two that the ratio is of */
    double noise;     /* of the ratio: by so much it may be off without a cause */
} sk_choice_row;

/* What a call of the kind asks an algorithm for, among ranks 0 to n - 1. */
sk_coll_ask sk_choice_ask(sk_arena *a, sk_coll_kind kind, int n, const int *host_of,
                          bool any_order);
/* Do two points send the same to the same?  Such lists have different names only. */
bool sk_choice_same(const sk_coll_ask *ask, const sk_coll_spec *x, const sk_coll_spec *y);

/* turn[i]: seconds of the choice, of the best, of the choice again.  The ratio is the median of the
 * turns, the choice being the mean of its two times; the pair is of that turn.  Noise is twice the
 * median difference between the two times of the choice: ratios of two such times are off by less
 * in about five of six turns, and their median by less than that. */
void sk_choice_pair(sk_choice_row *r, double (*turn)[3]);
/* Is the choice slower than the best by more than 5 % and than noise? */
bool sk_choice_missed(const sk_choice_row *r);

/* Rows whose ratio is that of the times.  The best of many noisy times is one that had luck, so
 * that the two should be timed once more. */
int sk_choice_rows(sk_arena *a, const sk_choice_times *t, sk_choice_row **rows);

/* A line for each row, then how far choices are from the best. */
sk_status sk_choice_show(sk_arena *a, const sk_choice_times *t, const sk_choice_row *rows, int n,
                         const char *format);
double sk_choice_median(double *v, int n); /* sorts them */
/* "butterfly:4x2": the algorithm of a point with its degrees. */
const char *sk_spec_name(sk_arena *a, const sk_coll_spec *s);

#endif
