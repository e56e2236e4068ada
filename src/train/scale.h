/* scale.h - the factor of gradients in a type with few exponents, and what follows from a step
 * whose numbers are not finite.
 *
 * Small gradients vanish in f16, so the loss is multiplied on its way back, and they are divided
 * again before the optimizer.  A step that overflows changes nothing: all ranks see it in the same
 * sums, skip it and go on with half the factor; after SK_SCALE_GOOD good ones in a row it is
 * doubled. In other types the factor is 1, and what follows is the job's word (train.nonfinite):
 * stop, or skip, but not for ever. */
#ifndef SK_TRAIN_SCALE_H
#define SK_TRAIN_SCALE_H

#include "tensor/dtype.h"

enum { SK_SCALE_GOOD = 1000, SK_SCALE_SKIPS = 20 };

typedef struct sk_scale {
    double value;
    int64_t good;  /* steps since the factor changed */
    int64_t skips; /* in a row */
    bool moves, skips_others;
} sk_scale;

/* tokens: of a step.  Gradients are those of the sum over them. */
sk_scale sk_scale_begin(sk_dtype type, bool skip, double tokens);
/* After a step.  False: its numbers are not finite, and that is not forgiven. */
bool sk_scale_step(sk_scale *s, bool finite);

#endif
