/* adam8bit.c - Dettmers et al. 2022: Adam whose two moments are kept in blocks of 8 bits
 * (tensor/q8_format.h): 2 bytes of state for each weight instead of 8.  The step is that of adamw
 * (decoupled decay), with the defaults of Adam. */
#include "kernel/optim.h"

enum { M, V };

const sk_optim sk_optim_adam8bit = {
    .name = "adam8bit",
    .doc = "Adam with its state in blocks of 8 bits",
    .n_state = 2,
    .state = {"m", "v"},
    .positive = 1u << V,
    .state_type = SK_U8,
    .knobs = {SK_LR(1e-3), SK_BETAS(0.9, 0.999), SK_EPS(1e-8), SK_DECAY(0)},
    .pass = {sk_pass_adamw},
};
