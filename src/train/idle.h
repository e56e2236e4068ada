/* idle.h - ranks without work, and work that is repeated.
 *
 * Shards may be empty (layout/layout.h), so a layout with more ranks than the size of a letter, or
 * with more stages than the model has layers, is correct but wastes ranks.  A warning says so
 * before a run starts:
 *
 *     63 of 64 ranks have nothing to do: dp=64 splits letter b (train.batch) in 64, and its size
 *     is 1; take 64 or more, or dp=1
 *
 * Other warnings: an axis that splits nothing, micro-batches without a sample, keys of the
 * optimizer and of collectives without effect (train/group_checks.c), momentum that would be sent
 * in place of gradients, and replicas that would synchronise, only behind the last step. */
#ifndef SK_TRAIN_IDLE_H
#define SK_TRAIN_IDLE_H

#include "train/setup.h"

#include <stdio.h>

bool sk_idle(const sk_program *p); /* no op of its step has any work */
/* All warnings, where n ranks are idle: those of the layout in one line, and a line each about keys
 * of the optimizer that are left out.  NULL: there are none. */
char *sk_idle_text(sk_arena *a, const sk_setup *s, int n);
/* The same, of the programs of a setup. */
char *sk_idle_setup(sk_arena *a, const sk_setup *s);
/* Keys of collectives that decide nothing here: comm.algorithm between GPUs, comm.links on one host
 * (far: there are several).  A line each; NULL: there are none. */
char *sk_idle_comm(sk_arena *a, const sk_setup *s, bool far);
/* Kinds of steps of an optimizer that are not among the first so many, which `of` names
 * ("train.steps"); NULL: none is missing. */
char *sk_idle_sent(sk_arena *a, const sk_setup *s, const char *of, int64_t steps);
/* What a run of so many steps never reaches: the end of the warmup, a layout of train.relayout, a
 * file of train.backward, a milestone.  A line each; NULL: there are none.  steps 0: not known yet.
 */
char *sk_idle_steps(sk_arena *a, const sk_setup *s, int64_t steps);
/* Before there is a run: `idle` (sk_idle_text) and the two above, by train.steps; NULL: nothing. */
char *sk_idle_plan(sk_arena *a, const sk_setup *s, const char *idle, bool far);
/* Each line of a text behind `before`. */
void sk_idle_print(const char *before, const char *text, FILE *to);

#endif
