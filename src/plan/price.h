/* price.h - totals of a job in closed form, for `skein plan`.
 *
 * Published "model flops" follow at least five conventions; a number without its
 * convention says nothing, so all are here.  B sequences of s tokens, L layers of
 * width h, hidden f, V words, g = key heads / heads:
 *
 *     hardware   96 B s L h^2 (1 + s/6h + V/16Lh)            Megatron 2021: full recomputation
 *     full       12 B s L h^2 (1 + g + s/h + (f/h){1, 1.5} + V/2Lh)     1.5: gated
 *     causal     the same with s/2h                          Megatron, Llama
 *     six_n      B s (6N + 12 L s h)                         N: all parameters
 *     foundry    3 B (2 N s + 4 L h s^2)                     MosaicML; its HFU is 4/3 of it
 *
 * What one rank needs is read from its program, never estimated. */
#ifndef SK_PLAN_PRICE_H
#define SK_PLAN_PRICE_H

#include "graph/model.h"
#include "program/program.h"

typedef struct sk_price {
    int64_t params;
    double hardware, full, causal, six_n, foundry; /* flops per step */
} sk_price;

typedef struct sk_price_rank {
    int64_t bytes[SK_N_KINDS], total; /* of memory */
    double flops;                     /* of a training step */
    int64_t wire;                     /* bytes that leave the rank in a step */
    int64_t wire_axis[SK_MAX_AXES], wire_world, wire_sends;
    int insts;
} sk_price_rank;

void sk_price_model(const sk_graph *g, const sk_hyper *h, sk_price *out);
void sk_price_program(const sk_program *p, sk_price_rank *out);

#endif
