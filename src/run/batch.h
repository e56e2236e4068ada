/* batch.h - what LOAD instructions read: the inputs of the graph.  Private to run/. */
#ifndef SK_RUN_BATCH_H
#define SK_RUN_BATCH_H

#include "run/run_state.h"

/* Does this LOAD read data of the batch?  If not, it reads a scalar of the step. */
bool sk_batch_is_data(const sk_run *r, const sk_inst *in);
/* Writes what this LOAD reads in this step to `to`, dense. */
sk_status sk_batch_load(sk_run *r, const sk_inst *in, void *to);

#endif
