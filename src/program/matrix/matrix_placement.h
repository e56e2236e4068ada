/* matrix_placement.h - where the work on whole matrices is done (matrix_placement.c).  Private to
 * program/.
 */
#ifndef SK_PROGRAM_MATRIX_PLACEMENT_H
#define SK_PROGRAM_MATRIX_PLACEMENT_H

#include "program/lowering.h"

/* Parameters that are alike: their matrices have one size and are cut alike. */
typedef struct sk_matrix_kind {
    sk_param_plan q;  /* tensor, group, optim, used and update of the first of them */
    int n;            /* in the graph */
    bool distributed; /* each matrix has one owner along sk_matrix_placement.axis */
    int cut;          /* the axis over which the matrix stays cut while it is worked on; -1: it is
                         gathered */
} sk_matrix_kind;

struct sk_matrix_placement {
    sk_matrix_kind *v;
    int n, cap;
    int axis;     /* that matrices are distributed along; -1: none */
    int owners;   /* ranks along it that own matrices: the first */
    unsigned far; /* axes whose groups are of several hosts */
};

/* Of all matrices of the graph, alike on all ranks. */
const sk_matrix_placement *sk_matrix_placements(const sk_lowering *e, sk_arena *a);
const sk_matrix_kind *sk_matrix_kind_of(const sk_lowering *e, const sk_param_plan *q);

#endif
