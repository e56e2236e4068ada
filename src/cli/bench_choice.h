/* bench_choice.h - the algorithm that would be chosen, beside the fastest one by the clock. */
#ifndef SK_CLI_BENCH_CHOICE_H
#define SK_CLI_BENCH_CHOICE_H

#include "coll/choose.h"
#include "plan/coll_timing.h"

enum { SK_CHOICE_TURNS = 5 }; /* all points are timed so many times, one after the other */

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
} sk_choice_row;

/* The turn of the median ratio of chosen and best, of SK_CHOICE_TURNS: its times are the pair. */
void sk_choice_pair(sk_choice_row *r, double (*turn)[2]);

/* Rows whose ratio is that of the times.  The best of many noisy times is one that had luck, so
 * that the two should be timed once more. */
int sk_choice_rows(sk_arena *a, const sk_choice_times *t, sk_choice_row **rows);

/* A line for each row, then how far choices are from the best. */
sk_status sk_choice_show(sk_arena *a, const sk_choice_times *t, const sk_choice_row *rows, int n,
                         const char *format);
double sk_choice_median(double *v, int n); /* sorts them */

#endif
