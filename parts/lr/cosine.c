/* cosine.c - half a cosine to min_lr (Loshchilov and Hutter 2017, one cycle). */
#include "train/lr_schedule.h"

static double rate(const sk_lr_now *n) { return sk_lr_between(n, sk_lr_cosine_left(n->way)); }

const sk_lr sk_lr_cosine = {
    .name = "cosine", .doc = "half a cosine to optim.min_lr", .to_end = true, .rate = rate};
