/* onecycle.c - Smith 2018, the 1cycle policy: the rate rises to lr over the first part of the
 * training and anneals to min_lr; momentum goes the other way.
 *
 * As PyTorch's OneCycleLR with two phases of half cosines (pct_start, div_factor, cycle_momentum);
 * the end is optim.min_lr, not a division of the start.  The rise is a warmup: optim.warmup does
 * not apply.  While the number of steps is not known the rate is that of the first step. */
#include "train/lr_schedule.h"

#include <math.h>

enum { START, DIV, LOW, HIGH };

/* 0 at both ends of the training, 1 at the peak, which may lie between two steps; *falls: behind
 * it. */
static double height(const sk_lr_now *n, bool *falls)
{
    double at = (double)n->step, last = (double)n->steps - 1;
    double peak = fmax(0, n->knob[START] * (double)n->steps - 1);
    *falls = n->steps && at > peak;
    if (!n->steps) return 0;
    if (!*falls) return peak > 0 ? 1 - sk_lr_cosine_left(at / peak) : 1;
    return at >= last ? 0 : sk_lr_cosine_left((at - peak) / (last - peak));
}

static double rate(const sk_lr_now *n)
{
    bool falls;
    double h = height(n, &falls), from = falls ? n->min_lr : n->lr / n->knob[DIV];
    return from + (n->lr - from) * h;
}

static double momentum(const sk_lr_now *n)
{
    bool falls;
    double low = n->knob[LOW], high = n->knob[HIGH];
    if (low <= 0 || high <= 0) return 0;
    return high - (high - low) * height(n, &falls);
}

const sk_lr sk_lr_onecycle = {
    .name = "onecycle",
    .doc = "1cycle: up to optim.lr, down to optim.min_lr; momentum goes the other way",
    .knobs = {{"schedule_start", 0.3, .most = 1,
               .doc = "part of the steps in which the rate rises"},
              {"schedule_div", 25, .least = 1, .most = 1e9,
               .doc = "the first rate is optim.lr divided by this"},
              {.name = "low",
               .usual = 0.85,
               .most = SK_BELOW_ONE,
               .key = "schedule_momentum",
               .doc = "momentum at peak and ends; 0, 0: the optimizer's"},
              {.name = "high", .usual = 0.95, .most = SK_BELOW_ONE, .key = "schedule_momentum"}},
    .rises = true,
    .rate = rate,
    .momentum = momentum,
};
