/* hf_place.h - how one tensor of a Hugging Face file lies in one logical tensor.
 *
 * Both have the same letters, so the offset of an element in either is a sum of coordinate times
 * step, and copying is counting through the letters in the order of the file with two steps per
 * letter.  Private to hf_*.c. */
#ifndef SK_TRAIN_HF_PLACE_H
#define SK_TRAIN_HF_PLACE_H

#include "tensor/safetensors.h"
#include "train/hf.h"

enum { SK_HF_WINDOW = 1 << 20 };       /* bytes of a file in memory at a time */
enum { SK_HF_INDEX_BYTES = 16 << 20 }; /* of an index file, at most */
extern const char sk_hf_one_file[], sk_hf_index_file[];

typedef struct sk_hf_place {
    sk_hf e;
    const sk_hf_shape *s;
    int n, n_order, n_shape;
    int order[SK_SHARD_DIM];                        /* our dims, in the order of the file */
    int64_t from[SK_SHARD_DIM], size[SK_SHARD_DIM]; /* per dim of ours: what the file holds */
    int64_t step[SK_SHARD_DIM];                     /* per dim of ours: in elements of the file */
    int64_t shape[SK_ST_DIM];
    const char *file; /* where it was found; NULL: not needed */
    const char *seen; /* by sk_hf_check(): the file that has it */
} sk_hf_place;

typedef struct sk_hf_places {
    sk_hf_place *v;
    int n, cap;
} sk_hf_places;

/* The places of a model.  They cover every logical tensor exactly once. */
sk_status sk_hf_list_places(sk_arena *a, const sk_model *m, const sk_hyper *h,
                            const sk_hf_shape *shapes, int n_shapes, sk_hf_places *out);
/* The k-th spelling of a name: as listed, without its base prefix, with one; NULL past the end. */
const char *sk_hf_spelling(const char *name, int k, char buf[SK_ST_NAME + 16]);
/* The tensor of this name in an open file, in the first spelling that is there; NULL: none. */
const sk_st_tensor *sk_hf_find_spelled(const sk_st *st, const char *name);
int64_t sk_hf_volume(const int64_t *size, int n); /* elements */

#endif
