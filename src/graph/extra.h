/* extra.h - what a backward pass can tell besides gradients (BackPACK: Dangel, Kunstner, Hennig,
 * ICLR 2020): outputs that are appended to the backward half of a graph.
 *
 * An extra is a tensor of role SK_EXTRA that belongs to a parameter.  Nodes contribute to it as
 * others contribute to gradients (sk_node.into): it is a sum over samples, so it is added up over
 * micro-batches, reduced over the axes that split the batch, and zero at the start of a step.  It
 * is stored in f32, is not updated, and is no part of the gradient norm.
 *
 * What is one row a sample has the letter of all samples in front, a copy of the batch's letter
 * that is never split (sk_letter_copy): every rank adds its own rows to zeros of the others.
 *
 * An op that reads parameters declares how their extras come from its operands and the gradients of
 * its results: sk_extra_rules.  Contributions are of the sum of the loss, times the loss scale, as
 * gradients are; SCALING in doc/backward.md says what to divide them by. */
#ifndef SK_GRAPH_EXTRA_H
#define SK_GRAPH_EXTRA_H

#include "graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sk_extra_kind {
    SK_EXTRA_KRON_A, /* sum over rows of a a': a is the input of a product with the parameter */
    SK_EXTRA_KRON_G, /* the same for the gradient of the product's result */
    SK_N_EXTRAS
} sk_extra_kind;

enum { SK_FACTOR_MOST = 16384 }; /* rows of a Kronecker factor: 1 GiB */

typedef struct sk_extra_rules {
    /* Kronecker factors for operand i: f[0] of the inputs, f[1] of the gradients of the result. */
    void (*factors)(sk_graph *g, const sk_node *y, sk_tensor *const *dy, int i, sk_tensor *f[2]);
} sk_extra_rules;

const char *sk_extra_name(sk_extra_kind k); /* "kron_a"; NULL behind the last */

/* The extras of the parameter operand i of node y, whose results have the gradients dy; called by
 * sk_graph_grad for every one. */
void sk_extra_operand(sk_graph *g, const sk_node *y, sk_tensor *const *dy, int i);

/* For rules: a letter of the same size that no layout splits, the same for every call; and the
 * tensor with the copies of some of its letters. */
char sk_letter_copy(sk_graph *g, char letter);
sk_tensor *sk_with_copies(sk_graph *g, sk_tensor *t, const char *letters);

#ifdef __cplusplus
}
#endif

#endif
