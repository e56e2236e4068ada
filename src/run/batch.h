/* batch.h - inputs of the graph, where an instruction wants them.  Private to run/. */
#ifndef SK_RUN_BATCH_H
#define SK_RUN_BATCH_H

#include "run/run_state.h"

/* Does the batch alone say what the instruction, a LOAD, reads? */
bool sk_batch_is_data(const sk_run *r, const sk_inst *in);
/* What the instruction, a LOAD, reads in this step: dense, to `to`. */
sk_status sk_batch_load(sk_run *r, const sk_inst *in, void *to);

#endif
