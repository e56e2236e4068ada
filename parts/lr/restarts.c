/* restarts.c - cosine with warm restarts (Loshchilov and Hutter 2017, SGDR): half cosines from lr
 * to min_lr, each `mult` times as long as the one before.
 *
 * Without a period the first one is as long as lets three of them fill the training: a seventh of
 * it where each is twice as long. */
#include "train/lr_schedule.h"

#include <math.h>

enum { PERIOD, MULT };

static double rate(const sk_lr_now *n)
{
    double at = (double)(n->step - n->warmup), period = n->knob[PERIOD], mult = n->knob[MULT];
    if (period <= 0 && n->steps > n->warmup)
        period = ceil((double)(n->steps - n->warmup) / (1 + mult + mult * mult));
    if (period <= 0) return n->lr; /* steps are not known yet, or all are warmup */
    if (mult <= 1) at = fmod(at, period);
    for (; at >= period; period *= mult) at -= period; /* mult 2 and more: some 50 times at most */
    return sk_lr_between(n, sk_lr_cosine_left(at / period));
}

const sk_lr sk_lr_restarts = {
    .name = "restarts",
    .doc = "cosine with warm restarts, to optim.min_lr again and again",
    .knobs = {{"schedule_period", 0, .most = 1e15, .whole = true,
               .doc = "steps of the first cosine; 0: three fill the training"},
              {"schedule_mult", 2, .least = 1, .most = 16, .whole = true,
               .doc = "each cosine is so many times as long as the one before"}},
    .rate = rate,
};
