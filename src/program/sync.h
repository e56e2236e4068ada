/* sync.h - how replicas agree on their weights, as a part: parts/sync/NAME.c defines
 * `const sk_sync sk_sync_NAME`.
 *
 * Data parallelism sums gradients in every step, so that all ranks along an axis have the same
 * weights.  Where the layout says `sync=NAME:H`, ranks along the axis are replicas: each computes
 * the gradient of its part of the batch, with the mean over its own tokens, clips it by its own
 * norm and updates weights of its own.  Every H steps the replicas synchronise, by one all-reduce
 * behind the update.  Inside of a replica every other axis works as always.
 *
 * What an all-reduce brings is the mean over replicas of what each sends.  A part without .outer
 * sends its weights and takes the mean for them (Local SGD).  A part with .outer keeps the weights
 * of the last synchronisation (the anchor), sends the difference, and makes a step of its own with
 * the mean, the outer gradient (DiLoCo). */
#ifndef SK_PROGRAM_SYNC_H
#define SK_PROGRAM_SYNC_H

#include "base/status.h"

typedef struct sk_sync {
    const char *name, *doc;
    const char *value; /* behind the name, for help: "H" */
    int usual;         /* H, where it is not said; 0: it must be */
} sk_sync;

extern const sk_sync *const sk_sync_parts[];
const sk_sync *sk_sync_find(const char *name);

#endif
