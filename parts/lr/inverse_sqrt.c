/* inverse_sqrt.c - Vaswani et al. 2017: lr sqrt(T / (T + s)), s steps behind the warmup.
 *
 * With T = warmup, the default, this is the rate of the Transformer paper: lr sqrt(warmup / step).
 * The number of steps does not matter, so a run can be made longer at any time. */
#include "train/lr_schedule.h"

#include <math.h>

enum { TIMESCALE };

static double rate(const sk_lr_now *n)
{
    double scale = n->knob[TIMESCALE] > 0 ? n->knob[TIMESCALE] : fmax(1, (double)n->warmup);
    return fmax(n->min_lr, n->lr * sqrt(scale / (scale + (double)(n->step - n->warmup))));
}

const sk_lr sk_lr_inverse_sqrt = {
    .name = "inverse_sqrt",
    .doc = "falls with the inverse root of the step; never below optim.min_lr",
    .knobs = {{"schedule_timescale", 0, .most = 1e15, .whole = true,
               .doc = "steps to 0.707 of the peak; 0: as optim.warmup"}},
    .rate = rate,
};
