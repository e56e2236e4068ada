/* hf.h - Hugging Face model directories: weights in, models out (config.json: train/hf_config.h).
 *
 * A model part lists the tensors of its Hugging Face form (model/model.h):
 * file name, our name, and how our letters lie in the file, "c,shd" being a
 * matrix [c, s*h*d].  From that line come transposes, packed projections and
 * slices; nothing here knows a model.  What a box needs besides its sizes is
 * the letters of its tensor: the table of sk_hf_shapes() has them.
 *
 *     int n;
 *     sk_hf_shape *shapes = sk_hf_shapes(&arena, &graph, &n);
 *     SK_TRY(sk_hf_load(dir, model, &hyper, shapes, n, boxes, n_boxes));
 *
 * Loading fills any boxes, so every rank reads only its shards, through a
 * window of 1 MiB, from model.safetensors or from the shards that
 * model.safetensors.index.json names.  f32, bf16, f16 and f64 are converted.
 * Every element comes from exactly one place, or the load fails and says which
 * tensor has which shape and needed which.  Tensors that the model part does
 * not list are refused by sk_hf_check(), but for buffers it names and a tied head.  Names may have
 * or lack the base prefix `transformer.` or `model.`, as files in the wild do.  Symbolic links are
 * followed, as in a Hugging Face cache; pickles are never read.
 *
 * Saving writes config.json, model.safetensors and what goes with the tokens
 * (companions.h) into a new directory beside the old one, syncs it and
 * renames: readers see the old model or the new one.  One whole logical tensor
 * is in memory at a time. */
#ifndef SK_TRAIN_HF_H
#define SK_TRAIN_HF_H

#include "model/model.h"
#include "tensor/tensor_shard.h"
#include "train/checksums.h"
#include "train/companions.h"

typedef struct sk_hf_shape { /* of a logical tensor */
    const char *name, *letters;
    int64_t full[SK_SHARD_DIM];
} sk_hf_shape;

/* The parameters of a graph that has been built. */
sk_hf_shape *sk_hf_shapes(sk_arena *a, const sk_graph *g, int *n);
/* Those of a model of these sizes. */
sk_status sk_hf_shapes_of(sk_arena *a, const sk_model *m, const sk_hyper *h, sk_hf_shape **out,
                          int *n);

sk_status sk_hf_load(const char *dir, const sk_model *m, const sk_hyper *h,
                     const sk_hf_shape *shapes, int n_shapes, const sk_tensor_shard *boxes, int n);

/* Every tensor of the directory's files is one of the model's, a buffer that the model names, or a
 * head equal to the embedding that it is tied to; otherwise SK_EDATA, with its name.  The share of
 * their chunks that is the caller's has its sums, where there are any (checksums.h). */
sk_status sk_hf_check(const char *dir, const sk_model *m, const sk_hyper *h,
                      const sk_hf_shape *shapes, int n_shapes, sk_chunk_share share);

/* Bit t is set if a tensor of the model has sk_dtype t in the directory's files. */
sk_status sk_hf_types(const char *dir, const sk_model *m, const sk_hyper *h,
                      const sk_hf_shape *shapes, int n_shapes, unsigned *types);

/* sk_hf_check() of a checkpoint, which is read without its tensors' bytes: its parameters are those
 * of the model that it says it holds.  An arch that is not known is left to others to refuse. */
struct sk_ckpt;
sk_status sk_hf_check_ckpt(const struct sk_ckpt *c);

/* Give one whole logical tensor: `whole` is f32, starts at 0 and has its full sizes.  It is asked
 * first without data: a reader that has the tensor in one piece lends it by setting data, so that
 * nothing is copied; if data stays NULL, it is asked again with room to fill. */
typedef sk_status sk_hf_reader(void *ctx, sk_tensor_shard *whole);
/* ctx: const sk_ckpt *.  The second gives averages in place of weights, where it has them. */
sk_status sk_hf_from_ckpt(void *ctx, sk_tensor_shard *whole);
sk_status sk_hf_averages_from_ckpt(void *ctx, sk_tensor_shard *whole);
bool sk_hf_ckpt_averages(const struct sk_ckpt *c); /* has it any? */

/* `type` is that of the tensors in the file.  The directory may exist if it holds only files of an
 * earlier save. */
sk_status sk_hf_save(const char *dir, const sk_model *m, const sk_hyper *h,
                     const sk_hf_shape *shapes, int n_shapes, sk_dtype type, sk_hf_reader *read,
                     void *ctx, const sk_companions *with);

#endif
