/* sgd.c - stochastic gradient descent with heavy-ball momentum and coupled decay. */
#include "kernel/optim.h"

const sk_optim sk_optim_sgd = {
    .name = "sgd",
    .doc = "stochastic gradient descent with momentum",
    .n_state = 1,
    .state = {"m"},
    .knobs = {SK_LR(0.1), SK_MOMENTUM(0.9), SK_DECAY(0)},
    .pass = {sk_pass_sgd},
};
