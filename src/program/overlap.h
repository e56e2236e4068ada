/* overlap.h - runs of products that are split so that they overlap with what they wait for: found
 * by overlap_chunks.c, which writes those in chunks; overlap_ring.c writes those in the shards of a
 * ring.  Private to program/. */
#ifndef SK_PROGRAM_OVERLAP_H
#define SK_PROGRAM_OVERLAP_H

#include "program/lowering.h"

typedef struct sk_overlap_stop { /* one node of a run */
    const sk_inst *op;
    int from, at, to; /* its unit in the list, and the op */
    sk_ints gathers;  /* STARTs that gather operands of the run, and can move before it */
    int copy, reduce; /* SLICE and START that reduce the result, or -1 */
    bool whole; /* it sums over time, and is done behind all chunks: the gradient of a weight */
} sk_overlap_stop;

/* What the chunks of a run are: rows of the batch; positions in time of one row, where no call cuts
 * time; or the shards in time of the ranks along an axis, number SK_ALONG_RING + axis. */
enum { SK_ALONG_BATCH, SK_ALONG_TIME, SK_ALONG_RING };

enum { SK_OVERLAP_MOST = 8 };
typedef struct sk_overlap_run { /* consecutive units */
    sk_overlap_stop v[SK_OVERLAP_MOST];
    int n;
    int along; /* -1: of time, and not known yet */
    sk_chunks chunks;
} sk_overlap_run;

/* Writes the work of a run in the shards of its ring, with all that its calls did. */
void sk_overlap_ring(sk_lowering *e, const sk_inst *old, sk_overlap_run *r);

#endif
