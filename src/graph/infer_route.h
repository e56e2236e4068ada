/* infer_route.h - sizes of the results of the ops that route tokens to experts
 * (kernel/cpu/router.h).
 */
#ifndef SK_GRAPH_INFER_ROUTE_H
#define SK_GRAPH_INFER_ROUTE_H

#include "graph/graph.h"

/* For sk_op.infer.  Attributes: choices of a token, capacity of an expert.  Refuses attributes that
 * are out of range, and gives k (the third letter of the results) its size. */
void sk_route_infer(sk_graph *g, const sk_node *n);

/* For ops whose result is a bank of slots.  Attributes: experts, capacity of each: the sizes of the
 * first and of the third letter. */
void sk_slots_infer(sk_graph *g, const sk_node *n);

#endif
