/* tensor_shard.h - a box of a logical tensor, lying somewhere in memory.
 *
 * Checkpoints, imports and exports all speak of these: the logical tensor's
 * name and sizes, the box [at, at + size) that is here, and where its first
 * element lies.  Shards are dense. */
#ifndef SK_TENSOR_TENSOR_SHARD_H
#define SK_TENSOR_TENSOR_SHARD_H

#include "base/arena.h"
#include "tensor/dtype.h"
#include "tensor/q8_format.h"

enum { SK_SHARD_DIM = 6 };
/* Endings of names: what each replica has for itself, and what encoding lost of a gradient and of a
 * change. */
#define SK_REPLICA_SUFFIX ".replica"
#define SK_ERROR_SUFFIX   ".error"
#define SK_CHANGE_SUFFIX  ".change_error"

typedef struct sk_tensor_shard {
    const char *name; /* of the logical tensor */
    sk_dtype type;
    int n;
    int64_t full[SK_SHARD_DIM], at[SK_SHARD_DIM], size[SK_SHARD_DIM];
    void *data;
    sk_q8 q8;   /* not 0: data are blocks of 8 bits with this map, read and written as f32 */
    bool parts; /* dim 0 counts the parts of a sum, each here one of them; what is stored may have
                   another number of them, or be missing (zeros): only the sum counts */
    const char *each; /* NULL, or: dim 0 counts replicas, here one, each of which has this tensor.
                         Where what is stored has another number of them, each begins as their mean;
                         where it has the tensor alone, as that */
    const char *like; /* NULL, or: a tensor that it begins as, where what is stored lacks it */
    bool may_lack;    /* what is stored may have none of it (zeros) */
    bool mine;        /* this rank writes it: every element of a logical tensor has one owner */
} sk_tensor_shard;

int64_t sk_shard_count(const sk_tensor_shard *b); /* elements */
/* Of a replica: as a shard of the tensor that each has; else itself. */
sk_tensor_shard sk_shard_each(const sk_tensor_shard *b);
/* n elements from `from` on, as f32. */
void sk_shard_read(const sk_tensor_shard *b, int64_t from, float *to, int64_t n);

/* The mean over replicas, of n elements each that are added in the order of replicas: who reads
 * heaps and who reads a checkpoint get the same bits. */
void sk_mean_add(float *sum, const float *x, int64_t n);
void sk_mean_end(float *sum, int64_t n, int64_t replicas);

char *sk_sizes_print(sk_arena *a, const int64_t *size, int n); /* "[4, 16]", for error reports */

#endif
