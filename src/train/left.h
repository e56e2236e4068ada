/* left.h - batches that are left out of a training.
 *
 * With train.nonfinite=rollback a step whose numbers are not finite sends the run back to its
 * newest checkpoint, and its batch is never used again.  Steps are counted on without a gap; step k
 * reads the k-th batch of those that are left in:
 *
 *     left out: 3, 4        step   0 1 2 3 4 5
 *                           batch  0 1 2 5 6 7
 *
 * A checkpoint has the list in its extra, "left=3,4", so a run that is resumed knows it. */
#ifndef SK_TRAIN_LEFT_H
#define SK_TRAIN_LEFT_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

enum { SK_LEFT_MOST = 256 };

typedef struct sk_left {
    int n;
    int64_t v[SK_LEFT_MOST]; /* rising */
} sk_left;

int64_t sk_left_batch(const sk_left *l, int64_t step); /* what a step reads */
bool sk_left_add(sk_left *l, int64_t batch);           /* false: there is no room */
char *sk_left_print(sk_arena *a, const sk_left *l);    /* "3,4"; "": none */
bool sk_left_read(const char *text, sk_left *l);       /* false: that is no such text */

#endif
