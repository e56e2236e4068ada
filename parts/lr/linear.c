/* linear.c - a straight line to min_lr, which step `steps` would have. */
#include "train/lr_schedule.h"

static double rate(const sk_lr_now *n) { return sk_lr_between(n, 1 - n->way); }

const sk_lr sk_lr_linear = {
    .name = "linear", .doc = "a straight line to optim.min_lr", .to_end = true, .rate = rate};
