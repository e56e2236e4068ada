/* learned_positions.h - what decoders with learned positions are built from (Radford et al. 2019):
 * layer norm, biases, dropout, a head that is tied or not.  A model brings the second half of its
 * blocks.
 *
 *     static sk_tensor *block(...) { x = sk_learned_attend(g, h, x, pos, i, mode); ... }
 *     static void build(...) { sk_learned_sizes(g, h); sk_learned_build(g, h, mode, block); }
 *
 * Letters: b batch, t time, c width, h heads, s slots of a head (query, key, value), r queries per
 * key (1), d head width, f hidden, v words, p positions, and when decoding n remembered positions
 * of z = 2 (key, value).  The packed qkv weight is [c, h, s, d]: a head's query, key and
 * value lie together, so that splitting h splits all three at once.  Weights begin with a
 * long dim, never with the heads: shards are cut along the first one. */
#ifndef SK_MODEL_LEARNED_POSITIONS_H
#define SK_MODEL_LEARNED_POSITIONS_H

#include "model/blocks.h"

void sk_learned_sizes(sk_graph *g, const sk_hyper *h); /* of the letters above, checked */

/* The model: two embeddings, blocks, norm, head, loss. */
void sk_learned_build(sk_graph *g, const sk_hyper *h, sk_mode mode, sk_block *block);

sk_tensor *sk_layer_norm(sk_graph *g, sk_tensor *x, double eps, const char *name);

/* The first half of block i: x + attention of its norm. */
sk_tensor *sk_learned_attend(sk_graph *g, const sk_hyper *h, sk_tensor *x, sk_tensor *pos, int i,
                             sk_mode mode);

/* The end of a half: x + y with dropout + the bias NAME.b. */
sk_tensor *sk_learned_join(sk_graph *g, const sk_hyper *h, sk_tensor *x, sk_tensor *y,
                           const char *name, sk_mode mode);

/* Hugging Face's form: the common tensors, and in every layer n_own more by `own`; keys of
 * config.json, those with one possible value, buffers in files that are no parameters. */
bool sk_learned_hf(sk_arena *a, const sk_hyper *h, int i, int64_t n_own, sk_hf_own *own,
                   sk_hf *out);
extern const sk_hf_key sk_learned_keys[];
extern const sk_hf_only sk_learned_only[];
extern const char *const sk_learned_buffers[];

#endif
