/* whole_update.h - what whole_update.c and dealt_update.c share.  Private to program/. */
#ifndef SK_PROGRAM_WHOLE_UPDATE_H
#define SK_PROGRAM_WHOLE_UPDATE_H

#include "program/lowering.h"

/* A new buffer for a direction in state s. */
int sk_whole_direction(sk_lowering *e, const sk_param_plan *q, const sk_state *s);
/* From a shard of the direction in state `from` to the step, in the same state. */
int sk_whole_step(sk_lowering *e, const sk_param_plan *q, const sk_state *from, int shard);

/* dealt_update.c: are the matrices of this parameter dealt to the ranks along the shard axis; and
 * the two passes over such parameters with all that is between them. */
bool sk_is_dealt(const sk_lowering *e, const sk_param_plan *q);
void sk_lower_dealt(sk_lowering *e, const int *params, int n);

#endif
