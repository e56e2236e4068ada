/* rate.h - the learning rate of a step.
 *
 * A linear rise over the first `warmup` steps, reaching lr on the last of them,
 * then one of:
 *
 *     constant   lr
 *     linear     from lr down to min_lr, which step `steps` would have
 *     cosine     the same along half a cosine (Loshchilov and Hutter 2017)
 *
 * `steps` 0 says that the number is not known yet (train.time is still being
 * measured): the rate then stays at lr after the rise.  A function of the step
 * alone, so that a resumed run goes on exactly where it was. */
#ifndef SK_TRAIN_RATE_H
#define SK_TRAIN_RATE_H

#include "base/status.h"

#include <stdint.h>

typedef enum sk_rate_kind { SK_RATE_CONSTANT, SK_RATE_COSINE, SK_RATE_LINEAR } sk_rate_kind;

typedef struct sk_rate {
    sk_rate_kind kind;
    double lr, min_lr;
    int64_t warmup, steps;
} sk_rate;

sk_status sk_rate_find(const char *name, sk_rate_kind *out);
double sk_rate_at(const sk_rate *r, int64_t step); /* step counts from 0 */

#endif
