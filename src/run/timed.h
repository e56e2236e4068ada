/* timed.h - steps that time decides about: sync=backup:B, sync=ssp:S.  Private to run/.
 *
 * COMMIT ends the training section of a rank that is late, and so does a look before every
 * instruction: run.late.  Then the caller takes weights from a rank that was not
 * (sk_run_catch_up). */
#ifndef SK_RUN_TIMED_H
#define SK_RUN_TIMED_H

#include "comm/quorum.h"
#include "comm/turns.h"
#include "run/run_state.h"

sk_status sk_do_commit(sk_run *r);
/* sync=ssp: before a section, after it; and its instructions. */
void sk_stale_begin(sk_run *r, const sk_step_in *in);
sk_status sk_stale_end(sk_run *r, sk_step_out *out);
sk_status sk_do_pull(sk_run *r);
sk_status sk_do_push(sk_run *r);
/* The weights and the state of the optimizer of another rank, while they stay as they are. */
void sk_take_weights(sk_run *r, int from);
uint64_t sk_timed_places(const sk_program *p); /* equal on ranks that may read each other's */

#endif
