/* whole_update.h - what whole_update.c, whole_ops.c and dealt_update.c share.  Private to program/. */
#ifndef SK_PROGRAM_WHOLE_UPDATE_H
#define SK_PROGRAM_WHOLE_UPDATE_H

#include "program/lowering.h"

/* A new buffer for a direction in state s. */
int sk_whole_direction(sk_lowering *e, const sk_param_plan *q, const sk_state *s);
/* From a shard of the direction in state `from` to the step, in the same state. */
int sk_whole_step(sk_lowering *e, sk_param_plan *q, const sk_state *from, int shard);
/* The first or the second of the two passes around a matrix, over the direction or the step. */
void sk_whole_pass(sk_lowering *e, int param, int which, int direction, int sums);
sk_dtype sk_whole_type(const sk_lowering *e, const sk_param_plan *q); /* of directions */

/* whole_ops.c: what becomes of the matrices in buffer `from`, in state s, in which they are not
 * cut: a buffer with the same box. */
int sk_whole_operate(sk_lowering *e, sk_param_plan *q, const sk_state *s, int from);

/* dealt_update.c: are the matrices of this parameter dealt to the ranks along the shard axis; and
 * the two passes over such parameters with all that is between them. */
bool sk_is_dealt(const sk_lowering *e, const sk_param_plan *q);
void sk_lower_dealt(sk_lowering *e, const int *params, int n, int sums);

#endif
