/* adamw.c - Loshchilov and Hutter 2019: Adam, with decay applied to the weight
 * itself and not to the gradient.  One pass: reads and writes each number once. */
#include "kernel/optim.h"

enum { M, V };

const sk_optim sk_optim_adamw = {
    .name = "adamw",
    .doc = "Adam with decoupled weight decay (plain Adam with optim.weight_decay=0)",
    .n_state = 2,
    .state = {"m", "v"},
    .positive = 1u << V,
    .knobs = {SK_LR(1e-3), SK_BETAS(0.9, 0.95), SK_EPS(1e-8), SK_DECAY(0.1)},
    .pass = {sk_pass_adamw},
};
