/* build.h - the phrases that models share. */
#ifndef SK_GRAPH_BUILD_H
#define SK_GRAPH_BUILD_H

#include "graph/model.h"

enum { SK_ZEROS = -1, SK_ONES = -2 }; /* values of `init` for sk_param */

/* A parameter whose name is printed: sk_param_f(g, "c", SK_ONES, "h.%d.ln1.w", i) */
sk_tensor *sk_param_f(sk_graph *g, const char *letters, double init, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Dropout of x with its own site number; x itself when p is 0. */
sk_tensor *sk_dropout(sk_graph *g, sk_tensor *x, double p);

/* Causal attention over packed qkv "bthsd": whole sequences when training, one token against the
 * remembered keys and values of layer `i` when decoding. */
sk_tensor *sk_attend(sk_graph *g, sk_tensor *qkv, sk_tensor *pos, int i, sk_mode mode);

/* Cross entropy of logits "...v" against i32 targets, weighted by token: sets g->loss (a sum) and
 * g->weight.  The pieces (maximum, sum of exponentials, target's logit) are plain reductions over
 * v, so that a split vocabulary needs nothing special. */
void sk_cross_entropy(sk_graph *g, sk_tensor *logits, sk_tensor *targets, sk_tensor *weights);

#endif
