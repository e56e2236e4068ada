/* constant.c - the rate stays as the warmup leaves it. */
#include "train/lr_schedule.h"

static double rate(const sk_lr_now *n) { return n->lr; }

const sk_lr sk_lr_constant = {
    .name = "constant", .doc = "stays at optim.lr", .level = true, .rate = rate};
