/* timed.h - steps that time decides about: sync=backup:B.  Private to run/.
 *
 * COMMIT ends the training section of a rank that is late, and so does a look before every
 * instruction: run.late.  Then the caller takes weights from a rank that was not
 * (sk_run_catch_up). */
#ifndef SK_RUN_TIMED_H
#define SK_RUN_TIMED_H

#include "comm/quorum.h"
#include "run/run_state.h"

sk_status sk_do_commit(sk_run *r);
/* The weights and the state of the optimizer of another rank, while they stay as they are. */
void sk_take_weights(sk_run *r, int from);
uint64_t sk_timed_places(const sk_program *p); /* equal on ranks that may read each other's */

#endif
