/* owed.h - error feedback for which a layout has no place.
 *
 * What encoding lost of gradients and of changes (NAME.error, NAME.change_error) is kept for the
 * next ones.  Under a layout without that codec, or without its feedback, nobody adds it to
 * anything: it is dropped, where a checkpoint is resumed and where the layout of a run changes, and
 * both tell so. */
#ifndef SK_TRAIN_OWED_H
#define SK_TRAIN_OWED_H

#include "train/manifest.h"
#include "train/setup.h"

typedef struct sk_owed { /* tensors whose error feedback is dropped */
    int grads, changes;
} sk_owed;

sk_owed sk_owed_dropped(const sk_setup *from, const sk_setup *to);
sk_owed sk_owed_resumed(const sk_ckpt *c, const sk_setup *to);
/* "of 14 gradients", "of 3 changes"; NULL: nothing is dropped. */
char *sk_owed_print(sk_arena *a, sk_owed n);

#endif
