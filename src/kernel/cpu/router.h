/* router.h - to which experts a token goes, and where it stands in their queues: what two kernels
 * share.
 *
 * A token chooses the k experts with the largest scores (of equals the first).  An expert has a
 * capacity of so many tokens of a sequence.  Places are given to first choices before second ones,
 * among them by time (Lepikhin et al. 2020, Fedus et al. 2021), so that a decision depends on
 * nothing outside of the sequence, hence not on the layout.  The slot is expert * capacity + place;
 * a choice that finds its expert full has the slot -1 - expert.  The gate is the expert's share in
 * the softmax of all logits, or of the chosen ones only (Jiang et al. 2024, Mixtral).
 *
 * Scores are the logits; or, with a bias, the softmax of all logits plus the bias (Wang et al.
 * 2024).  Gates never see the bias.
 *
 * Operands: in[0] logits "bte", out[0] slots and out[1] gates, "btk".  Attributes: choices of a
 * token, capacity of an expert, 1 for the softmax of the chosen ones. */
#ifndef SK_KERNEL_ROUTER_H
#define SK_KERNEL_ROUTER_H

#include "kernel/args.h"

/* The bias has a number for each expert, or is NULL.  Threads own tokens; each makes the choices of
 * all tokens of its sequences, and the gates of its own.  Needs sk_route_scratch(). */
void sk_route(const sk_args *a, const real *bias);
size_t sk_route_scratch(const sk_args *a);

#endif
