/* pack_bits.h - activations in fewer bits, while they wait for the backward pass
 * (program/saved_packed.c).
 *
 * Packed are one bit for each element, in lines of 64 bytes, and behind them up to `capacity`
 * elements whose bit is set, one after the other:
 *
 *     capacity 0     bit: the element is above 0          unpacked: 1 or 0
 *     capacity > 0   bit: the element is not (plus) 0     unpacked: the same bits
 *
 * Each thread has a share of whole words of 64 elements.  Elements beyond the capacity are
 * dropped, and unpacked as 0. */
#ifndef SK_RUN_PACK_BITS_H
#define SK_RUN_PACK_BITS_H

#include "base/threads.h"
#include "tensor/dtype.h"

typedef struct sk_pack_job {
    void *data;
    char *packed;
    sk_dtype type; /* f32, bf16 or f16 */
    int64_t n, capacity;
    int64_t from[SK_THREADS_MAX + 1]; /* own: values before each thread's share */
} sk_pack_job;

bool sk_pack(sk_threads *team, sk_pack_job j); /* false: some did not fit */
void sk_unpack(sk_threads *team, sk_pack_job j);

#endif
