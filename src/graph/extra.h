/* extra.h - what a backward pass can tell besides gradients (BackPACK: Dangel, Kunstner, Hennig,
 * ICLR 2020): outputs that are appended to the backward half of a graph.
 *
 * An extra is a tensor of role SK_EXTRA that belongs to a parameter.  Nodes contribute to it as
 * others contribute to gradients (sk_node.into): it is a sum over samples, so it is added up over
 * micro-batches, reduced over the axes that split the batch, and zero at the start of a step.  It
 * is stored in f32, is not updated, and is no part of the gradient norm.
 *
 * Some are of all parameters together (sk_tensor.of is NULL); these are never sharded.
 *
 * What is one row a sample has the letter of all samples in front, a copy of the batch's letter
 * that is never split (sk_letter_copy): every rank adds its own rows to zeros of the others.
 *
 * Kronecker factors are symmetric.  Those that only an optimizer reads (sk_graph.factors_of) have a
 * packed form, kernel/symmetric.h: a tensor of the same id that is in no list of the graph, with
 * one letter, which no model has, in place of those of columns.  Programs send that.
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
    SK_EXTRA_KRON_A,  /* sum over rows of a a': a is the input of a product with the parameter */
    SK_EXTRA_KRON_G,  /* the same for the gradient of the product's result */
    SK_EXTRA_NORMS,   /* squared norms of the gradients of single samples */
    SK_EXTRA_MOMENT,  /* sum over samples of their squared gradients, element by element */
    SK_EXTRA_SAMPLES, /* gradients of single samples */
    SK_EXTRA_GGN,     /* diagonal of the generalised Gauss-Newton matrix, exact */
    SK_EXTRA_GGN_MC,  /* the same, an estimate with labels drawn from the model's distribution */
    SK_EXTRA_TOTALS,  /* no tensor by parameter: squared norms by sample of all parameters together,
                         of gradients and of what diagonals are made of.  Their sum is the trace of
                         the second moment, or of the Gauss-Newton matrix */
    SK_N_EXTRAS
} sk_extra_kind;

enum {
    SK_FACTOR_MOST = 16384, /* rows of a Kronecker factor: 1 GiB */
    SK_CLASSES_MOST = 64    /* of an exact diagonal: a backward pass for each */
};

/* Operand i of node y is the parameter; dy and dx are those of sk_op.grad, which ran before. */
#define SK_EXTRA_ARGS \
    sk_graph *g, const sk_node *y, sk_tensor *const *dy, sk_tensor *const *dx, int i

/* The gradient of a sample as a sum over its rows of outer products: both sides have the letter of
 * the batch, those of rows, and some of the parameter's. */
typedef struct sk_outer {
    sk_tensor *side[2]; /* NULL: the gradient of result 0 */
    char ids;           /* side[0] has ids, each of which stands for a unit vector along this letter
                           of the parameter; 0: it has numbers */
} sk_outer;

typedef struct sk_extra_rules {
    /* The gradient of every sample: the letter of the batch, then those of the parameter. */
    sk_tensor *(*sample)(SK_EXTRA_ARGS);
    /* The same as outer products, from which norms follow (extra_norms.c); NULL: it has no such
     * form.  Operand i of node y is the parameter. */
    void (*outer)(const sk_node *y, int i, sk_outer *o);
    /* A cheaper way to the sum of squares over samples; NULL, or NULL as the result: none. */
    sk_tensor *(*moment)(SK_EXTRA_ARGS);
    /* Kronecker factors: f[0] of the inputs, f[1] of the gradients of the result. */
    void (*factors)(sk_graph *g, const sk_node *y, sk_tensor *const *dy, int i, sk_tensor *f[2]);
    /* Of the node that makes the loss: column k of a root of the loss's Hessian by the logits; or,
     * with k -1, one that has the Hessian as its expectation; `draw` tells draws from others. */
    sk_tensor *(*curvature)(sk_graph *g, const sk_node *y, sk_tensor *logits, int k, int draw);
} sk_extra_rules;

const char *sk_extra_name(sk_extra_kind k); /* "kron_a" */

/* How squared norms of single samples are computed, where a parameter has both ways: by Gram
 * matrices of rows, or from gradients of samples.  Tests force one. */
typedef enum sk_norms_by { SK_NORMS_CHEAPER, SK_NORMS_BY_GRAM, SK_NORMS_BY_SAMPLES } sk_norms_by;

typedef struct sk_gram sk_gram; /* extra_norms.c */

/* Gram matrices for the norms of a parameter that so many operands read, or NULL: gradients of
 * samples are cheaper, or the only way. */
sk_gram *sk_gram_plan(sk_graph *g, const sk_tensor *param, int uses);
/* Operand i of node y is the parameter.  The norms "b" once all readers came; NULL: not yet. */
sk_tensor *sk_gram_norms(sk_gram *m, sk_graph *g, const sk_node *y, sk_tensor *const *dy, int i);

/* A walk over the graph from its end that makes some kinds of extras. */
typedef struct sk_extra_walk {
    unsigned kinds;
    struct sk_extra_param {
        int uses, got;  /* nodes that read the parameter; those whose gradient is there */
        sk_tensor *sum; /* of the gradients by sample so far */
        sk_gram *gram;  /* norms without these; planned: at the first of the nodes */
        bool planned;
    } * of;           /* by tensor */
    sk_tensor *total; /* SK_EXTRA_TOTALS: of the parameters so far, in the order of the graph */
} sk_extra_walk;

void sk_extra_begin(sk_graph *g, sk_extra_walk *w, unsigned kinds);
/* The total of a walk of kind k, or, for gradients, of SK_EXTRA_NORMS.  In a pipeline it arrives on
 * the stage of the first layer. */
void sk_extra_end(sk_graph *g, const sk_extra_walk *w, sk_extra_kind k);
/* The extras of a parameter that is operand i of node y; called by grad.c for every one. */
void sk_extra_operand(sk_extra_walk *w, SK_EXTRA_ARGS);
/* How many walks the diagonal of kind k takes; and the gradient that walk n starts from, of the
 * logits. */
int sk_extra_columns(sk_graph *g, sk_extra_kind k);
sk_tensor *sk_extra_seed(sk_graph *g, sk_extra_kind k, int n);

/* For rules: the sum of t over all but the batch and these letters, in f32.  Letters with '!'
 * behind all but the batch and `keep`. */
sk_tensor *sk_sum_samples(sk_graph *g, sk_tensor *t, const char *letters);
char *sk_rows_marked(sk_graph *g, const char *letters, const char *keep);
/* For rules: a letter of the same size that no layout splits, the same for every call; and the
 * tensor with the copies of some of its letters. */
char sk_letter_copy(sk_graph *g, char letter);
sk_tensor *sk_with_copies(sk_graph *g, sk_tensor *t, const char *letters);
/* Returns t.  The node that made it reads tensors themselves where sk_with_copies made others of
 * them, under the letters of these: nothing is moved in memory but what is gathered. */
sk_tensor *sk_read_copied(const sk_graph *g, sk_tensor *t);

#ifdef __cplusplus
}
#endif

#endif
