/* polynomial.c - a power of what is left of the training.  1 is a straight line; larger powers fall
 * early and arrive flat, powers below 1 fall at the end (0.9: Chen et al. 2017, DeepLab). */
#include "train/lr_schedule.h"

#include <math.h>

enum { POWER };

static double rate(const sk_lr_now *n) { return sk_lr_between(n, pow(1 - n->way, n->knob[POWER])); }

const sk_lr sk_lr_polynomial = {
    .name = "polynomial",
    .doc = "a power of the remaining part of the training, to optim.min_lr",
    .knobs = {{"schedule_power", 2, .most = 100, .doc = "exponent; 1: a straight line"}},
    .to_end = true,
    .rate = rate,
};
