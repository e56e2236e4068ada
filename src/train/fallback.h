/* fallback.h - the fallback program of a run: a step that found no room is run again by it.
 *
 * With train.dropless it is the same model and layout with room for every token of every expert
 * (capacity_factor 0).  A step runs the normal program first; if a token was dropped, no rank has
 * updated anything, and the step runs once more with the fallback (loop_step.c).  A layout whose
 * encoded activations may not fit has a fallback too, which encodes nothing and recomputes
 * everything.
 *
 * Both programs run over the same heaps.  What both keep, weights, gradients and optimizer state,
 * lies at the same places, which is checked; so nothing moves. */
#ifndef SK_TRAIN_FALLBACK_H
#define SK_TRAIN_FALLBACK_H

#include "train/setup.h"

/* For a setup with programs: plans the fallback program and makes s->fallback.  Programs of both
 * get the bytes of the larger one.  `all` is that of sk_setup_program. */
sk_status sk_fallback_plan(sk_setup *s, bool all);

#endif
