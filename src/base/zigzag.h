/* zigzag.h - time dealt to ranks so that each has as much causal attention to do as the others.
 *
 * A query at position x meets x + 1 keys, so of p ranks with p shards of time, one after the other,
 * the last would work twice as long as the mean.  Dealt in zigzag, rank r keeps an
 * early stretch and a late one, and what one lacks the other has: with 2p chunks
 * of time the stored order is chunk 0, chunk 2p-1, chunk 1, chunk 2p-2 and so on.
 *
 *     p = 2, 8 times:   stored   0 1 2 3 4 5 6 7
 *                     position   0 1 6 7 2 3 4 5      rank 0 has the first half, rank 1 the second
 *
 * Chunks are made from the shards: rank r keeps the stored indices [S(r), S(r+1)) with
 * S(r) = time*r/p, of which the early chunks up to there took (S(r)+1)/2 and the late ones the
 * rest.  So a shard is two chunks exactly, whatever divides what.  Other cuts than
 * these are as right, only less even.  p of 1 or less leaves time as it is. */
#ifndef SK_BASE_ZIGZAG_H
#define SK_BASE_ZIGZAG_H

#include "base/rng.h" /* SK_BOTH: what a GPU computes too */

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sk_stretch {   /* what a rank keeps: stored indices [from, to) */
    int64_t from, middle, to; /* the early ones end at the middle */
    int64_t early, late;      /* positions of the first of each */
} sk_stretch;

/* The stretch of the rank in whose shard stored index i is. */
SK_BOTH sk_stretch sk_zigzag_stretch(int64_t i, int64_t time, int p)
{
    int64_t r = ((i + 1) * p - 1) / time;
    sk_stretch s = {time * r / p, 0, time * (r + 1) / p, 0, 0};
    s.early = (s.from + 1) / 2;
    s.middle = s.from + (s.to + 1) / 2 - s.early;
    s.late = time - s.to / 2;
    return s;
}

/* The position of stored index i, of `time` in all, dealt to p ranks. */
SK_BOTH int64_t sk_zigzag(int64_t i, int64_t time, int p)
{
    if (p <= 1) return i;
    sk_stretch s = sk_zigzag_stretch(i, time, p);
    return i < s.middle ? s.early + i - s.from : s.late + i - s.middle;
}

/* The same, and how many indices from i on (i among them) have positions that follow each other. */
int64_t sk_zigzag_run(int64_t i, int64_t time, int p, int64_t *n);

/* The stored index of a position: the other way round. */
int64_t sk_zigzag_index(int64_t position, int64_t time, int p);

#ifdef __cplusplus
}
#endif

#endif
