/* metrics_read.h - the curves of a run, from its metrics.jsonl (metrics.h).
 *
 * A loss of a single batch is noisy.  "The training loss at step s" is the mean over the last
 * tenth of the steps until s, rounded up: of step 10 its own loss, of step 200 the mean of 20.
 * The window grows with the run, so that runs of different lengths and batch sizes are
 * treated alike.  The validation loss is taken as it is.
 *
 * A run reaches a target at the first validation at or below it; steps, tokens and seconds are
 * interpolated on the line from the validation before.  Without validations: at the first step
 * whose training loss, as above, is at or below it.  Seconds are those of training steps alone:
 * validations, checkpoints and samples are not in them. */
#ifndef SK_TRAIN_METRICS_READ_H
#define SK_TRAIN_METRICS_READ_H

#include "base/arena.h"
#include "base/file_io.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sk_curve_point {
    int64_t step;
    double loss;            /* NAN: was not finite */
    double accuracy;        /* of a validation of a classifier; else NAN */
    double noise;           /* noise scale, in samples (train.noise); NAN: none */
    double lr;              /* of a step; NAN: none */
    double tokens, seconds; /* since the beginning */
} sk_curve_point;

typedef struct sk_curve {
    struct {
        sk_curve_point *v;
        int n, cap;
    } train, val;
} sk_curve;

/* A file that is not there is a run without steps.  Lines that are cut or no step's are left out:
 * the run may be writing, or may have been killed while it did. */
sk_status sk_curve_read(sk_arena *a, const char *path, sk_curve *out);
/* Of the text of such a file. */
void sk_curve_lines(sk_arena *a, sk_text t, sk_curve *out);

/* At the end; NAN: there is none. */
double sk_curve_loss(const sk_curve *c), sk_curve_val(const sk_curve *c);
double sk_curve_accuracy(const sk_curve *c);

/* Where the target is reached, by validations or by training losses; false: never. */
bool sk_curve_reach(const sk_curve *c, bool val, double target, sk_curve_point *out);

#endif
