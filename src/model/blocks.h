/* blocks.h - what decoders are built from: blocks, attention, MLPs, the head and its loss, names of
 * tensors in Hugging Face files. */
#ifndef SK_MODEL_BLOCKS_H
#define SK_MODEL_BLOCKS_H

#include "model/model.h"

enum { SK_ZEROS = -1, SK_ONES = -2 }; /* values of `init` for sk_param */

/* A parameter whose name is printed: sk_param_f(g, "c", SK_ONES, "h.%d.ln1.w", i) */
sk_tensor *sk_param_f(sk_graph *g, const char *letters, double init, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Dropout of x with its own site number; x itself when p is 0. */
sk_tensor *sk_dropout(sk_graph *g, sk_tensor *x, double p);

/* x plus a parameter NAME, "zeros" at the start, with the letters `units`, the last ones of x or
 * some of them. */
sk_tensor *sk_biased(sk_graph *g, const char *units, sk_tensor *x, const char *name);

/* The hidden layer of an MLP: act(x + bias), act(gate) * up.  `act` is a name of
 * kernel/activation.h, "" the usual one of such an MLP: gelu_new, silu. */
sk_tensor *sk_hidden(sk_graph *g, const char *act, sk_tensor *x, const char *bias);
sk_tensor *sk_gate(sk_graph *g, const char *act, sk_tensor *gate, sk_tensor *up);

/* Causal attention over packed qkv "bthsd": whole sequences when training, one token against the
 * remembered keys and values of layer `i` when decoding. */
sk_tensor *sk_attend(sk_graph *g, sk_tensor *qkv, sk_tensor *pos, int i, sk_mode mode);

/* A block of a decoder: x "btc" to the same. */
typedef sk_tensor *sk_block(sk_graph *g, const sk_hyper *h, sk_tensor *x, sk_tensor *pos, int i,
                            sk_mode mode);
/* All blocks, each a layer of its own, and then the layer of the head. */
sk_tensor *sk_blocks(sk_graph *g, const sk_hyper *h, sk_tensor *x, sk_tensor *pos, sk_mode mode,
                     sk_block *block);
/* Logits of x "btc" by a head "vc"; when training, their loss against the input "targets". */
void sk_head(sk_graph *g, sk_tensor *x, sk_tensor *head, sk_mode mode);

/* The deviation of weights whose results are added to the residual, two of them a layer. */
double sk_std_out(const sk_hyper *h);
/* Refuses a width that heads cannot share. */
void sk_heads_check(sk_graph *g, const sk_hyper *h);

/* A tensor of a layer in Hugging Face's form: PREFIX.layer.THEIRS is h.layer.OURS (see sk_hf). */
typedef struct sk_hf_row {
    const char *theirs, *ours, *dims;
} sk_hf_row;
void sk_hf_in_layer(sk_arena *a, const char *prefix, int layer, const sk_hf_row *row, sk_hf *out);
/* The k-th of those tensors of a layer that a model does not share with its family. */
typedef void sk_hf_own(sk_arena *a, const sk_hyper *h, int layer, int k, sk_hf *out);

/* Cross entropy of logits "...v" against i32 targets, weighted by token: sets g->loss (a sum) and
 * g->weight.  Its terms (maximum, sum of exponentials, target's logit) are plain reductions over v,
 * so that a split vocabulary needs nothing special. */
void sk_cross_entropy(sk_graph *g, sk_tensor *logits, sk_tensor *targets, sk_tensor *weights);
/* The same for samples of one class each, whose weights are 0 or 1; also counts those that are
 * right (SK_SUM_RIGHT), and validations have an accuracy. */
void sk_classify(sk_graph *g, sk_tensor *logits, sk_tensor *targets, sk_tensor *weights);

#endif
