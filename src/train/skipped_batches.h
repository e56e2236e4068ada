/* skipped_batches.h - batches that a training skips.
 *
 * With train.nonfinite=rollback a run whose numbers are not finite rolls back to its newest
 * checkpoint, and the batch of that step is never used again.  Steps are counted without a gap;
 * step k reads the k-th batch of those that are not skipped:
 *
 *     skipped: 3, 4         step   0 1 2 3 4 5
 *                           batch  0 1 2 5 6 7
 *
 * A checkpoint has the list in its extra, "left=3,4", so a run that is resumed knows it. */
#ifndef SK_TRAIN_SKIPPED_BATCHES_H
#define SK_TRAIN_SKIPPED_BATCHES_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

enum { SK_SKIPPED_MOST = 256 };

typedef struct sk_skipped_batches {
    int n;
    int64_t v[SK_SKIPPED_MOST]; /* rising */
} sk_skipped_batches;

int64_t sk_batch_of_step(const sk_skipped_batches *l, int64_t step); /* that the step reads */
bool sk_skipped_batches_add(sk_skipped_batches *l, int64_t batch);   /* false: the list is full */
char *sk_skipped_batches_print(sk_arena *a, const sk_skipped_batches *l); /* "3,4"; "": none */
bool sk_skipped_batches_read(const char *text, sk_skipped_batches *l); /* false: not such a text */

#endif
