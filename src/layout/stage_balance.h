/* stage_balance.h - which layers of a model form which chunk of a pipeline.
 *
 * The first layer of a graph (embeddings) and the last (head and loss) go with their neighbours;
 * what is dealt are the blocks between them. */
#ifndef SK_LAYOUT_STAGE_BALANCE_H
#define SK_LAYOUT_STAGE_BALANCE_H

#include "layout/layout.h"

#define SK_LAYERS_AUTO "auto" /* sk_layout.layers: a job puts numbers in its place */

/* By layer: its chunk.  Blocks are assigned as sk_layout.layers says; else in equal numbers, so
 * that fewer blocks than chunks leave some chunks empty; or, with `balance`, so that the most
 * expensive chunk is as cheap as can be, by the flops of all its nodes. */
int *sk_stages_assign(sk_arena *a, const sk_graph *g, const sk_layout *l, int n_chunks);

/* "7+8x14+7": 7 blocks, 14 times 8, and 7.  Fills blocks[], `most` at most, by chunk; returns how
 * many chunks that are, 0: it is no such list, or is longer. */
int sk_layers_read(const char *text, int *blocks, int most);
/* false: it is longer than the room. */
bool sk_layers_print(const int *blocks, int n, char to[SK_LAYERS_TEXT]);

#endif
