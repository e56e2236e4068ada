/* idle.h - what a layout leaves without work, or does twice.
 *
 * Pieces may be empty (layout.h), so a layout with more ranks than a letter has places, or with
 * more stages than the model has layers, is right and wastes ranks.  It is told before a run
 * starts:
 *
 *     63 of 64 ranks have nothing to do: dp=64 cuts letter b (train.batch) in 64, and 1 is there;
 *     take 64 or more of it, or dp=1
 *
 * and so are an axis that splits nothing and micro-batches without a sample. */
#ifndef SK_TRAIN_IDLE_H
#define SK_TRAIN_IDLE_H

#include "train/setup.h"

bool sk_idle(const sk_program *p); /* no op of its step has any work */
/* All of it in a sentence, n ranks being idle; NULL if there is nothing to say. */
char *sk_idle_text(sk_arena *a, const sk_setup *s, int n);
/* The same, of the programs of a setup. */
char *sk_idle_setup(sk_arena *a, const sk_setup *s);
/* What a run of so many steps never comes to: the end of the warmup, a layout of train.relayout.
 * A line each; NULL if there is nothing to say.  steps 0: not known so far. */
char *sk_idle_steps(sk_arena *a, const sk_setup *s, int64_t steps);

#endif
