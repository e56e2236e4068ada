/* dims.h - reading the one-line sharding rule. */
#ifndef SK_GRAPH_DIMS_H
#define SK_GRAPH_DIMS_H

#include "graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Take `dims` apart for this node, whose inputs are set: letters of the op are bound to the
 * letters that the inputs really have, '*' is spelled out.  Fails with a sentence if the counts
 * or the letters disagree.  Writes n->dims, letters_in, letters_out, not_split, gathered_in,
 * gathered_out. */
sk_status sk_dims_bind(sk_graph *g, sk_node *n, const char *dims);

/* "b2t3c8" -> letters "btc" and sizes; false if it is malformed. */
bool sk_dims_sample(const char *text, char letters[SK_MAX_DIM + 1], int64_t size[SK_MAX_DIM]);

#ifdef __cplusplus
}
#endif

#endif
