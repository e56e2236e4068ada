/* price.h - totals of a job in closed form, for `skein plan`.
 *
 * Published "model flops" follow at least five conventions; a number without its
 * convention says nothing, so all are here.  B sequences of s tokens, L layers of
 * width h, V words, g = key heads / heads; N parameters and H of them in hidden matrices, as far
 * as one token meets them: of experts those that it chose.
 *
 *     full       6 B s (L h^2 (2 + 2g) + H + 2 L s h + h V)     every product, forward and back
 *     causal     the same with L s h                            Megatron, Llama
 *     hardware   full, and all layers forward once more         full recomputation
 *     six_n      B s (6N + 12 L s h)
 *     foundry    3 B (2 N s + 4 L h s^2)                        MosaicML; its HFU is 4/3 of it
 *
 * Of a GPT, where H is 8 L h^2, hardware is Megatron's 96 B s L h^2 (1 + s/6h + V/16Lh).
 *
 * What one rank needs is read from its program, never estimated. */
#ifndef SK_PLAN_PRICE_H
#define SK_PLAN_PRICE_H

#include "model/model.h"
#include "program/program.h"

typedef struct sk_price {
    int64_t params;
    double active;                                 /* of them, those that one token meets */
    double hardware, full, causal, six_n, foundry; /* flops per step */
} sk_price;

typedef struct sk_price_rank {
    int64_t bytes[SK_N_KINDS], total; /* of memory; the total is the device's */
    double flops;                     /* of a training step */
    int64_t wire;                     /* bytes that leave the rank in a step on average */
    int64_t wire_axis[SK_MAX_AXES], wire_world, wire_near, wire_sends;
    int insts;
} sk_price_rank;

void sk_price_model(const sk_graph *g, const sk_hyper *h, sk_price *out);
/* class_of: NULL, or the class of each rank: then bytes that leave are the mean of p's class. */
void sk_price_program(const sk_program *p, const int *class_of, sk_price_rank *out);

#endif
