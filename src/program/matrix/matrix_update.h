/* matrix_update.h - what matrix_update.c, matrix_ops.c and distributed_update.c share.  Private to
 * program/.
 */
#ifndef SK_PROGRAM_MATRIX_UPDATE_H
#define SK_PROGRAM_MATRIX_UPDATE_H

#include "program/matrix/matrix_placement.h"

/* A new buffer for a direction in state s. */
int sk_matrix_direction(sk_lowering *e, const sk_param_plan *q, const sk_state *s);
/* A shard of a tensor, and what cuts it. */
typedef struct sk_matrix_shard {
    int buf; /* -1: there is none */
    sk_state state;
} sk_matrix_shard;
/* From a shard of the direction to the step, in the same state.  factor[2]: of rows and columns;
 * cut: the axis over which the matrix stays cut, or -1.  Returns -1 if that is not possible. */
int sk_matrix_step(sk_lowering *e, sk_param_plan *q, const sk_matrix_shard *from,
                   const sk_matrix_shard *factor, int cut);
/* The factors as the backward pass leaves them. */
void sk_matrix_factors(const sk_lowering *e, const sk_param_plan *q, sk_matrix_shard factor[2]);
/* The first or the second of the two passes around a matrix, over the direction or the step. */
void sk_matrix_pass(sk_lowering *e, int param, int which, int direction, int sums);
sk_dtype sk_matrix_type(const sk_lowering *e, const sk_param_plan *q);        /* of directions */
sk_dtype sk_matrix_result_type(const sk_lowering *e, const sk_param_plan *q); /* of operations */

/* matrix_ops.c: what becomes of the matrices in buffer `from`, in state s, in which nothing but the
 * axis `cut` cuts them: a buffer with the same box, or -1 if a cut matrix is not enough. */
int sk_matrix_operate(sk_lowering *e, sk_param_plan *q, const sk_state *s, int from,
                      const int factor[2], int cut);

/* packed_factors.c: the value of a knob of the parameter's optimizer. */
double sk_matrix_knob(const sk_lowering *e, const sk_param_plan *q, int knob);

/* matrix_factors.c: the plan of the factor of side 0, rows, or 1, columns, in params.v, -1: none;
 * the state that goes with matrices in state `whole`; does ZeRO shard it. */
int sk_matrix_factor(const sk_lowering *e, const sk_param_plan *q, int side);
sk_state sk_matrix_factor_state(const sk_lowering *e, int factor, const sk_state *whole);
bool sk_matrix_factor_sharded(const sk_lowering *e, const sk_param_plan *q, int factor,
                              const sk_state *whole, sk_state *s);
bool sk_matrix_factor_cut(const sk_lowering *e, int factor);
bool sk_matrix_factors_distributed(const sk_lowering *e, const sk_param_plan *q);

/* distributed_update.c: are the matrices of this parameter distributed to ranks along
 * sk_matrix_placement.axis; are they cut over it before; and the two passes over such parameters
 * with all that is between them, for matrices that are cut and for those that are not. */
bool sk_is_distributed(const sk_lowering *e, const sk_param_plan *q);
bool sk_is_distributed_shard(const sk_lowering *e, const sk_param_plan *q);
void sk_lower_distributed(sk_lowering *e, const int *params, int n, int sums);
void sk_lower_distributed_replicas(sk_lowering *e, const int *params, int n, int sums);

#endif
