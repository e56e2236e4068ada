/* encode.h - the instructions ENCODE and DECODE, on all threads of a rank. */
#ifndef SK_RUN_ENCODE_H
#define SK_RUN_ENCODE_H

#include "run/run_state.h"

/* The error feedback is kept in units of unscaled gradients, so it outlives changes of loss_scale.
 */
void sk_run_encode(const sk_run *r, const sk_inst *in);
void sk_run_decode(const sk_run *r, const sk_inst *in);

/* The logical place of a shard's first element in its tensor; *step: from a row to the next.
 * Within a row places are counted as if the row were whole: if it is cut in a dim that is not its
 * first, ranks draw some random bits alike. */
int64_t sk_code_place(const sk_extent *box, int64_t *step);

#endif
