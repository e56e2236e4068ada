/* hf_config.h - config.json of a Hugging Face directory: read by one reader, understood or refused.
 *
 * A key that changes what is computed must not be passed over: transformers would compute something
 * else from the same directory.  So every key is one of
 *
 *   a key of the model's family (sk_model.hf_keys), which sets fields of sk_hyper;
 *   a key with one possible value (sk_model.hf_only, and some of every model), refused otherwise;
 *   a key that is known to change no number of a forward or backward pass (the list in
 * hf_config.c);
 *
 * and any other key is refused by name.  Keys that are left out mean what the class of transformers
 * assumes (sk_model.hf_default), null means "not given".  Angles are read in both spellings:
 * rope_theta beside rope_scaling {type or rope_type, factor, ...}, and rope_parameters of
 * transformers 5.  Sizes are checked (sk_model_check) before anything is built from them. */
#ifndef SK_TRAIN_HF_CONFIG_H
#define SK_TRAIN_HF_CONFIG_H

#include "model/model.h"
#include "tensor/dtype.h"

struct json_t;

/* The model part and its numbers.  SK_EDATA: no config.json, or not JSON; SK_ECONF: refused. */
sk_status sk_hf_config(const char *dir, const sk_model **m, sk_hyper *out);

/* The same of an object that is in memory; `where` names it in messages. */
sk_status sk_hf_config_of(const char *where, const struct json_t *root, const sk_model **m,
                          sk_hyper *out);

/* The text of config.json; `type` is that of the tensors beside it.  Read back by sk_hf_config it
 * gives the same model. */
char *sk_hf_config_print(sk_arena *a, const sk_model *m, const sk_hyper *h, sk_dtype type);

/* A file of the directory that must be a JSON object of at most `most` bytes; the caller frees it
 * with json_decref(). */
sk_status sk_hf_json(const char *dir, const char *name, int64_t most, struct json_t **out);

#endif
