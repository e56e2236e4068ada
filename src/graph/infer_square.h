/* infer_square.h - for sk_op.infer of ops on square matrices, "m!n!->mn" or "em!n!->emn"
 * (kernel/eigen.h): refuses other dims, and sizes that differ. */
#ifndef SK_GRAPH_INFER_SQUARE_H
#define SK_GRAPH_INFER_SQUARE_H

#include "graph/graph.h"

void sk_square_infer(sk_graph *g, const sk_node *n);

#endif
