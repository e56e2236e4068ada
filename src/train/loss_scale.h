/* loss_scale.h - dynamic loss scaling in f16, and what follows from a step whose numbers are not
 * finite.
 *
 * Small gradients underflow in f16, so the loss is multiplied by a factor before the backward pass,
 * and gradients are divided by it before the optimizer.  A step that overflows changes nothing: all
 * ranks see it in the same sums, skip it and continue with half the factor; after
 * SK_LOSS_SCALE_GROWTH good ones in a row it is doubled. In other types the factor is 1, and what
 * follows is the job's word (train.nonfinite): stop; skip, but not for ever; or rollback, which the
 * factor leaves to the loop: a loss that is not finite is no fault of the factor, so in f16 too
 * only gradients are the factor's business. */
#ifndef SK_TRAIN_LOSS_SCALE_H
#define SK_TRAIN_LOSS_SCALE_H

#include "tensor/dtype.h"

enum { SK_LOSS_SCALE_GROWTH = 1000, SK_LOSS_SCALE_SKIPS = 20 };

typedef enum sk_nonfinite { SK_STOP, SK_SKIP, SK_ROLLBACK } sk_nonfinite;

typedef struct sk_loss_scale {
    double value;
    int64_t good;    /* steps since the factor changed */
    int64_t skips;   /* in a row */
    int64_t skipped; /* of all steps */
    bool moves;
    sk_nonfinite policy;
} sk_loss_scale;

/* tokens: of a step.  Gradients are those of the sum over them. */
sk_loss_scale sk_loss_scale_begin(sk_dtype type, sk_nonfinite policy, double tokens);
sk_nonfinite sk_nonfinite_find(const char *word); /* "stop", "skip" or "rollback" */
/* After a step with this loss; finite: so is its norm.  False: they are not, and that is not
 * forgiven. */
bool sk_loss_scale_step(sk_loss_scale *s, double loss, bool finite);

#endif
