/* fault.h - breaking a run on purpose, for tests.
 *
 *     SKEIN_FAULT=nan:8:1    rank 1 gets a NaN into one element of its gradients in every step
 *                            that reads batch 8, counted from 1
 *     SKEIN_FAULT=inf:8:1    the same with an infinite number
 *     SKEIN_FAULT=nan:8:1:f  with anything behind it: into the first gradient that is made, not
 *                            the last
 *     SKEIN_FAULT=state:8:1  a NaN into a weight, after the update
 *     SKEIN_FAULT=slow:20:1  rank 1 takes 20 ms longer for each batch
 *     SKEIN_FAULT=slow:20:1:4  for every fourth batch
 *     SKEIN_FAULT=clock:120  time between checkpoints (ckpt.every=10m) runs so many times faster
 *
 * In gradients it is written where the backward pass has made them, before any sum over ranks. */
#ifndef SK_TRAIN_FAULT_H
#define SK_TRAIN_FAULT_H

#include "train/setup.h"

/* Sets o->before if the environment asks for it; `rank` is who opens the run. */
void sk_fault_arm(sk_run_opts *o, int rank);
/* The instruction that comes behind the first (or the last) in a step that makes a gradient of a
 * weight, and the buffer it goes to; 0: there is none. */
int sk_fault_at(const sk_program *p, bool first, int *buf);
double sk_fault_clock(void);    /* 1: time is what it is */
sk_status sk_fault_check(void); /* SK_ECONF: the environment asks for none of these */
/* SK_ECONF: the job has no such rank, or that rank has nothing to write it into. */
sk_status sk_fault_reaches(const sk_setup *s);

#endif
