/* lr_schedule.h - the learning rate of a step.
 *
 * The rate rises linearly over the first `warmup` steps and reaches lr on the last of them.  The
 * steps behind the warmup belong to a schedule, parts/lr/NAME.c:
 *
 *     enum { POWER };
 *     static double rate(const sk_lr_now *n) { return sk_lr_between(n, pow(1 - n->way,
 * n->knob[POWER])); } const sk_lr sk_lr_polynomial = { .name = "polynomial", .doc = "...", .to_end
 * = true, .rate = rate, .knobs = {{"schedule_power", 2, .least = 0, .most = 100, .doc =
 * "exponent"}}};
 *
 * A schedule declares its numbers as optimizers do (kernel/optim.h); they are the keys
 * `optim.schedule_X`.  It is a function of the step and of the number of steps alone, so that a
 * resumed run goes on exactly where it was.
 *
 * `steps` 0 says that the number of steps is not known yet (train.time is still being measured):
 * a schedule that goes `to_end` then stays at lr.  The checkpoint has the number once it is known.
 *
 * A schedule may cycle the momentum too.  Its value replaces the knobs of the optimizer whose role
 * is SK_KNOB_MOMENTUM: beta1 of Adam, momentum of SGD.  One that is 0 stays 0. */
#ifndef SK_TRAIN_LR_SCHEDULE_H
#define SK_TRAIN_LR_SCHEDULE_H

#include "base/status.h"
#include "kernel/optim.h"

#include <stdint.h>

enum { SK_MAX_LR_KNOB = 8 };

/* A step behind the warmup, as a schedule sees it. */
typedef struct sk_lr_now {
    double lr, min_lr;  /* the peak and the end */
    int64_t step;       /* of the training, from 0 */
    int64_t warmup;     /* steps of it before the schedule; 0 where the schedule rises by itself */
    int64_t steps;      /* of the training; 0: not known yet */
    double way;         /* from 0 at the end of the warmup to 1 at `steps`; 0 if not known */
    const double *knob; /* in the order of sk_lr.knobs */
} sk_lr_now;

typedef struct sk_lr {
    const char *name, *doc;
    sk_knob knobs[SK_MAX_LR_KNOB + 1];
    /* From lr to min_lr over the training: `rate` is asked between these only, with steps known. */
    bool to_end;
    bool rises; /* by itself: optim.warmup does not apply */
    bool level; /* never falls: optim.min_lr does not apply */
    double (*rate)(const sk_lr_now *n);
    double (*momentum)(const sk_lr_now *n); /* NULL, or: over 0, or 0: the optimizer's own */
} sk_lr;

extern const sk_lr *const sk_lr_parts[]; /* every file in parts/lr; NULL ends it */

/* left 1: lr; 0: min_lr */
static inline double sk_lr_between(const sk_lr_now *n, double left)
{
    return n->min_lr + (n->lr - n->min_lr) * left;
}
/* Half a cosine from 1 at way 0 to 0 at way 1. */
double sk_lr_cosine_left(double way);

typedef struct sk_lr_schedule {
    const sk_lr *part;
    double lr, min_lr;
    int64_t warmup, steps;
    double knob[SK_MAX_LR_KNOB];
} sk_lr_schedule;

const sk_lr *sk_lr_named(const char *name); /* NULL: there is none */
sk_status sk_lr_find(const char *name, const sk_lr **out);
double sk_lr_at(const sk_lr_schedule *r, int64_t step); /* step counts from 0 */
/* The first step whose rate is below that of the step before it; -1: there is none, or the number
 * of steps is not known. */
int64_t sk_lr_first_fall(const sk_lr_schedule *r);
/* The momentum of the step; 0: that of the optimizer. */
double sk_lr_momentum(const sk_lr_schedule *r, int64_t step);

#endif
