/* wsd.c - warmup, stable, decay (Hu et al. 2024, MiniCPM): the rate stays at lr and falls to min_lr
 * over the last part of the training.
 *
 * A run can be prolonged from any checkpoint of the stable part.  Hagele et al. 2024 find one minus
 * the root of the decay's part (minus_sqrt) and a fifth of the steps as good as a cosine; names and
 * formulas of the shapes are those of Megatron-LM. */
#include "train/lr_schedule.h"

#include <math.h>

enum { DECAY, SHAPE };
enum { LINEAR, COSINE, MINUS_SQRT, EXPONENTIAL };

static double left(int shape, double t)
{
    switch (shape) {
    case COSINE:
        return sk_lr_cosine_left(t);
    case MINUS_SQRT:
        return 1 - sqrt(t);
    case EXPONENTIAL:
        return 2 * pow(0.5, t) - 1;
    default:
        return 1 - t;
    }
}

/* The decay is counted in steps of the training, so that a longer warmup does not shorten it. */
static double rate(const sk_lr_now *n)
{
    double length = ceil(n->knob[DECAY] * (double)n->steps), begin = (double)n->steps - length;
    if (begin < (double)n->warmup) begin = (double)n->warmup, length = (double)n->steps - begin;
    double t = ((double)n->step - begin) / length;
    return t <= 0 || length <= 0 ? n->lr : sk_lr_between(n, left((int)n->knob[SHAPE], t));
}

const sk_lr sk_lr_wsd = {
    .name = "wsd",
    .doc = "warmup, stable, decay: optim.lr, then down to optim.min_lr at the end",
    .knobs = {{"schedule_decay", 0.2, .most = 1,
               .doc = "part of the steps in which the rate falls"},
              {"schedule_shape", MINUS_SQRT, .most = EXPONENTIAL, .whole = true,
               .words = "linear cosine minus_sqrt exponential",
               .doc = "linear, cosine, minus_sqrt or exponential"}},
    .to_end = true,
    .rate = rate,
};
