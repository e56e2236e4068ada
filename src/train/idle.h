/* idle.h - ranks that a layout leaves without work.
 *
 * Pieces may be empty (layout.h), so a layout with more ranks than a letter has places, or with
 * more stages than the model has layers, is right and wastes ranks.  It is told before a run
 * starts:
 *
 *     63 of 64 ranks have nothing to do: dp=64 cuts letter b (train.batch) in 64, and 1 is there;
 *     take 64 or more of it, or dp=1
 */
#ifndef SK_TRAIN_IDLE_H
#define SK_TRAIN_IDLE_H

#include "train/setup.h"

bool sk_idle(const sk_program *p); /* no op of its step has any work */
/* The sentence about n ranks that are idle; NULL if n is 0. */
char *sk_idle_text(sk_arena *a, const sk_setup *s, int n);
/* The same, of the programs of a setup. */
char *sk_idle_setup(sk_arena *a, const sk_setup *s);

#endif
