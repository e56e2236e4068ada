/* stage_balance.h - which layers of a model form which chunk of a pipeline. */
#ifndef SK_LAYOUT_STAGE_BALANCE_H
#define SK_LAYOUT_STAGE_BALANCE_H

#include "graph/graph.h"

/* By layer: its chunk.  Blocks (all layers but the first and the last, which go with their
 * neighbours) are assigned in equal numbers, so that fewer blocks than chunks leave some chunks
 * empty; or, with `balance`, so that the most expensive chunk is as cheap as can be, by the flops
 * of all its nodes. */
int *sk_stages_assign(sk_arena *a, const sk_graph *g, int n_chunks, bool balance);

#endif
