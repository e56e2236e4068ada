/* lr_schedule.h - the learning rate of a step.
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
#ifndef SK_TRAIN_LR_SCHEDULE_H
#define SK_TRAIN_LR_SCHEDULE_H

#include "base/status.h"

#include <stdint.h>

typedef enum sk_lr_kind { SK_LR_CONSTANT, SK_LR_COSINE, SK_LR_LINEAR } sk_lr_kind;

typedef struct sk_lr_schedule {
    sk_lr_kind kind;
    double lr, min_lr;
    int64_t warmup, steps;
} sk_lr_schedule;

sk_status sk_lr_find(const char *name, sk_lr_kind *out);
double sk_lr_at(const sk_lr_schedule *r, int64_t step); /* step counts from 0 */

#endif
