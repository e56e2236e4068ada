/* trace_file.h - trace.json of a run: the last step of all ranks, by the clock.
 *
 * Every rank writes its piece into the run directory, rank 0 puts them together.
 * Ranks of one host share a clock; on several, steps begin together at zero. */
#ifndef SK_TRAIN_TRACE_FILE_H
#define SK_TRAIN_TRACE_FILE_H

#include "run/run.h"

sk_status sk_trace_file_rank(sk_run *run, const sk_program *p, const char *dir);
sk_status sk_trace_file_merge(sk_arena *a, int n_ranks, const char *dir); /* after a barrier */

#endif
