/* whole_update.h - what whole_update.c, whole_ops.c and dealt_update.c share.  Private to program/.
 */
#ifndef SK_PROGRAM_WHOLE_UPDATE_H
#define SK_PROGRAM_WHOLE_UPDATE_H

#include "program/whole_place.h"

/* A new buffer for a direction in state s. */
int sk_whole_direction(sk_lowering *e, const sk_param_plan *q, const sk_state *s);
/* A shard of a tensor, and what cuts it. */
typedef struct sk_whole_shard {
    int buf; /* -1: there is none */
    sk_state state;
} sk_whole_shard;
/* From a shard of the direction to the step, in the same state.  factor[2]: of rows and columns;
 * cut: the axis over which the matrix stays cut, or -1.  Returns -1 if that is not possible. */
int sk_whole_step(sk_lowering *e, sk_param_plan *q, const sk_whole_shard *from,
                  const sk_whole_shard *factor, int cut);
/* The factors as the backward pass leaves them. */
void sk_whole_factors(const sk_lowering *e, const sk_param_plan *q, sk_whole_shard factor[2]);
/* The first or the second of the two passes around a matrix, over the direction or the step. */
void sk_whole_pass(sk_lowering *e, int param, int which, int direction, int sums);
sk_dtype sk_whole_type(const sk_lowering *e, const sk_param_plan *q);        /* of directions */
sk_dtype sk_whole_result_type(const sk_lowering *e, const sk_param_plan *q); /* of operations */

/* whole_ops.c: what becomes of the matrices in buffer `from`, in state s, in which nothing but the
 * axis `cut` cuts them: a buffer with the same box, or -1 if a cut matrix is not enough. */
int sk_whole_operate(sk_lowering *e, sk_param_plan *q, const sk_state *s, int from,
                     const int factor[2], int cut);

/* packed_factors.c: the value of a knob of the parameter's optimizer. */
double sk_whole_knob(const sk_lowering *e, const sk_param_plan *q, int knob);

/* whole_factors.c: the plan of the factor of side 0, rows, or 1, columns, in params.v, -1: none;
 * the state that goes with matrices in state `whole`; does ZeRO shard it. */
int sk_whole_factor(const sk_lowering *e, const sk_param_plan *q, int side);
sk_state sk_whole_factor_state(const sk_lowering *e, int factor, const sk_state *whole);
bool sk_whole_factor_apart(const sk_lowering *e, const sk_param_plan *q, int factor,
                           const sk_state *whole, sk_state *s);
bool sk_whole_factor_cut(const sk_lowering *e, int factor);
bool sk_whole_factors_dealt(const sk_lowering *e, const sk_param_plan *q);

/* dealt_update.c: are the matrices of this parameter dealt to ranks along sk_whole_place.axis; are
 * they cut over it before; and the two passes over such parameters with all that is between them,
 * for matrices that are cut and for those that are not. */
bool sk_is_dealt(const sk_lowering *e, const sk_param_plan *q);
bool sk_is_dealt_cut(const sk_lowering *e, const sk_param_plan *q);
void sk_lower_dealt(sk_lowering *e, const int *params, int n, int sums);
void sk_lower_dealt_copies(sk_lowering *e, const int *params, int n, int sums);

#endif
