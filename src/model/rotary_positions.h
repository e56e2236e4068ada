/* rotary_positions.h - what decoders with rotary positions are built from (Touvron et al. 2023):
 * RMS norm, grouped keys, biases or none, a gated MLP.  A model brings the second half of its
 * blocks.
 *
 *     static sk_tensor *block(...) { x = sk_rotary_attend(g, h, x, pos, i, mode); ... }
 *     static void build(...) { sk_rotary_sizes(g, h); sk_rotary_build(g, h, mode, block); }
 *
 * Letters: b batch, t time, c width, d head width, f hidden, v words, and when decoding n
 * remembered positions of z = 2 (key, value).  h counts key heads: each has r queries, so that a
 * head group (r queries, one key, one value: s = r + 2 slots) is never torn apart by a split.
 * Weights begin with a long dim (see parts/model/gpt2.c). */
#ifndef SK_MODEL_ROTARY_POSITIONS_H
#define SK_MODEL_ROTARY_POSITIONS_H

#include "model/blocks.h"

void sk_rotary_sizes(sk_graph *g, const sk_hyper *h); /* of the letters above, checked */

/* The model: embedding, blocks, norm, head, loss. */
void sk_rotary_build(sk_graph *g, const sk_hyper *h, sk_mode mode, sk_block *block);

sk_tensor *sk_rms_norm(sk_graph *g, sk_tensor *x, double eps, const char *name);

/* The first half of block i: x + attention of its norm. */
sk_tensor *sk_rotary_attend(sk_graph *g, const sk_hyper *h, sk_tensor *x, sk_tensor *pos, int i,
                            sk_mode mode);

/* The gated MLP of x, act(x gate) * (x up): weights NAME.gate.w and NAME.up.w with the letters `in`
 * lead to `hidden`, from there NAME.down.w with the letters `out` back to those of x. */
sk_tensor *sk_gated(sk_graph *g, const sk_hyper *h, sk_tensor *x, const char *name, const char *in,
                    const char *hidden, const char *out);

/* A dense decoder, blocks with one gated MLP each: the whole of Llama, Mistral and Qwen2. */
void sk_rotary_dense(sk_graph *g, const sk_hyper *h, sk_mode mode);
bool sk_rotary_dense_hf(sk_arena *a, const sk_hyper *h, int i, sk_hf *out);

/* Hugging Face's form: the common tensors, and in every layer n_own more by `own`; keys of
 * config.json, buffers in files that are no parameters. */
bool sk_rotary_hf(sk_arena *a, const sk_hyper *h, int i, int64_t n_own, sk_hf_own *own, sk_hf *out);
extern const sk_hf_key sk_rotary_keys[];
extern const char *const sk_rotary_buffers[];

#endif
