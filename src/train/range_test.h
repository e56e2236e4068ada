/* range_test.h - the learning-rate range test (Smith 2015): a short training whose rate grows
 * exponentially, and what its losses say about the rate.
 *
 *     sk_range r = {.from = 1e-6, .to = 1, .steps = 100, .factor = 1.5};
 *     SK_TRY(sk_range_test(a, &setup, &r, &curve));
 *     sk_range_advice advice = sk_range_read(a, &curve);
 *
 * Step s of n has the rate from (to / from)^(s / (n - 1)), without warmup or schedule.  The test
 * ends early when the smoothed loss is `factor` times the loss of the first step, or is not finite.
 *
 * Ranks are processes of this host, on any layout and device.  They start from the job's first
 * weights and see the batches that a training would see first; nothing is written. */
#ifndef SK_TRAIN_RANGE_TEST_H
#define SK_TRAIN_RANGE_TEST_H

#include "train/setup.h"

enum { SK_RANGE_STEPS = 10000, SK_RANGE_LEAST = 10 }; /* the most and the fewest steps */

typedef struct sk_range_point {
    double lr, loss;
} sk_range_point;

typedef struct sk_range {
    double from, to; /* 0 < from < to */
    int steps;       /* from SK_RANGE_LEAST to SK_RANGE_STEPS */
    double factor;   /* over 1 */
    /* NULL, or: called by rank 0 after each step. */
    void (*tell)(int step, int steps, const sk_range_point *p);
} sk_range;

typedef struct sk_range_curve {
    sk_range_point v[SK_RANGE_STEPS];
    int n;               /* points with a finite loss */
    bool diverged;       /* the test ended early, by the last of its steps: */
    sk_range_point last; /* its loss may not be finite */
} sk_range_curve;

/* The setup has its data: sk_setup_run, sk_setup_data. */
sk_status sk_range_test(sk_arena *a, const sk_setup *s, const sk_range *r, sk_range_curve *out);
double sk_range_rate(const sk_range *r, int step);

/* The smoothed curve is a line fitted to the neighbours of each point, so it does not lag behind
 * the losses as a running mean does. */
typedef struct sk_range_advice {
    double *smooth;       /* of each point */
    int lowest, steepest; /* points: the lowest smoothed loss; the steepest descent before it */
    double noise;         /* standard deviation of a loss, from the differences of neighbours */
    bool falls;           /* the loss falls by half a per cent, and by more than twice the noise */
    int settled;          /* falls: the first point with nine tenths of the fall done */
    int edge;             /* falls: the first behind the lowest with a tenth of it lost; -1: none */
    double lr; /* falls: 2/3 of the settled point's, at most 1/3 of the lowest's; if it diverged,
                  the middle of that one and edge / 3 */
} sk_range_advice;

sk_range_advice sk_range_read(sk_arena *a, const sk_range_curve *c);

#endif
