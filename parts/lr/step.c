/* step.c - the rate is multiplied by a factor at milestones, or every so many steps (He et al.
 * 2016: 0.1 at a third and two thirds of the training or so).
 *
 * Steps are those of the training, warmup included.  Without milestones and without an interval the
 * interval is a third of the training. */
#include "train/lr_schedule.h"

#include <math.h>

enum { FACTOR, EVERY, MILESTONE, MILESTONES = 6 };

static int passed(const sk_lr_now *n)
{
    int k = 0;
    for (int i = 0; i < MILESTONES; i++) {
        double at = n->knob[MILESTONE + i];
        k += at > 0 && (double)n->step >= at;
    }
    return k;
}

static double rate(const sk_lr_now *n)
{
    double every = n->knob[EVERY], times = passed(n);
    if (n->knob[MILESTONE] <= 0) {
        if (every <= 0) every = ceil((double)n->steps / 3);
        times = every > 0 ? floor((double)n->step / every) : 0; /* 0: steps are not known yet */
    }
    return fmax(n->min_lr, n->lr * pow(n->knob[FACTOR], times));
}

/* clang-format off */
#define MILESTONE_AT(i, before) {.name = "milestone" #i, .most = 1e15, .whole = true, \
                                 .key = "schedule_milestones", .fewer = true, \
                                 .at_step = true, \
                                 .over = "milestone" #before}
/* clang-format on */

const sk_lr sk_lr_step = {
    .name = "step",
    .doc = "multiplied by a factor at milestones or at intervals; never below optim.min_lr",
    .knobs = {{"schedule_factor", 0.1, .most = 1, .doc = "factor of a drop"},
              {"schedule_every", 0, .most = 1e15, .whole = true, .unless = "milestone0",
               .doc = "steps between two drops; 0: a third of the training"},
              {.name = "milestone0",
               .most = 1e15,
               .key = "schedule_milestones",
               .whole = true,
               .fewer = true,
               .at_step = true,
               .doc = "steps of the drops, up to six: 300,600; 0: at intervals"},
              MILESTONE_AT(1, 0),
              MILESTONE_AT(2, 1),
              MILESTONE_AT(3, 2),
              MILESTONE_AT(4, 3),
              MILESTONE_AT(5, 4)},
    .rate = rate,
};
